//! The card: the bus to the host's memory, and one processor that every frame and message passes.

use nichrome_wire::Instant;

use super::config::CardConfig;
use crate::{Pcie, Server};

/// The longest frame without payload: Ethernet's shortest.
const SHORTEST: usize = 60;

/// A card. `now` must not go backwards.
#[derive(Clone, Debug)]
pub(super) struct Card {
    config: CardConfig,
    bus: Pcie,
    processor: Server,
}

impl Card {
    pub(super) fn new(config: CardConfig) -> Self {
        // What waits is bounded by TCP's windows.
        Self { config, bus: Pcie::new(config.bus), processor: Server::new(usize::MAX) }
    }

    /// Reads a frame's payload from the host's memory; returns when it is here. What has none is made on the card.
    pub(super) fn fetch(&mut self, bytes: usize, now: Instant) -> Instant {
        if bytes <= SHORTEST { now } else { self.bus.read(bytes as u64, now) }
    }

    /// Reads a work request.
    pub(super) fn fetch_request(&mut self, now: Instant) -> Instant {
        self.bus.read(self.config.descriptor, now)
    }

    /// Writes to the host's memory; returns when it is there.
    pub(super) fn place(&mut self, bytes: usize, now: Instant) -> Instant {
        if bytes == 0 { now } else { self.bus.write(bytes as u64, now) }
    }

    /// Handles a frame.
    pub(super) fn frame(&mut self, now: Instant) -> Instant {
        self.work(self.config.segment, now)
    }

    /// Handles so many messages.
    pub(super) fn messages(&mut self, messages: u64, now: Instant) -> Instant {
        if messages == 0 { now } else { self.work(messages * self.config.message, now) }
    }

    fn work(&mut self, nanos: u64, now: Instant) -> Instant {
        // No job is refused.
        self.processor.serve(nanos, now).unwrap_or(now)
    }
}

/// Fills a frame up to Ethernet's shortest.
pub(super) fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.len() < SHORTEST {
        frame.resize(SHORTEST, 0);
    }
    frame
}
