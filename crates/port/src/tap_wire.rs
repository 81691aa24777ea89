//! A TAP device used as a wire: frames that the kernel sends through the interface are received by a card,
//! and vice versa.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_wire::VirtioNetHeader;
use rustix::io::{self, Errno};

use crate::device::{Device, MAX_RECEIVE};
use crate::pool::{Buffer, BufferPool};
use crate::tap::Tap;
use crate::wire_queue::{LINK_OVERHEAD, TransmitError, WireFrame, WireQueue, WireStats, frame_len};

/// The maximum number of held frames.
const BUFFERS: usize = 4096;

/// A TAP device, or one of its queues, as a [`WireQueue`].
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
    /// Creates the wire of the interface `tap`, whose MTU is `mtu` bytes.
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

    /// Frames stay in the kernel's queue while all buffers are held.
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
