//! The two directions of a wire within this process. One thread both sends and receives the frames of a
//! direction.

use std::fmt;
use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nichrome_port::{Arena, Piece, TransmitError, Unsent, Waker, WireFrame, WireQueue, WireStats, clock};
use nichrome_wan::Impairments;
use nichrome_wire::{ChecksumState, Engine, Instant};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::io;

use crate::memory_path::{BLOCK, CAPACITY, Collected, MemoryPath, WireError};
use crate::path_frame::{PathFrame, gather};

/// Capacity of the ring by which one direction passes ICMP errors to the other, in packets.
const ROOM_FOR_ERRORS: usize = 64;

/// One direction of a wire: receives the frames that were sent through it, after its path.
pub struct MemoryDirection {
    /// The frames sent and not received yet.
    sent: Vec<WireFrame<PathFrame>>,
    /// The time at which each frame in `sent` was sent.
    times: Vec<Instant>,
    path: MemoryPath,
    /// Memory for frames that are sent in several parts.
    arena: Arena,
    /// Maximum frame length, in bytes.
    max: usize,
    opposite: Opposite,
}

/// The rings to and from the opposite direction: an ICMP error for a packet that exceeds the MTU of one
/// direction's path takes the path of the opposite direction.
struct Opposite {
    errors_from: Consumer<(Instant, PathFrame)>,
    errors_to: Producer<(Instant, PathFrame)>,
    wakes: Arc<Waker>,
}

impl fmt::Debug for MemoryDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDirection")
            .field("max", &self.max)
            .field("sent", &self.sent.len())
            .finish_non_exhaustive()
    }
}

/// Creates both directions of a wire for frames of up to `max` bytes, each with its impairments.
///
/// # Errors
/// The impairments contradict each other, or no descriptor is free.
pub fn memory_directions(
    impairments: &[Impairments; 2],
    seed: u64,
    max: usize,
) -> Result<[MemoryDirection; 2], WireError> {
    let errors = || RingBuffer::new(ROOM_FOR_ERRORS);
    let ((to_second, from_first), (to_first, from_second)) = (errors(), errors());
    let [first, second] = MemoryPath::both(impairments, seed)?;
    let direction = |errors_to, errors_from, (path, wakes)| MemoryDirection {
        sent: Vec::with_capacity(CAPACITY),
        times: Vec::with_capacity(CAPACITY),
        path,
        arena: Arena::new(BLOCK),
        max,
        opposite: Opposite { errors_from, errors_to, wakes },
    };
    Ok([direction(to_second, from_second, first), direction(to_first, from_first, second)])
}

impl MemoryDirection {
    /// Returns the path of this direction.
    pub fn path(&self) -> MemoryPath {
        self.path.clone()
    }
}

impl Opposite {
    /// Passes ICMP errors to the opposite direction. Drops them if the ring is full: the next packet that
    /// exceeds the MTU causes another error.
    fn send(&mut self, errors: Vec<Vec<u8>>, now: Instant) {
        let mut is_sent = false;
        for error in errors {
            let error = PathFrame::new(error.into(), ChecksumState::Valid);
            is_sent |= self.errors_to.push((now, error)).is_ok();
        }
        if is_sent {
            self.wakes.wake();
        }
    }
}

impl AsFd for MemoryDirection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }
}

impl WireQueue for MemoryDirection {
    type Buffer = PathFrame;

    fn receive(&mut self, batch: &mut Vec<WireFrame<PathFrame>>, max: usize) -> io::Result<()> {
        self.path.waker().clear();
        let mut direction = self.path.lock();
        let now = clock::now();
        let lens = self.sent.iter().map(|frame| frame.buffer.as_ref().len());
        if batch.is_empty() && self.sent.len() <= max && direction.path.count_passed(lens, now) {
            mem::swap(batch, &mut self.sent);
            self.times.clear();
        }
        for (frame, sent) in self.sent.drain(..).zip(self.times.drain(..)) {
            direction.path.receive(frame.buffer, sent);
        }
        while let Ok((sent, error)) = self.opposite.errors_from.pop() {
            direction.path.receive(error, sent);
        }
        let Collected { errors, is_drained } = direction.collect(batch, max, now);
        drop(direction);
        self.opposite.send(errors, now);
        if !is_drained {
            self.path.waker().wake();
        }
        Ok(())
    }

    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        let frame = gather(&mut self.arena, parts);
        self.transmit_whole(frame, ChecksumState::Unchecked, clock::now()).map_err(|unsent| unsent.error)
    }

    fn carries_partial_checksums(&self) -> bool {
        true
    }

    #[inline]
    fn transmit_whole(&mut self, frame: Piece, checksum: ChecksumState, now: Instant) -> Result<(), Unsent> {
        let (len, max) = (frame.len(), self.max);
        if len > max {
            return Err(Unsent { frame, error: TransmitError::Length { len, max } });
        }
        if self.sent.len() >= CAPACITY {
            return Err(Unsent { frame, error: TransmitError::Full });
        }
        self.sent.push(PathFrame::new(frame, checksum).into());
        self.times.push(now);
        Ok(())
    }

    /// Does nothing: the thread that sends also receives.
    fn flush(&mut self) -> io::Result<()> {
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
        Ok(WireStats::default())
    }
}
