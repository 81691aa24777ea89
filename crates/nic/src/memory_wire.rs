//! A wire within this process, with a wide-area path in each direction: as two ends, or as its two directions.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nichrome_port::{
    Arena, OsError, Piece, TransmitError, Unsent, Waker, WireFrame, WireQueue, WireStats, clock,
};
use nichrome_wan::{ConfigError, Departure, DropReason, Impairments, Output, Packet, Path, Stats, TooBig};
use nichrome_wire::{ChecksumState, Engine, Instant, VirtioNetRepr};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use rustix::io;

use crate::carried::Carried;

/// Capacity of each direction, in frames sent and not yet read: four receive batches, so that a sender seldom waits while
/// its reader delivers one. Twice as many gain nothing.
const ROOM: usize = 1024;

/// Length of a block of memory for frames in several parts, which are ACKs, in bytes.
const BLOCK: usize = 1 << 16;

/// Room for the ICMP errors of a direction that the other one has not read yet.
const ROOM_FOR_ERRORS: usize = 64;

/// A frame, and when it was sent.
type Sent = (Instant, Carried);

/// One end of a wire, or one direction of it. Frames that it receives have passed the path towards it.
pub struct MemoryWire {
    inbox: Consumer<Sent>,
    outbox: Producer<Sent>,
    /// The other direction, if this is one.
    opposite: Option<Opposite>,
    path: MemoryPath,
    /// For frames in several parts.
    arena: Arena,
    /// Maximum frame length, in bytes.
    max: usize,
    /// Of the other end, or direction.
    wakes_peer: Arc<Waker>,
    /// True if frames were sent to the peer since it was last woken.
    sent: bool,
    stats: WireStats,
}

/// The ICMP errors for packets that exceed the MTU of a direction's path: they pass the path of the other one.
struct Opposite {
    errors_from: Consumer<Sent>,
    errors_to: Producer<Sent>,
}

impl fmt::Debug for MemoryWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWire").field("max", &self.max).field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// Creates both ends of a wire for frames of up to `max` bytes. The first impairments apply to the first end's
/// received frames.
///
/// # Errors
/// The impairments contradict each other, or no descriptor is free.
pub fn memory_wire(
    impairments: &[Impairments; 2],
    seed: u64,
    max: usize,
) -> Result<[MemoryWire; 2], WireError> {
    let ((to_second, from_first), (to_first, from_second)) = (RingBuffer::new(ROOM), RingBuffer::new(ROOM));
    let [first, second] = paths(impairments, seed)?;
    let [wakes_first, wakes_second] = [&first, &second].map(|path| Arc::clone(&path.wakes));
    Ok([
        MemoryWire::new((to_second, from_second), None, first, max, wakes_second),
        MemoryWire::new((to_first, from_first), None, second, max, wakes_first),
    ])
}

/// Creates both directions of a wire for frames of up to `max` bytes: frames that are sent at one are received there, after its path.
/// The impairments are those of each.
///
/// # Errors
/// As [`memory_wire`].
pub fn memory_directions(
    impairments: &[Impairments; 2],
    seed: u64,
    max: usize,
) -> Result<[MemoryWire; 2], WireError> {
    let errors = || RingBuffer::new(ROOM_FOR_ERRORS);
    let ((to_second, from_first), (to_first, from_second)) = (errors(), errors());
    let [first, second] = paths(impairments, seed)?;
    let [wakes_first, wakes_second] = [&first, &second].map(|path| Arc::clone(&path.wakes));
    let direction = |errors_to, errors_from, path, wakes_other| {
        let opposite = Opposite { errors_from, errors_to };
        MemoryWire::new(RingBuffer::new(ROOM), Some(opposite), path, max, wakes_other)
    };
    Ok([
        direction(to_second, from_second, first, wakes_second),
        direction(to_first, from_first, second, wakes_first),
    ])
}

/// Creates the paths of both directions.
fn paths(impairments: &[Impairments; 2], seed: u64) -> Result<[MemoryPath; 2], WireError> {
    let path = |nth: usize| -> Result<MemoryPath, WireError> {
        let waker = Waker::new().map_err(|error| WireError::Descriptor(error.into()))?;
        let direction = Direction {
            path: Path::new(&impairments[nth], seed.wrapping_mul(2).wrapping_add(nth as u64))?,
            too_big: TooBig::new(impairments[nth].mtu),
        };
        Ok(MemoryPath { direction: Arc::new(Mutex::new(direction)), wakes: Arc::new(waker) })
    };
    Ok([path(0)?, path(1)?])
}

/// A failure to create a wire.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The impairments contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No descriptor is free.
    #[error("cannot create a wire: {0}")]
    Descriptor(OsError),
}

impl MemoryWire {
    fn new(
        (outbox, inbox): (Producer<Sent>, Consumer<Sent>),
        opposite: Option<Opposite>,
        path: MemoryPath,
        max: usize,
        wakes_peer: Arc<Waker>,
    ) -> Self {
        let (arena, stats) = (Arena::new(BLOCK), WireStats::default());
        Self { inbox, outbox, opposite, path, arena, max, wakes_peer, sent: false, stats }
    }

    /// Returns the path towards this end.
    pub fn path(&self) -> MemoryPath {
        self.path.clone()
    }

