//! Chunks that the egress module has blocked: they wait for a retry, while the other chunks of the connection
//! leave.

use nichrome_wire::Instant;

use crate::star::flight::{ChunkId, Initiator};
use crate::star::pipeline::Transfer;

/// Nanoseconds before a packet that the egress module blocked is retried.
const RETRY_INTERVAL: u64 = 1_000_000;

/// The chunks of a connection that the egress module has blocked since the last retry.
#[derive(Debug, Default)]
pub(super) struct EgressWait {
    /// Deadline of the retry, if chunks wait.
    retry: Option<Instant>,
    /// By initiator, whether its next new chunk waits.
    new: [bool; 2],
    /// In the order in which they were blocked.
    retransmissions: Vec<(Transfer, ChunkId)>,
}

impl EgressWait {
    pub(super) fn due(&self) -> Option<Instant> {
        self.retry
    }

    /// Returns true if the initiator's next new chunk waits.
    pub(super) fn has_new(&self, initiator: Initiator) -> bool {
        self.new[initiator as usize]
    }

    pub(super) fn add_new(&mut self, initiator: Initiator, now: Instant) {
        self.new[initiator as usize] = true;
        self.start(now);
    }

    pub(super) fn add_retransmission(&mut self, transfer: Transfer, chunk_id: ChunkId, now: Instant) {
        self.retransmissions.push((transfer, chunk_id));
        self.start(now);
    }

    /// Ends the wait; returns the retransmissions.
    pub(super) fn end(&mut self) -> Vec<(Transfer, ChunkId)> {
        std::mem::take(self).retransmissions
    }

    /// Drops all chunks.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn start(&mut self, now: Instant) {
        self.retry.get_or_insert(now.plus_nanos(RETRY_INTERVAL));
    }
}
