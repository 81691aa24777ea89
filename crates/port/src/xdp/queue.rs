//! An AF_XDP socket on one queue of an interface.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nichrome_wire::VirtioNetHeader;
use rustix::io::{self, Errno};
use rustix::net::sockopt::xdp_statistics;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::config::XdpConfig;
use super::error::XdpError;
use super::interface::XdpInterface;
use super::ring::{Consumer, Producer};
use super::socket::{self, Rings, XdpSocket};
use super::umem::{Chunk, Loan, Umem};
use crate::netlink::Interface;
use crate::pool::{Buffer, BufferPool};
use crate::wire_queue::{
    LINK_OVERHEAD, TransmitError, WireFrame, WireQueue, WireStats, frame_len, pending_error,
};

/// Maximum number of descriptors that the kernel takes per call (`TX_BATCH_SIZE`).
const TAKEN_PER_CALL: u32 = 32;

/// Maximum chunks per sent frame: the page slots of a kernel socket buffer.
const MAX_CHUNKS: u32 = 17;

/// One queue of an [`XdpInterface`]. Received frames stay in their chunk; those of several chunks are copied
/// together. While few chunks are left for the kernel, all are copied, so that many frames can be held.
/// AF_XDP reports neither checksum state nor stripped VLAN tags: local peers may leave checksums unfinished
/// (`ethtool -K PEER tx off` makes them finish) and tags stripped by a card or a peer are lost
/// (`ethtool -K IFACE rxvlan off` keeps them).
#[derive(Debug)]
pub struct XdpQueue {
    fill: Producer<u64>,
    receive: Consumer<XdpDesc>,
    transmit: Producer<XdpDesc>,
    completion: Consumer<u64>,
    socket: OwnedFd,
    umem: Arc<Umem>,
    /// Free transmit chunks.
    free: Vec<Chunk>,
    /// Memory for frames of several chunks.
    pool: BufferPool,
    /// Memory for copies of frames of one chunk.
    copies: BufferPool,
    /// The first part of a frame whose last chunk has not arrived yet.
    begun: Option<Buffer>,
    /// Chunks in the fill and receive rings.
    with_kernel: u32,
    /// Frames are copied while the kernel has fewer chunks than this.
    few: u32,
    /// True if a frame of the last batch was not copied for lack of memory.
    is_low: bool,
    /// True while a frame of several chunks waits for memory.
    is_long_waiting: bool,
    max_len: usize,
    transmit_dropped: u64,
}

impl XdpQueue {
    /// Opens `queue`, below [`XdpInterface::queues`], in the interface's network namespace.
    pub fn open(interface: &XdpInterface, queue: u32, config: XdpConfig) -> Result<Self, XdpError> {
        let XdpConfig { receive_chunks, transmit_chunks, chunk_size, copy } = config;
        let (chunks, size) = (receive_chunks.saturating_add(transmit_chunks), chunk_size.bytes());
        let (umem, mut chunks) = Umem::new(chunks, size)
            .map_err(|error| XdpError::Memory { bytes: config.locked_bytes(), error: error.into() })?;
        let free = chunks.split_off(receive_chunks as usize);
        let XdpSocket { socket, rings, is_multi_buffer } =
            socket::open(interface, queue, &umem, [receive_chunks, transmit_chunks], copy)?;
        let Interface { name, mtu, .. } = *interface.interface();
        let most = chunk_size.frame_bytes();
        if !is_multi_buffer && mtu as usize + LINK_OVERHEAD > most as usize {
            return Err(XdpError::Mtu { name, mtu, most });
        }
        let Rings { mut fill, receive, transmit, completion } = rings;
        chunks.into_iter().for_each(|chunk| offer(&mut fill, chunk, &umem));
        fill.submit();
        let longest = mtu as usize + LINK_OVERHEAD;
        Ok(Self {
            fill,
            receive,
            transmit,
            completion,
            socket,
            umem: Arc::new(umem),
            free,
            pool: BufferPool::growing(receive_chunks as usize, longest),
            copies: BufferPool::growing(receive_chunks as usize, size as usize),
            begun: None,
            with_kernel: receive_chunks,
            few: receive_chunks / 2,
            is_low: false,
            is_long_waiting: false,
            max_len: longest.min((MAX_CHUNKS * chunk_size.bytes()) as usize),
            transmit_dropped: 0,
        })
    }

