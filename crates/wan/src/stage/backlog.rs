//! The bottleneck's queue.

use std::collections::VecDeque;

use nichrome_wire::Instant;

use crate::exits::Transit;
use crate::{Packet, QueueLimit};

/// A queued packet.
pub(super) struct Waiting<P> {
    pub(super) transit: Transit<P>,
    /// Arrival time in the queue.
    pub(super) since: Instant,
}

/// The queued packets and their total length.
pub(super) struct Backlog<P> {
    packets: VecDeque<Waiting<P>>,
    bytes: u64,
}

impl<P: Packet> Backlog<P> {
    pub(super) const fn new() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the queued bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has_room_for(&self, packet: &P, limit: QueueLimit) -> bool {
        limit.allows(self.packets.len() + 1, self.bytes + packet.wire_len() as u64)
    }

    pub(super) fn is_longer_than(&self, limit: QueueLimit) -> bool {
        !limit.allows(self.packets.len(), self.bytes)
    }

    pub(super) fn push(&mut self, transit: Transit<P>, since: Instant) {
        self.bytes += transit.packet.wire_len() as u64;
        self.packets.push_back(Waiting { transit, since });
    }

    pub(super) fn pop(&mut self) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.transit.packet.wire_len() as u64;
        Some(waiting)
    }
}
