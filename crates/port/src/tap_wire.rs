//! A TAP device as a wire: what the kernel sends through its interface arrives at a card, and the other way round.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_wire::VirtioNetHeader;
use rustix::io::{self, Errno};

use crate::device::{Device, MAX_RECEIVE};
use crate::pool::{Buffer, BufferPool};
use crate::tap::Tap;
use crate::wire_queue::{LINK_OVERHEAD, TransmitError, WireFrame, WireQueue, WireStats, frame_len};

/// Frames that can be held.
const BUFFERS: usize = 4096;

/// A TAP device, or one queue of it, as a queue of a wire.
#[derive(Debug)]
pub struct TapWire {
    tap: Tap,
    pool: BufferPool,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    max_len: usize,
    is_starved: bool,
    stats: WireStats,
}

impl TapWire {
    /// The wire behind the interface of `tap`, which takes IP packets of up to `mtu` bytes.
    pub fn new(tap: Tap, mtu: u32) -> Self {
        let max_len = mtu as usize + LINK_OVERHEAD;
        let pool = BufferPool::growing(BUFFERS, max_len);
        let incoming = vec![0; MAX_RECEIVE];
        Self {
            tap,
            pool,
            incoming,
            outgoing: Vec::new(),
            max_len,
            is_starved: false,
            stats: WireStats::default(),
        }
    }
}

impl AsFd for TapWire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

impl WireQueue for TapWire {
    type Buffer = Buffer;

    /// While all buffers are held, frames stay in the kernel's queue.
    fn receive(&mut self, batch: &mut Vec<WireFrame<Buffer>>, max: usize) -> io::Result<()> {
        let before = batch.len();
        self.is_starved = false;
        while batch.len() - before < max {
            let Some(mut buffer) = self.pool.take() else {
                self.is_starved = true;
                return Ok(());
            };
            let received = match self.tap.receive(&mut self.incoming) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(()),
                Err(error) => return Err(error),
            };
            buffer.fill(|bytes| bytes.extend_from_slice(received.frame));
            batch.push(WireFrame { buffer, virtio: received.virtio });
        }
        Ok(())
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        frame_len(parts, self.max_len)?;
        self.outgoing.clear();
        self.outgoing.extend(VirtioNetHeader::default().to_bytes());
        parts.iter().for_each(|part| self.outgoing.extend_from_slice(part));
        let sent = self.tap.send_bytes(&self.outgoing);
        match sent {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::IO | Errno::BADFD) => {
                self.stats.transmit_dropped += 1;
            }
            Err(_) => self.stats.transmit_invalid += 1,
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn unsent(&self) -> usize {
        0
    }

    fn stats(&mut self) -> io::Result<WireStats> {
        Ok(self.stats)
    }
}
