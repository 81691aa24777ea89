//! What a device has done, and why it dropped what it dropped.

use crate::core::work::Operation;

/// Requests that were posted, by what they ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// SENDs of any kind.
    pub sends: u64,
    /// WRITEs of any kind.
    pub writes: u64,
    /// READs.
    pub reads: u64,
    /// Atomics.
    pub atomics: u64,
    /// Local invalidations and bindings of windows.
    pub local: u64,
    /// Receives, also to shared queues.
    pub receives: u64,
}

impl Operations {
    #[inline]
    pub(crate) fn posted(&mut self, operation: &Operation) {
        use Operation as O;
        let count = match operation {
            O::Send | O::SendWithImmediate(_) | O::SendWithInvalidate(_) => &mut self.sends,
            O::Write(_) | O::WriteWithImmediate(..) => &mut self.writes,
            O::Read(_) => &mut self.reads,
            O::CompareSwap { .. } | O::FetchAdd { .. } => &mut self.atomics,
            O::LocalInvalidate(_) | O::BindWindow(_) => &mut self.local,
        };
        *count += 1;
    }
}

/// Counts since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were posted.
    pub operations: Operations,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of payload received in packets that were taken.
    pub bytes_received: u64,
    /// Bytes of payload sent, repetitions included.
    pub bytes_sent: u64,
    /// Requests sent again.
    pub retransmitted: u64,
    /// Times that no answer came.
    pub timeouts: u64,
    /// Times that a few round trips passed without an answer: the oldest request is sent again, unless its answer comes
    /// just then. Where the peer had no processor this is no loss.
    pub probes: u64,
    /// Requests that came again and were answered again.
    pub duplicates: u64,
    /// Requests ahead of what was expected.
    pub out_of_sequence: u64,
    /// Negative acknowledgements sent for a gap.
    pub sequence_naks_sent: u64,
    /// Negative acknowledgements received for a gap.
    pub sequence_naks_received: u64,
    /// Times that no receive was posted.
    pub rnr_naks_sent: u64,
    /// Times that the peer had no receive posted.
    pub rnr_naks_received: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Completions in error.
    pub completions_in_error: u64,
    /// Packets that arrived with a congestion mark.
    pub congestion_marks: u64,
    /// Congestion notifications sent.
    pub congestion_notifications_sent: u64,
    /// Congestion notifications received.
    pub congestion_notifications_received: u64,
    /// Dropped: not a packet of the protocol.
    pub dropped_malformed: u64,
    /// Dropped: no such queue pair, or of another service, or from another address than its peer's.
    pub dropped_unknown: u64,
    /// Dropped: wrong partition or queue key.
    pub dropped_key: u64,
    /// Dropped: wrong invariant CRC.
    pub dropped_icrc: u64,
    /// Dropped: the queue pair's state does not take it.
    pub dropped_state: u64,
    /// Dropped: an answer to nothing that is outstanding.
    pub dropped_stale: u64,
    /// Dropped: too many packets wait for the answer of the stateless card.
    pub dropped_full: u64,
    /// Dropped: a part of an unreliable message that cannot be received whole.
    pub dropped_unreliable: u64,
}
