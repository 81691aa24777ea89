//! A queue pair on its transport: what the device does with either, whichever it is.

use nichrome_wire::Instant;
use nichrome_wire::rdma::Psn;

use crate::config::Config;
use crate::core::memory::Memory;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::qp::QueuePair;
use crate::qp::attributes::QpChange;
use crate::roce::connection::Connection;

/// A queue pair with the state of its transport.
pub(super) enum Transport {
    Roce(Box<Connection>),
}

impl Transport {
    pub(super) fn new(qp: QueuePair, config: &Config) -> Self {
        Self::Roce(Box::new(Connection::new(qp, config)))
    }

    #[inline]
    pub(super) fn qp(&self) -> &QueuePair {
        match self {
            Self::Roce(connection) => &connection.qp,
        }
    }

    #[inline]
    pub(super) fn qp_mut(&mut self) -> &mut QueuePair {
        match self {
            Self::Roce(connection) => &mut connection.qp,
        }
    }

    /// Adds a request whose form has been checked.
    #[inline]
    pub(super) fn push_send<M: Memory>(&mut self, work: SendWork, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.push_send(work, verbs),
        }
    }

    /// Takes over the packet numbers that a change sets.
    pub(super) fn set_numbers(&mut self, change: &QpChange) {
        match self {
            Self::Roce(connection) => {
                change.rq_psn.into_iter().for_each(|psn| connection.receive_from(psn));
                change.sq_psn.into_iter().for_each(|psn| connection.send_from(psn));
            }
        }
    }

    /// The packet numbers that are expected and sent next.
    pub(super) fn numbers(&self) -> (Psn, Psn) {
        match self {
            Self::Roce(connection) => (connection.responder.expected, connection.requester.next),
        }
    }

    /// As new.
    pub(super) fn reset<M: Memory>(&mut self, config: &Config, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.reset(config, verbs),
        }
    }

    /// What waits for the program's answer is acknowledged now.
    pub(super) fn acknowledge(&mut self) {
        match self {
            Self::Roce(connection) => connection.responder.conversation.release(),
        }
    }

    /// The peer is to be told once more what has arrived.
    pub(super) fn acknowledge_again(&mut self) {
        match self {
            Self::Roce(connection) => connection.acknowledge_again(),
        }
    }

    /// All that waits is flushed.
    pub(super) fn enter_error<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.enter_error(verbs),
        }
    }

    /// Begins to drain the send queue.
    pub(super) fn drain<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.drain(verbs),
        }
    }

    /// Whether requests are outstanding although the send queue drains.
    pub(super) fn is_draining(&self) -> bool {
        match self {
            Self::Roce(connection) => connection.is_draining(),
        }
    }

    /// The send queue goes on after it was drained.
    pub(super) fn resume(&mut self) {
        match self {
            Self::Roce(connection) => connection.resume(),
        }
    }

    /// Forgets everything that waits, before it is destroyed.
    pub(super) fn clear<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => {
                connection.qp.clear(verbs);
                connection.drop_answers(verbs);
            }
        }
    }

    /// Completions are lost: the program cannot know any more how its requests ended.
    pub(super) fn lost_completions<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.lost_completions(verbs),
        }
    }

    /// Whether there may be something to send.
    #[inline]
    pub(super) fn has_work(&self, now: Instant) -> bool {
        match self {
            Self::Roce(connection) => connection.has_work(now),
        }
    }

    /// When time alone changes something.
    #[inline]
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Roce(connection) => connection.next_timeout(now),
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.handle_timeout(verbs),
        }
    }
}