    /// Sends an ICMP error for a received packet. It passes the path back. One that is lost or finds no room is repeated for the next
    /// packet.
    fn send_error(&mut self, error: Vec<u8>, now: Instant) {
        let Some(opposite) = &mut self.opposite else {
            let _ = self.send(Carried::new(error.into(), ChecksumState::Valid), now);
            return;
        };
        self.sent |= opposite.errors_to.push((now, Carried::new(error.into(), ChecksumState::Valid))).is_ok();
    }

    /// Sends a frame. Drops it if the peer's end is gone.
    fn send(&mut self, frame: Carried, now: Instant) -> Result<(), (Carried, TransmitError)> {
        let len = frame.wire_len();
        if len > self.max {
            return Err((frame, TransmitError::Length { len, max: self.max }));
        }
        if self.outbox.is_abandoned() {
            // The peer's end has gone: there will be no more room.
            self.stats.transmit_dropped += 1;
            return Ok(());
        }
        let pushed = self.outbox.push((now, frame));
        // Who sends in a direction reads there.
        self.sent |= self.opposite.is_none() && pushed.is_ok();
        pushed.map_err(|PushError::Full((_, frame))| (frame, TransmitError::Full))
    }
}

/// Returns a packet that has left the path as it is received.
fn received(packet: Carried) -> WireFrame<Carried> {
    let virtio = VirtioNetRepr { checksum: packet.checksum, gso: None }.emit();
    WireFrame { buffer: packet, virtio }
}

/// The path towards one end of a wire. Clones are the same path, which can be changed while a card uses the wire.
#[derive(Clone)]
pub struct MemoryPath {
    direction: Arc<Mutex<Direction>>,
    /// The waker of that end's driver.
    wakes: Arc<Waker>,
}

/// A path, and the ICMP errors for the packets that exceed its MTU.
struct Direction {
    path: Path<Carried>,
    too_big: TooBig,
}

impl fmt::Debug for MemoryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPath").finish_non_exhaustive()
    }
}

impl MemoryPath {
    /// Replaces the impairments. Packets in flight keep their drawn delays and faults.
    ///
    /// # Errors
    /// The impairments contradict each other; the path keeps its own.
    pub fn set(&self, impairments: &Impairments) -> Result<(), ConfigError> {
        let mut direction = self.lock();
        direction.path.reconfigure(impairments, clock::now())?;
        direction.too_big.set_mtu(impairments.mtu);
        drop(direction);
        // Packets may be due at other times now.
        self.wakes.wake();
        Ok(())
    }

    /// Returns the counters of the path.
    pub fn stats(&self) -> Stats {
        self.lock().path.stats().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Direction> {
        self.direction.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for MemoryWire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.wakes.as_fd()
    }
}

impl WireQueue for MemoryWire {
    type Buffer = Carried;

    fn receive(&mut self, batch: &mut Vec<WireFrame<Carried>>, max: usize) -> io::Result<()> {
        self.path.wakes.clear();
        let mut direction = self.path.lock();
        let Direction { path, too_big } = &mut *direction;
        let mut now = clock::now();
        let mut left = max;
        while left > 0
            && batch.len() < max
            && let Ok((sent, frame)) = self.inbox.pop()
        {
            if let Some(departure) = path.receive_at_once(frame, sent) {
                batch.push(received(departure.packet));
            }
            left -= 1;
            if left == 0 || batch.len() == max {
                // Frames sent after this one may still be in the ring: the path's time must not pass theirs.
                now = now.min(sent);
            }
        }
        while left > 0
            && let Some(opposite) = &mut self.opposite
            && let Ok((sent, error)) = opposite.errors_from.pop()
        {
            path.receive(error, sent);
            left -= 1;
        }
        if path.poll_timeout().is_some_and(|due| due <= now) {
            path.handle_timeout(now);
        }
        let mut errors = Vec::new();
        let mut is_drained = false;
        while batch.len() < max && !is_drained {
            match path.poll() {
                Some(Output::Released(Departure { packet, .. })) => {
                    batch.push(received(packet));
                }
                Some(Output::Dropped { packet, reason: DropReason::Mtu }) => {
                    errors.extend(too_big.answer(packet.as_ref(), now));
                }
                // The path counts it.
                Some(Output::Dropped { .. }) => {}
                None => is_drained = true,
            }
        }
        drop(direction);
        for error in errors {
            self.send_error(error, now);
        }
        // More frames may be pending.
        if !is_drained || left == 0 {
            self.path.wakes.wake();
        }
        self.flush()
    }

    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut room = self.arena.room(len);
        for part in parts {
            let (place, rest) = room.split_at_mut(part.len());
            place.copy_from_slice(part);
            room = rest;
        }
        let frame = Carried::new(self.arena.take(len), ChecksumState::Unchecked);
        self.send(frame, clock::now()).map_err(|(_, error)| error)
    }

    fn carries_partial_checksums(&self) -> bool {
        true
    }

    fn transmit_whole(&mut self, frame: Piece, checksum: ChecksumState, now: Instant) -> Result<(), Unsent> {
        self.send(Carried::new(frame, checksum), now)
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
        self.path.lock().path.poll_timeout()
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
        assert!((0..2 * ROOM).all(|_| send() == Ok(())), "nobody makes room");
        assert_eq!(wire.stats().unwrap().transmit_dropped, 2 * ROOM as u64);
    }
}
