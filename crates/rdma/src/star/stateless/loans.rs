//! The receives of a shared queue that a client holds.

use std::collections::VecDeque;

use crate::core::receive_queue::ReceiveSlot;

/// Maximum number of receives of a shared queue that one client holds.
pub(in crate::star) const MAX_LENT: usize = 16;

/// A receive that the client holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loan {
    pub(super) slot: ReceiveSlot,
    /// The number of its buffers.
    pub(super) buffers: usize,
    /// Their total length in bytes.
    pub(super) len: u32,
}

/// The receives of a shared queue that the client holds, oldest first.
#[derive(Debug, Default)]
pub(super) struct Loans {
    pub(super) held: VecDeque<Loan>,
    /// The client has requested all receives before this number.
    pub(super) wanted: u64,
    /// The queue pair is among the waiters of the shared queue.
    pub(super) is_waiting: bool,
    /// The event of the last receive was raised.
    pub(super) is_ended: bool,
}
