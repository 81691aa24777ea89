//! What requester and responder work on.

use super::shared::RoceShared;
use crate::core::queue_pair::QueuePair;
use crate::core::verbs::Verbs;

/// What the two halves of a queue pair work on: the queue pair, what RoCE shares, and the objects of the device.
pub(super) struct Context<'a, M> {
    pub(super) qp: &'a mut QueuePair,
    pub(super) shared: &'a mut RoceShared,
    pub(super) verbs: &'a mut Verbs<M>,
}