    /// Returns released chunks to the fill ring.
    #[inline]
    fn refill(&mut self) -> io::Result<()> {
        for chunk in self.umem.take_returned() {
            offer(&mut self.fill, chunk, &self.umem);
            self.with_kernel += 1;
        }
        self.fill.submit();
        // Wakes a card that ran out of chunks; never needed in copy mode.
        if self.fill.needs_wakeup() {
            wake_up(recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT).map(drop))
        } else {
            Ok(())
        }
    }

    /// Returns the next frame; `None` if there is none, or if there is no memory for one of several chunks.
    #[allow(unsafe_code)]
    #[inline]
    fn next_frame(&mut self) -> Option<XdpBuffer> {
        loop {
            let XdpDesc { options, .. } = self.receive.peek()?;
            let goes_on = options.contains(XdpDescOptions::XDP_PKT_CONTD);
            if goes_on && self.begun.is_none() {
                self.begun = self.pool.take();
                self.is_long_waiting = self.begun.is_none();
                if self.is_long_waiting {
                    return None;
                }
            }
            self.with_kernel -= 1;
            let XdpDesc { addr, len, .. } = self.receive.pop()?;
            // SAFETY: the address was just popped from the receive ring.
            let (chunk, start) = unsafe { self.umem.regain(addr) };
            let piece = Loan::new(&self.umem, chunk, start, len);
            let Some(begun) = &mut self.begun else { return Some(XdpBuffer(self.keep(piece))) };
            begun.fill(|bytes| bytes.extend_from_slice(piece.bytes()));
            if !goes_on {
                return self.begun.take().map(|whole| XdpBuffer(Memory::Pool(whole)));
            }
        }
    }

    /// Returns the memory of a received frame: its chunk, or a copy if few chunks are left.
    #[inline]
    fn keep(&mut self, frame: Loan) -> Memory {
        if self.with_kernel >= self.few {
            return Memory::Chunk(frame);
        }
        let Some(mut copy) = self.copies.take() else {
            self.is_low = true;
            return Memory::Chunk(frame);
        };
        copy.fill(|bytes| bytes.extend_from_slice(frame.bytes()));
        Memory::Pool(copy)
    }

    /// Reclaims chunks of transmitted frames.
    #[allow(unsafe_code)]
    fn reclaim(&mut self) {
        while let Some(address) = self.completion.pop() {
            // SAFETY: the address was just popped from the completion ring.
            let (chunk, _) = unsafe { self.umem.regain(address) };
            self.free.push(chunk);
        }
        self.completion.release();
    }
}

/// Adds a chunk to the fill ring. The ring has twice as many entries as there are chunks, so that there is
/// room even while the kernel is slow to release entries.
#[inline]
fn offer(fill: &mut Producer<u64>, chunk: Chunk, umem: &Umem) {
    let offered = fill.push(chunk.give(umem));
    debug_assert!(offered);
}

/// Ignores errors of a wake-up that did its work or may be retried. If the kernel has no memory for a frame
/// of several chunks (ENOMEM, Linux 6.17), the frame stays in the ring.
fn wake_up(result: io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A cursor over the parts of a frame being copied.
struct Gather<'a> {
    parts: &'a [IoSlice<'a>],
    /// Copied bytes of the first part.
    done: usize,
}

impl Gather<'_> {
    /// Fills `to` as far as bytes are left; returns the number copied.
    fn copy_to(&mut self, to: &mut [u8]) -> usize {
        let mut copied = 0;
        while let Some((part, rest)) = self.parts.split_first().filter(|_| copied < to.len()) {
            let len = (part.len() - self.done).min(to.len() - copied);
            to[copied..copied + len].copy_from_slice(&part[self.done..][..len]);
            copied += len;
            self.done += len;
            if self.done == part.len() {
                (self.parts, self.done) = (rest, 0);
            }
        }
        copied
    }
}

impl AsFd for XdpQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl WireQueue for XdpQueue {
    type Buffer = XdpBuffer;

