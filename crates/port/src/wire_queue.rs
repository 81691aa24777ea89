//! One receive and transmit queue of an interface, for one worker of a live card.

use std::io::IoSlice;
use std::os::fd::AsFd;

use nichrome_wire::{ChecksumState, Instant, VirtioNetHeader};
use rustix::io;
use rustix::net::sockopt::socket_error;
use thiserror::Error;

use crate::arena::Piece;

/// A received frame.
#[derive(Debug)]
pub struct WireFrame<B> {
    /// The frame from the Ethernet header on, including VLAN tags.
    pub buffer: B,
    /// Pending offloads and checksum state; all zeros if unknown.
    pub virtio: VirtioNetHeader,
}

/// Why a frame was not queued for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransmitError {
    /// The transmit queue is full: call [`WireQueue::flush`] and retry. The caller keeps the frame.
    #[error("the transmit queue is full")]
    Full,
    /// The interface does not accept frames of this length.
    #[error("a frame of {len} bytes cannot be sent: frames have 14 to {max} bytes")]
    Length {
        /// The frame's length, in bytes.
        len: usize,
        /// The maximum length, in bytes: from the interface MTU when the queue was opened.
        max: usize,
    },
}

/// A frame that was not queued, and why.
#[derive(Debug)]
pub struct Unsent {
    /// The frame.
    pub frame: Piece,
    /// The reason.
    pub error: TransmitError,
}

/// The kernel's counters of a queue since it was opened. Received and sent frames are counted by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    /// Frames dropped because no buffer was free, or because the buffer was too small.
    pub receive_dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// AF_XDP: times that the kernel found no free buffer. In copy mode each one is also in
    /// `receive_dropped`; a zero-copy card may have kept the frame.
    pub fill_ring_empty: u64,
    /// AF_XDP: invalid descriptors in the fill ring.
    pub receive_invalid: u64,
    /// AF_PACKET: times that the ring filled up.
    pub freezes: u64,
    /// Frames that the kernel refused to send.
    pub transmit_invalid: u64,
    /// Frames that the kernel dropped on transmission: after it had accepted them, or each time that they
    /// were sent.
    pub transmit_dropped: u64,
}

impl WireStats {
    /// Returns the number of received frames lost for lack of memory.
    pub fn lost(&self) -> u64 {
        self.receive_dropped + self.receive_ring_full
    }
}

/// A queue of an interface, for one worker. Its descriptor is readable while frames are pending; no method
/// blocks.
pub trait WireQueue: AsFd + Send {
    /// A received frame. Returns to the queue when dropped, on any thread; may outlive the queue. The kernel
    /// drops new frames while too many are held.
    type Buffer: AsRef<[u8]> + Send;

    /// Appends up to `max` pending frames to `batch`: a receive batch of a card. Reuses buffers dropped since
    /// the last call, so call again until no frame comes before waiting. Returns an error once when the
    /// interface goes down or away.
    fn receive(&mut self, batch: &mut Vec<WireFrame<Self::Buffer>>, max: usize) -> io::Result<()>;

    /// Returns true if the last [`Self::receive`] found no free buffer. The descriptor's readiness is then
    /// meaningless: call `receive` again after dropping frames, or a little later.
    fn is_starved(&self) -> bool;

    /// Returns true if free buffers run low: the driver should release held frames before the kernel drops
    /// new ones.
    fn is_low(&self) -> bool {
        self.is_starved()
    }

    /// Copies a frame, the concatenation of `parts`, to the transmit queue. Its checksums must be complete.
    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError>;

    /// Returns true if the reader of this wire completes partial TCP checksums.
    fn carries_partial_checksums(&self) -> bool {
        false
    }

    /// As [`Self::transmit`], for a frame in one piece that was sent at `now`. `checksum` may be partial only
    /// if [`Self::carries_partial_checksums`] returns true. A wire within this process passes the piece on to
    /// its reader.
    fn transmit_whole(&mut self, frame: Piece, checksum: ChecksumState, now: Instant) -> Result<(), Unsent> {
        let _ = (checksum, now);
        self.transmit(&[IoSlice::new(&frame)]).map_err(|error| Unsent { frame, error })
    }

    /// Submits queued frames to the kernel. Those it does not accept stay queued ([`Self::unsent`]): flush
    /// again a little later.
    fn flush(&mut self) -> io::Result<()>;

    /// Returns the number of queued frames, or parts of frames, that the kernel has not accepted yet.
    fn unsent(&self) -> usize;

    /// Returns when frames become available without readiness of the descriptor; `None` for kernel-driven
    /// queues.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Returns the kernel's counters.
    fn stats(&mut self) -> io::Result<WireStats>;
}

/// Maximum overhead of a frame over the MTU, in bytes: Ethernet header and two VLAN tags.
pub(crate) const LINK_OVERHEAD: usize = 14 + 2 * VLAN_TAG;

/// Length of a VLAN tag in bytes.
pub(crate) const VLAN_TAG: usize = 4;

const MIN_FRAME: usize = 14;

/// Returns the length of a frame, the concatenation of `parts`; fails if it exceeds `max`.
#[inline]
pub(crate) fn frame_len(parts: &[IoSlice<'_>], max: usize) -> Result<usize, TransmitError> {
    let len = parts.iter().map(|part| part.len()).sum();
    if (MIN_FRAME..=max).contains(&len) { Ok(len) } else { Err(TransmitError::Length { len, max }) }
}

/// Returns and clears the pending asynchronous error of a socket (SO_ERROR).
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
        assert_eq!(
            len(5).unwrap_err().to_string(),
            "a frame of 35 bytes cannot be sent: frames have 14 to 28 bytes"
        );
    }
}
