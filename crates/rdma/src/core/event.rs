//! Events: completion events and asynchronous events.

use super::slab::Handle;
use crate::core::kind;

/// An event for a completion channel, or an asynchronous event of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An armed completion queue received a matching completion.
    Completion(Handle<kind::Cq>),
    /// A completion queue overflowed; later completions are dropped.
    CqError(Handle<kind::Cq>),
    /// A queue pair moved to ERROR on CQ overrun.
    QpFatal(Handle<kind::Qp>),
    /// A queue pair moved to ERROR on an invalid request of the peer.
    QpRequestError(Handle<kind::Qp>),
    /// A queue pair moved to ERROR on a request of the peer without access to memory.
    QpAccessError(Handle<kind::Qp>),
    /// The first packet arrived in state RTR.
    Established(Handle<kind::Qp>),
    /// A draining send queue has no request outstanding.
    SendQueueDrained(Handle<kind::Qp>),
    /// A queue pair in ERROR takes no further receives from its shared receive queue.
    LastReceiveReached(Handle<kind::Qp>),
    /// A shared receive queue holds fewer receives than its limit.
    SrqLimit(Handle<kind::Srq>),
}
