//! What the driver of a live card wants of the wire: one queue of an interface per worker.

use std::io::IoSlice;
use std::os::fd::AsFd;

use nichrome_wire::{Instant, VirtioNetHeader};
use rustix::io;
use rustix::net::sockopt::socket_error;
use thiserror::Error;

/// A received frame.
#[derive(Debug)]
pub struct WireFrame<B> {
    /// The bytes from the Ethernet header on, VLAN tags in their place.
    pub buffer: B,
    /// What its sender left to do, and what is known of its checksums; all zeros where nothing is known.
    pub virtio: VirtioNetHeader,
}

/// Why a frame was not queued for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransmitError {
    /// There is no room: [`WireQueue::flush`], and try again later. The frame is still the caller's.
    #[error("the transmit queue is full")]
    Full,
    /// The interface does not take frames of this length.
    #[error("a frame of {len} bytes cannot be sent, only 14 to {max}")]
    Length {
        /// The frame's length, in bytes.
        len: usize,
        /// The longest frame, in bytes: by the interface's MTU when the queue was opened.
        max: usize,
    },
}

/// What the kernel has counted for a queue since it was opened. Of frames that were received or sent, only the driver
/// keeps count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    /// Frames that were dropped because there was no memory to put them into, or that were too long for it.
    pub receive_dropped: u64,
    /// Frames that were dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// AF_XDP: how often the kernel found no free buffer for a frame. In copy mode each such frame is also counted as
    /// dropped; a card in zero-copy mode may have kept it.
    pub fill_ring_empty: u64,
    /// AF_XDP: buffers that were offered for receiving and made no sense.
    pub receive_invalid: u64,
    /// AF_PACKET: how often the ring filled up and stopped.
    pub freezes: u64,
    /// Frames that the kernel refused to send.
    pub transmit_invalid: u64,
    /// Frames that the kernel took for sending and dropped.
    pub transmit_dropped: u64,
}

impl WireStats {
    /// Frames that arrived and were lost for want of room.
    pub fn lost(&self) -> u64 {
        self.receive_dropped + self.receive_ring_full
    }
}

/// A queue of an interface, for one worker. Its descriptor can be read while frames are at hand; nothing here waits.
pub trait WireQueue: AsFd + Send {
    /// The bytes of a received frame. It goes back to where it came from when it is dropped, on any thread, and may
    /// outlive the queue. While many are held, the kernel has no place for frames and drops them.
    type Buffer: AsRef<[u8]> + Send;

    /// Adds the frames at hand to `batch`, at most `max`: a card's receive batch. Buffers that were dropped since the last
    /// call are received into again, so call it until nothing comes before waiting. An error says that the interface is
    /// down or gone, and comes once.
    fn receive(&mut self, batch: &mut Vec<WireFrame<Self::Buffer>>, max: usize) -> io::Result<()>;

    /// Whether the last call to [`Self::receive`] has left no buffer to receive into. The descriptor says nothing useful
    /// then: call `receive` again after some were dropped, or a little later.
    fn is_starved(&self) -> bool;

    /// Whether so few buffers are left to receive into that the driver should drop frames it holds, before the kernel
    /// drops those that arrive.
    fn is_low(&self) -> bool {
        self.is_starved()
    }

    /// Copies a frame, which consists of `parts`, to the transmit queue. Its checksums must be complete.
    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError>;

    /// Has the kernel send what was queued. What it does not take now stays queued ([`Self::unsent`]): flush again a
    /// little later.
    fn flush(&mut self) -> io::Result<()>;

    /// How many frames or parts of frames are queued that the kernel has not taken yet.
    fn unsent(&self) -> usize;

    /// When frames will be at hand although the descriptor does not say so; `None` for what a kernel drives.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// What the kernel has counted.
    fn stats(&mut self) -> io::Result<WireStats>;
}

/// Bytes of an Ethernet header and one VLAN tag: what a frame may be longer than the MTU.
pub(crate) const LINK_OVERHEAD: usize = 18;

const MIN_FRAME: usize = 14;

/// The length of a frame that consists of `parts`, which must not exceed `max`.
#[inline]
pub(crate) fn frame_len(parts: &[IoSlice<'_>], max: usize) -> Result<usize, TransmitError> {
    let len = parts.iter().map(|part| part.len()).sum();
    if (MIN_FRAME..=max).contains(&len) { Ok(len) } else { Err(TransmitError::Length { len, max }) }
}

/// The error that happened to a socket on which nothing is called: the kernel tells it once.
#[cold]
pub(crate) fn pending_error(socket: impl AsFd) -> io::Result<()> {
    socket_error(socket)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_header_at_least_and_the_mtu_at_most() {
        let part = [0; 7];
        let len = |parts: usize| frame_len(&vec![IoSlice::new(&part); parts], 28);
        assert_eq!((len(2), len(4)), (Ok(14), Ok(28)));
        assert_eq!(len(0), Err(TransmitError::Length { len: 0, max: 28 }));
        assert_eq!(len(5).unwrap_err().to_string(), "a frame of 35 bytes cannot be sent, only 14 to 28");
    }
}
