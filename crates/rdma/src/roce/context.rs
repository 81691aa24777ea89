//! The context of requester and responder: the queue pair, RoCE's shared state and the device's objects.

use super::shared::RoceShared;
use crate::core::queue_pair::QueuePair;
use crate::core::verbs::Verbs;

/// The queue pair, RoCE's shared state and the device's objects, for the two halves of the queue pair.
pub(super) struct Context<'a, M> {
    pub(super) qp: &'a mut QueuePair,
    pub(super) shared: &'a mut RoceShared,
    pub(super) verbs: &'a mut Verbs<M>,
}
