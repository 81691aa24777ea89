//! A wire within this process, with a wide-area path in each direction.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nichrome_port::{Arena, Piece, TransmitError, Unsent, Waker, WireFrame, WireQueue, WireStats, clock};
use nichrome_wan::{Impairments, Packet};
use nichrome_wire::{ChecksumState, Instant};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use rustix::io;

use crate::memory_path::{BLOCK, CAPACITY, Collected, MemoryPath, WireError};
use crate::path_frame::{PathFrame, gather};

/// A frame, and when it was sent.
type Sent = (Instant, PathFrame);

/// One end of a wire. Frames that it receives have passed the path towards it.
pub struct MemoryWire {
    inbox: Consumer<Sent>,
    outbox: Producer<Sent>,
    path: MemoryPath,
    /// Memory for frames that are sent in several parts.
    arena: Arena,
    /// Maximum frame length, in bytes.
    max: usize,
    /// The waker of the other end's driver.
    wakes_peer: Arc<Waker>,
    /// True if frames were sent to the peer since it was last woken.
    sent: bool,
    stats: WireStats,
}

impl fmt::Debug for MemoryWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWire").field("max", &self.max).field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// Creates both ends of a wire for frames of up to `max` bytes. The first impairments apply to the first
/// end's received frames.
///
/// # Errors
/// The impairments contradict each other, or no descriptor is free.
pub fn memory_wire(
    impairments: &[Impairments; 2],
    seed: u64,
    max: usize,
) -> Result<[MemoryWire; 2], WireError> {
    let ((to_second, from_first), (to_first, from_second)) =
        (RingBuffer::new(CAPACITY), RingBuffer::new(CAPACITY));
    let [first, second] = MemoryPath::both(impairments, seed)?;
    let end = |outbox, inbox, (path, wakes_peer)| {
        let (arena, stats) = (Arena::new(BLOCK), WireStats::default());
        MemoryWire { inbox, outbox, path, arena, max, wakes_peer, sent: false, stats }
    };
    Ok([end(to_second, from_second, first), end(to_first, from_first, second)])
}

impl MemoryWire {
    /// Returns the path towards this end.
    pub fn path(&self) -> MemoryPath {
        self.path.clone()
    }

    /// Sends a frame. Drops it if the peer's end is gone.
    fn send(&mut self, frame: PathFrame, now: Instant) -> Result<(), (PathFrame, TransmitError)> {
        let len = frame.wire_len();
        if len > self.max {
            return Err((frame, TransmitError::Length { len, max: self.max }));
        }
        if self.outbox.is_abandoned() {
            // Without a reader, the ring would stay full.
            self.stats.transmit_dropped += 1;
            return Ok(());
        }
        let pushed = self.outbox.push((now, frame));
        self.sent |= pushed.is_ok();
        pushed.map_err(|PushError::Full((_, frame))| (frame, TransmitError::Full))
    }
}

impl AsFd for MemoryWire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }
}

impl WireQueue for MemoryWire {
    type Buffer = PathFrame;

    fn receive(&mut self, batch: &mut Vec<WireFrame<PathFrame>>, max: usize) -> io::Result<()> {
        self.path.waker().clear();
        let mut direction = self.path.lock();
        let mut now = clock::now();
        let mut left = max;
        while left > 0
            && batch.len() < max
            && let Ok((sent, frame)) = self.inbox.pop()
        {
            if let Some(departure) = direction.path.receive_at_once(frame, sent) {
                batch.push(departure.packet.into());
            }
            left -= 1;
            if left == 0 || batch.len() == max {
                // Frames sent after this one may still be in the ring: the path's time must not pass theirs.
                now = now.min(sent);
            }
        }
        let Collected { errors, is_drained } = direction.collect(batch, max, now);
        drop(direction);
        for error in errors {
            // The error takes the path to the peer. If the ring is full, the next packet that exceeds the MTU
            // causes another.
            let _ = self.send(PathFrame::new(error.into(), ChecksumState::Valid), now);
        }
        // More frames may be pending.
        if !is_drained || left == 0 {
            self.path.waker().wake();
        }
        self.flush()
    }

    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        let frame = PathFrame::new(gather(&mut self.arena, parts), ChecksumState::Unchecked);
        self.send(frame, clock::now()).map_err(|(_, error)| error)
    }

    fn carries_partial_checksums(&self) -> bool {
        true
    }

    fn transmit_whole(&mut self, frame: Piece, checksum: ChecksumState, now: Instant) -> Result<(), Unsent> {
        self.send(PathFrame::new(frame, checksum), now)
            .map_err(|(frame, error)| Unsent { frame: frame.into_frame(), error })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.sent {
            self.sent = false;
            self.wakes_peer.wake();
        }
        Ok(())
    }

    fn unsent(&self) -> usize {
        0
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.path.poll_timeout()
    }

    fn is_starved(&self) -> bool {
        false
    }

    fn stats(&mut self) -> io::Result<WireStats> {
        Ok(self.stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_to_an_end_that_is_gone_are_dropped() {
        let [mut wire, gone] =
            memory_wire(&[Impairments::default(), Impairments::default()], 1, 1514).unwrap();
        let mut send = || wire.transmit(&[IoSlice::new(&[1; 60])]);
        assert_eq!(send(), Ok(()));
        drop(gone);
        assert!((0..2 * CAPACITY).all(|_| send() == Ok(())), "nobody makes room");
        assert_eq!(wire.stats().unwrap().transmit_dropped, 2 * CAPACITY as u64);
    }
}
