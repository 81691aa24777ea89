//! Counters of the manager.

/// Numbers of messages by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received.
    pub received: u64,
    /// Messages sent, retransmissions included.
    pub sent: u64,
    /// Retransmitted messages: not answered in time, or answers to a message that the peer retransmitted.
    pub retransmitted: u64,
    /// Received: not a message of the connection manager.
    pub malformed: u64,
    /// Received: retransmissions of answered messages.
    pub duplicates: u64,
    /// Received: messages that name no connection with this peer, or that its state does not expect.
    pub unexpected: u64,
    /// Requests dropped: too many half-open connections, of this source or in total.
    pub half_open_dropped: u64,
    /// Requests dropped: the listener's backlog is full. Those that gave way to other sources' are included.
    pub backlog_dropped: u64,
    /// Requests dropped: no identifier is free.
    pub identifiers_exhausted: u64,
    /// Requests held because a program may listen at their port soon, repetitions included.
    pub held: u64,
    /// Requests that were rejected by the manager, not by the program.
    pub refused: u64,
    /// Connections removed before their last messages were answered, because too many waited for that.
    pub lingering_evicted: u64,
}
