//! The path towards an end of a wire within this process.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nichrome_port::{OsError, Waker, WireFrame, clock};
use nichrome_wan::{ConfigError, Departure, DropReason, Impairments, Output, Path, Stats, TooBig};
use nichrome_wire::{Engine, Instant};

use crate::path_frame::PathFrame;

/// Capacity of a direction for frames sent and not yet received: four receive batches, so that a sender
/// seldom waits while the reader delivers a batch. Twice the capacity gains nothing.
pub(crate) const CAPACITY: usize = 1024;

/// Length of a block of memory for frames that are sent in several parts (ACKs), in bytes.
pub(crate) const BLOCK: usize = 1 << 16;

/// The path towards one end of a wire. Clones share the path, whose impairments can be changed while a card
/// uses the wire.
#[derive(Clone)]
pub struct MemoryPath {
    direction: Arc<Mutex<Direction>>,
    /// The waker of that end's driver.
    waker: Arc<Waker>,
}

/// A path, and the ICMP errors for the packets that exceed its MTU.
pub(crate) struct Direction {
    pub(crate) path: Path<PathFrame>,
    too_big: TooBig,
}

/// The result of [`Direction::collect`], besides the packets.
pub(crate) struct Collected {
    /// The ICMP errors for packets that exceed the MTU.
    pub(crate) errors: Vec<Vec<u8>>,
    /// False if the batch is full: more packets may have left the path.
    pub(crate) is_drained: bool,
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

impl fmt::Debug for MemoryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPath").finish_non_exhaustive()
    }
}

impl MemoryPath {
    /// Creates the paths of both directions, each with the waker of the other end's driver.
    pub(crate) fn both(
        impairments: &[Impairments; 2],
        seed: u64,
    ) -> Result<[(Self, Arc<Waker>); 2], WireError> {
        let path = |nth: usize| -> Result<Self, WireError> {
            let waker = Waker::new().map_err(|error| WireError::Descriptor(error.into()))?;
            let direction = Direction {
                path: Path::new(&impairments[nth], seed.wrapping_mul(2).wrapping_add(nth as u64))?,
                too_big: TooBig::new(impairments[nth].mtu),
            };
            Ok(Self { direction: Arc::new(Mutex::new(direction)), waker: Arc::new(waker) })
        };
        let (first, second) = (path(0)?, path(1)?);
        let [wakes_first, wakes_second] = [&first, &second].map(|path| Arc::clone(&path.waker));
        Ok([(first, wakes_second), (second, wakes_first)])
    }

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
        self.waker.wake();
        Ok(())
    }

    /// Returns the counters of the path.
    pub fn stats(&self) -> Stats {
        self.lock().path.stats().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Direction> {
        self.direction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the waker of the end's driver.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns when the next packet is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.lock().path.poll_timeout()
    }
}

impl AsFd for MemoryPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Direction {
    /// Appends the packets that have left the path by `now` to `batch`, until it has `max`.
    pub(crate) fn collect(
        &mut self,
        batch: &mut Vec<WireFrame<PathFrame>>,
        max: usize,
        now: Instant,
    ) -> Collected {
        let Self { path, too_big } = self;
        if path.poll_timeout().is_some_and(|due| due <= now) {
            path.handle_timeout(now);
        }
        let mut errors = Vec::new();
        while batch.len() < max {
            match path.poll() {
                Some(Output::Released(Departure { packet, .. })) => batch.push(packet.into()),
                Some(Output::Dropped { packet, reason: DropReason::Mtu }) => {
                    errors.extend(too_big.answer(packet.as_ref(), now));
                }
                // The path counts the drop.
                Some(Output::Dropped { .. }) => {}
                None => return Collected { errors, is_drained: true },
            }
        }
        Collected { errors, is_drained: false }
    }
}
