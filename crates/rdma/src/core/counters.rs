//! Counters of a device: requests, packets, and drops by reason.

use crate::core::work::Operation;

/// Posted requests by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// SENDs of any kind.
    pub sends: u64,
    /// WRITEs of any kind.
    pub writes: u64,
    /// READs.
    pub reads: u64,
    /// Atomics and ATOMIC WRITEs.
    pub atomics: u64,
    /// FLUSHes.
    pub flushes: u64,
    /// Local invalidations and bindings of windows.
    pub local: u64,
    /// Receives, including those of shared receive queues.
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
            O::CompareSwap { .. } | O::FetchAdd { .. } | O::AtomicWrite(_) => &mut self.atomics,
            O::Flush { .. } => &mut self.flushes,
            O::LocalInvalidate(_) | O::BindWindow(_) => &mut self.local,
        };
        *count += 1;
    }
}

/// Counters since the device was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Posted requests.
    pub operations: Operations,
    /// Datagrams received, or FPDUs.
    pub received: u64,
    /// Datagrams sent, or FPDUs.
    pub sent: u64,
    /// Bytes of payload received in packets that were not dropped.
    pub bytes_received: u64,
    /// Bytes of payload sent, including retransmissions.
    pub bytes_sent: u64,
    /// Retransmitted request packets.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Probe timeouts, after a few round trips without a response: the oldest request is retransmitted. A
    /// peer whose process was not scheduled causes them without loss.
    pub probes: u64,
    /// Duplicate requests that were answered again.
    pub duplicates: u64,
    /// Requests with a PSN ahead of the expected one.
    pub out_of_sequence: u64,
    /// PSN sequence error NAKs sent.
    pub sequence_naks_sent: u64,
    /// PSN sequence error NAKs received.
    pub sequence_naks_received: u64,
    /// RNR NAKs sent.
    pub rnr_naks_sent: u64,
    /// RNR NAKs received.
    pub rnr_naks_received: u64,
    /// Requests answered with a fatal NAK, and on iWARP segments that access memory without right.
    pub refused: u64,
    /// TERMINATE messages sent.
    pub terminates_sent: u64,
    /// TERMINATE messages received.
    pub terminates_received: u64,
    /// Completions in error.
    pub completions_in_error: u64,
    /// Packets received with the ECN mark CE.
    pub congestion_marks: u64,
    /// CNPs sent.
    pub congestion_notifications_sent: u64,
    /// CNPs received.
    pub congestion_notifications_received: u64,
    /// Dropped: malformed. On iWARP no segment, or one with a wrong length or marker.
    pub dropped_malformed: u64,
    /// Dropped: unknown queue pair, wrong transport service, or not from the peer's address.
    pub dropped_unknown: u64,
    /// Dropped: wrong P_Key or Q_Key.
    pub dropped_key: u64,
    /// Dropped: wrong ICRC, or CRC of an FPDU.
    pub dropped_icrc: u64,
    /// Dropped: not accepted in the queue pair's state, or on iWARP at its place in the stream.
    pub dropped_state: u64,
    /// Dropped: a response without an outstanding request.
    pub dropped_stale: u64,
    /// Dropped: the stateless card's queue of packets to send, or a queue of queue pair 1, is full.
    pub dropped_full: u64,
    /// Dropped: part of an unreliable message that cannot be received completely.
    pub dropped_unreliable: u64,
}
