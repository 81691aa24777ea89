//! The context of requester and responder: the queue pair and the device's objects.

use crate::core::queue_pair::QueuePair;
use crate::core::verbs::Verbs;

/// The queue pair and the objects it uses.
pub(super) struct Context<'a, M> {
    pub(super) qp: &'a mut QueuePair,
    pub(super) verbs: &'a mut Verbs<M>,
}
