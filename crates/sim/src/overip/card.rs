//! The card: its bus to host memory, and a processor that handles every frame and message.

use nichrome_wire::Instant;

use super::config::CardConfig;
use crate::{Pcie, Server};

/// Length of the shortest Ethernet frame, without frame check sequence.
const SHORTEST: usize = 60;

/// A card. `now` must not decrease.
#[derive(Clone, Debug)]
pub(super) struct Card {
    config: CardConfig,
    bus: Pcie,
    processor: Server,
}

impl Card {
    pub(super) fn new(config: CardConfig) -> Self {
        // TCP's windows bound the queue.
        Self { config, bus: Pcie::new(config.bus), processor: Server::new(usize::MAX) }
    }

    /// Reads a frame's payload from host memory; returns when it has arrived. Frames without payload are
    /// built on the card.
    pub(super) fn fetch(&mut self, bytes: usize, now: Instant) -> Instant {
        if bytes <= SHORTEST { now } else { self.bus.read(bytes as u64, now) }
    }

    /// Reads a work request.
    pub(super) fn fetch_request(&mut self, now: Instant) -> Instant {
        self.bus.read(self.config.descriptor, now)
    }

    /// Writes to host memory; returns when the write completes.
    pub(super) fn place(&mut self, bytes: usize, now: Instant) -> Instant {
        if bytes == 0 { now } else { self.bus.write(bytes as u64, now) }
    }

    /// Processes a frame; returns when done.
    pub(super) fn frame(&mut self, now: Instant) -> Instant {
        self.work(self.config.segment, now)
    }

    /// Processes messages; returns when done.
    pub(super) fn messages(&mut self, messages: u64, now: Instant) -> Instant {
        if messages == 0 { now } else { self.work(messages * self.config.message, now) }
    }

    fn work(&mut self, nanos: u64, now: Instant) -> Instant {
        // The queue is unbounded: no job is rejected.
        self.processor.serve(nanos, now).unwrap_or(now)
    }
}

/// Pads a frame to the minimum length.
pub(super) fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.len() < SHORTEST {
        frame.resize(SHORTEST, 0);
    }
    frame
}
