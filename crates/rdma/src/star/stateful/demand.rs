//! How many receives of a shared queue the client's requests need.

use nichrome_wire::SeqNumber;

use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::SendWork;
use crate::core::work::Operation;

/// The receives that the client's requests need, counted from the beginning of the connection.
#[derive(Debug)]
pub(super) struct ReceiveDemand {
    /// Requests posted that consume a receive.
    pub(super) needed: u64,
    /// Receives that were requested from the server.
    pub(super) requested: u64,
    /// The last CQEP that requests receives, until it is acknowledged. Only one is outstanding at a time.
    pub(super) request: Option<SeqNumber>,
}

impl ReceiveDemand {
    /// Counts the requests that were posted before the connection.
    pub(super) fn new(qp: &QueuePair) -> Self {
        let posted = (0..qp.sends.len()).filter_map(|index| qp.sends.get(index));
        let needed = posted.filter(|work| uses_receive(&work.operation)).count() as u64;
        Self { needed, requested: 0, request: None }
    }

    /// Counts a request that is posted.
    pub(super) fn posted(&mut self, work: &SendWork) {
        self.needed += u64::from(uses_receive(&work.operation));
    }
}

/// Returns true if the operation consumes a receive of the peer.
pub(super) fn uses_receive(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Send
            | Operation::SendWithImmediate(_)
            | Operation::SendWithInvalidate(_)
            | Operation::WriteWithImmediate(..)
    )
}
