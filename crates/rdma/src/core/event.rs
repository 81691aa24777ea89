//! What the program is told without asking.

use super::slab::Handle;
use crate::core::kind;

/// An event, for a completion channel or for the device's asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A completion queue that was armed got what it was armed for.
    Completion(Handle<kind::Cq>),
    /// A completion queue overflowed and takes no more.
    CqError(Handle<kind::Cq>),
    /// A queue pair went into error because its completions are lost.
    QpFatal(Handle<kind::Qp>),
    /// A queue pair went into error because of a request that its peer may not make.
    QpRequestError(Handle<kind::Qp>),
    /// A queue pair went into error because its peer reached for memory that it may not reach.
    QpAccessError(Handle<kind::Qp>),
    /// The first packet came in while the queue pair was not ready to send yet.
    Established(Handle<kind::Qp>),
    /// The send queue that was to be drained has nothing outstanding.
    SendQueueDrained(Handle<kind::Qp>),
    /// A queue pair in error takes no more from its shared receive queue.
    LastReceiveReached(Handle<kind::Qp>),
    /// A shared receive queue holds fewer receives than its limit.
    SrqLimit(Handle<kind::Srq>),
}