    #[inline]
    fn receive(&mut self, batch: &mut Vec<WireFrame<XdpBuffer>>, max: usize) -> io::Result<()> {
        self.refill()?;
        self.is_low = false;
        let before = batch.len();
        let virtio = VirtioNetHeader::default();
        while batch.len() - before < max {
            let Some(buffer) = self.next_frame() else { break };
            batch.push(WireFrame { buffer, virtio });
        }
        self.receive.release();
        if batch.len() == before { pending_error(&self.socket) } else { Ok(()) }
    }

    fn is_starved(&self) -> bool {
        self.with_kernel == 0 || self.is_long_waiting
    }

    /// Returns true if less than half of the chunks is left and there is no memory for copies. The kernel
    /// drops frames when it has no chunk, so bursts need a reserve.
    fn is_low(&self) -> bool {
        self.is_low || self.is_starved()
    }

    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        let mut left = frame_len(parts, self.max_len)?;
        let chunks = left.div_ceil(self.umem.chunk_size() as usize);
        if self.free.len() < chunks {
            self.reclaim();
        }
        if self.free.len() < chunks || !self.transmit.has_room(chunks as u32) {
            return Err(TransmitError::Full);
        }
        let mut bytes = Gather { parts, done: 0 };
        while left > 0 {
            let Some(mut chunk) = self.free.pop() else { break };
            let len = bytes.copy_to(self.umem.bytes_mut(&mut chunk));
            left -= len;
            let options = if left > 0 { XdpDescOptions::XDP_PKT_CONTD } else { XdpDescOptions::empty() };
            let queued =
                self.transmit.push(XdpDesc { addr: chunk.give(&self.umem), len: len as u32, options });
            debug_assert!(queued);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transmit.submit();
        let mut unseen = self.transmit.unconsumed() / TAKEN_PER_CALL;
        loop {
            self.reclaim();
            let waiting = self.transmit.unconsumed();
            if waiting == 0 || !self.transmit.needs_wakeup() {
                return Ok(());
            }
            let sent = send(&self.socket, &[], SendFlags::DONTWAIT).map(drop);
            if sent == Err(Errno::BUSY) {
                self.transmit_dropped += 1;
            }
            wake_up(sent)?;
            if self.transmit.unconsumed() == waiting {
                // The kernel takes no descriptor while the interface's queue is full. An older kernel (6.1)
                // does not report what it has taken before it has taken all, and returns EAGAIN in both
                // cases.
                if sent != Err(Errno::AGAIN) || unseen == 0 {
                    return Ok(());
                }
                unseen -= 1;
            }
        }
    }

    fn unsent(&self) -> usize {
        self.transmit.unconsumed() as usize
    }

    fn stats(&mut self) -> io::Result<WireStats> {
        let kernel = xdp_statistics(&self.socket)?;
        Ok(WireStats {
            receive_dropped: kernel.rx_dropped,
            receive_ring_full: kernel.rx_ring_full.unwrap_or(0),
            fill_ring_empty: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            receive_invalid: kernel.rx_invalid_descs,
            freezes: 0,
            transmit_invalid: kernel.tx_invalid_descs,
            transmit_dropped: self.transmit_dropped,
        })
    }
}

/// A received frame, in its chunk or copied together.
#[derive(Debug)]
pub struct XdpBuffer(Memory);

#[derive(Debug)]
enum Memory {
    Chunk(Loan),
    Pool(Buffer),
}

impl AsRef<[u8]> for XdpBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Memory::Chunk(loan) => loan.bytes(),
            Memory::Pool(buffer) => buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_do_not_pass_end_a_queue() {
        for passes in [Errno::AGAIN, Errno::BUSY, Errno::NOBUFS, Errno::NOMEM, Errno::INTR] {
            assert_eq!(wake_up(Err(passes)), Ok(()));
        }
        for stays in [Errno::NETDOWN, Errno::NXIO, Errno::INVAL] {
            assert_eq!(wake_up(Err(stays)), Err(stays));
        }
    }

    #[test]
    fn parts_are_copied_piece_by_piece() {
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh"), IoSlice::new(b"")];
        let mut bytes = Gather { parts: &parts, done: 0 };
        let mut to = [0; 4];
        assert_eq!((bytes.copy_to(&mut to), &to), (4, b"abcd"));
        assert_eq!((bytes.copy_to(&mut to), &to), (4, b"efgh"));
        assert_eq!(bytes.copy_to(&mut to), 0);
    }
}
