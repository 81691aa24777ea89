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
use super::socket::{self, Rings};
use super::umem::{Chunk, Loan, Umem};
use crate::pool::{Buffer, BufferPool};
use crate::wire_queue::{
    LINK_OVERHEAD, TransmitError, WireFrame, WireQueue, WireStats, frame_len, pending_error,
};

/// How many chunks a frame may be sent from: a packet of the kernel has as many places for pages.
const MAX_CHUNKS: u32 = 17;

/// One queue of an [`XdpInterface`]. Received frames stay where the kernel put them; only those of several chunks are
/// copied into one piece. Nothing is known of their checksums: on a link inside this machine they may be unfinished
/// (`ethtool -K PEER tx off` has the sender finish them), and VLAN tags that a card or a peer hands over beside the
/// frame are not seen (`ethtool -K IFACE rxvlan off`).
#[derive(Debug)]
pub struct XdpQueue {
    fill: Producer<u64>,
    receive: Consumer<XdpDesc>,
    transmit: Producer<XdpDesc>,
    completion: Consumer<u64>,
    socket: OwnedFd,
    umem: Arc<Umem>,
    /// Chunks to send from.
    free: Vec<Chunk>,
    /// Memory for frames of several chunks.
    pool: BufferPool,
    /// The beginning of a frame whose end has not come yet.
    begun: Option<Buffer>,
    /// How many chunks the kernel has to receive into, or has received into.
    with_kernel: u32,
    /// The queue is low on memory while the kernel has fewer chunks than this.
    low: u32,
    /// Whether a long frame waits for memory.
    is_long_waiting: bool,
    max_len: usize,
    transmit_dropped: u64,
}

impl XdpQueue {
    /// Opens `queue`, one of [`XdpInterface::queues`], in the interface's network namespace.
    pub fn open(interface: &XdpInterface, queue: u32, config: XdpConfig) -> Result<Self, XdpError> {
        let XdpConfig { receive_chunks, transmit_chunks, chunk_size, copy } = config;
        let (chunks, size) = (receive_chunks.saturating_add(transmit_chunks), chunk_size.bytes());
        let (umem, mut chunks) = Umem::new(chunks, size)
            .map_err(|error| XdpError::Memory { bytes: u64::from(chunks) * u64::from(size), error })?;
        let free = chunks.split_off(receive_chunks as usize);
        let (socket, Rings { mut fill, receive, transmit, completion }) =
            socket::open(interface, queue, &umem, [receive_chunks, transmit_chunks], copy)?;
        chunks.into_iter().for_each(|chunk| offer(&mut fill, chunk, &umem));
        fill.submit();
        let mtu = interface.interface().mtu as usize;
        Ok(Self {
            fill,
            receive,
            transmit,
            completion,
            socket,
            umem: Arc::new(umem),
            free,
            pool: BufferPool::growing(receive_chunks as usize, mtu + LINK_OVERHEAD),
            begun: None,
            with_kernel: receive_chunks,
            low: receive_chunks / 4,
            is_long_waiting: false,
            max_len: (mtu + LINK_OVERHEAD).min((MAX_CHUNKS * chunk_size.bytes()) as usize),
            transmit_dropped: 0,
        })
    }

    /// Offers the kernel the chunks that have come back.
    #[inline]
    fn refill(&mut self) -> io::Result<()> {
        for chunk in self.umem.take_returned() {
            offer(&mut self.fill, chunk, &self.umem);
            self.with_kernel += 1;
        }
        self.fill.submit();
        // A card that has run out of chunks waits for this; where the kernel copies, it never asks.
        if self.fill.needs_wakeup() {
            wake_up(recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT).map(drop))
        } else {
            Ok(())
        }
    }

    /// The next frame; `None` where there is none, or a long one and no memory to put it together.
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
            let Some(begun) = &mut self.begun else { return Some(XdpBuffer(Memory::Chunk(piece))) };
            begun.fill(|bytes| bytes.extend_from_slice(piece.bytes()));
            if !goes_on {
                return self.begun.take().map(|whole| XdpBuffer(Memory::Pool(whole)));
            }
        }
    }

    /// Takes back the chunks of frames that were sent.
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

/// Offers the kernel a chunk to receive into. The ring has twice as many entries as there are chunks: also while the
/// kernel is slow to release what it has taken, there is room.
#[inline]
fn offer(fill: &mut Producer<u64>, chunk: Chunk, umem: &Umem) {
    let offered = fill.push(chunk.give(umem));
    debug_assert!(offered);
}

/// Whether a wake-up did its work or may be repeated later.
fn wake_up(result: io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The bytes of a frame's parts that are still to be copied.
struct Gather<'a> {
    parts: &'a [IoSlice<'a>],
    /// How many bytes of the first part are done.
    done: usize,
}

impl Gather<'_> {
    /// Fills `to` as far as there are bytes; returns how many.
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

    /// Less than a quarter of the chunks is left. The kernel drops frames at once when it has none, so that a burst needs
    /// some in reserve.
    fn is_low(&self) -> bool {
        self.with_kernel < self.low || self.is_starved()
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
            // The kernel takes 32 at a time, and none while the interface's queue is full.
            if self.transmit.unconsumed() == waiting {
                return Ok(());
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

/// A received frame where the kernel has put it, or put together.
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
    fn parts_are_copied_piece_by_piece() {
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh"), IoSlice::new(b"")];
        let mut bytes = Gather { parts: &parts, done: 0 };
        let mut to = [0; 4];
        assert_eq!((bytes.copy_to(&mut to), &to), (4, b"abcd"));
        assert_eq!((bytes.copy_to(&mut to), &to), (4, b"efgh"));
        assert_eq!(bytes.copy_to(&mut to), 0);
    }
}
