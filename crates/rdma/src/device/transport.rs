//! A queue pair on its transport: what the device does with either, whichever it is.

use nichrome_wire::Instant;
use nichrome_wire::rdma::Psn;

use crate::config::Config;
use crate::core::memory::Memory;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::qp::QueuePair;
use crate::qp::attributes::{QpChange, QpState};
use crate::roce::connection::Connection;
use crate::star::driver::Driver;
use crate::star::stateful::Stateful;

/// A queue pair with the state of its transport.
pub(super) enum Transport {
    Roce(Box<Connection>),
    /// StaR, and the state is kept here.
    Stateful(Box<Stateful>),
    /// StaR, and the state is kept by the peer.
    Stateless(Box<Driver>),
}

impl Transport {
    pub(super) fn new(qp: QueuePair, config: &Config) -> Self {
        Self::Roce(Box::new(Connection::new(qp, config)))
    }

    #[inline]
    pub(super) fn qp(&self) -> &QueuePair {
        match self {
            Self::Roce(connection) => &connection.qp,
            Self::Stateful(client) => &client.qp,
            Self::Stateless(driver) => &driver.qp,
        }
    }

    #[inline]
    pub(super) fn qp_mut(&mut self) -> &mut QueuePair {
        match self {
            Self::Roce(connection) => &mut connection.qp,
            Self::Stateful(client) => &mut client.qp,
            Self::Stateless(driver) => &mut driver.qp,
        }
    }

    /// Adds a request whose form has been checked.
    #[inline]
    pub(super) fn push_send<M: Memory>(&mut self, work: SendWork, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.push_send(work, verbs),
            Self::Stateful(client) => client.push_send(work, verbs),
            Self::Stateless(driver) => driver.push_send(work, verbs),
        }
    }

    /// Takes over the packet numbers that a change sets.
    pub(super) fn set_numbers(&mut self, change: &QpChange) {
        match self {
            Self::Roce(connection) => {
                change.rq_psn.into_iter().for_each(|psn| connection.receive_from(psn));
                change.sq_psn.into_iter().for_each(|psn| connection.send_from(psn));
            }
            Self::Stateful(_) | Self::Stateless(_) => {}
        }
    }

    /// The packet numbers that are expected and sent next.
    pub(super) fn numbers(&self) -> (Psn, Psn) {
        match self {
            Self::Roce(connection) => (connection.responder.expected, connection.requester.next),
            Self::Stateful(_) | Self::Stateless(_) => (Psn::new(0), Psn::new(0)),
        }
    }

    /// What waits for the program's answer is acknowledged now.
    pub(super) fn acknowledge(&mut self) {
        match self {
            Self::Roce(connection) => connection.responder.conversation.release(),
            Self::Stateful(_) | Self::Stateless(_) => {}
        }
    }

    /// The peer is to be told once more what has arrived.
    pub(super) fn acknowledge_again(&mut self) {
        match self {
            Self::Roce(connection) => connection.acknowledge_again(),
            Self::Stateful(client) => client.tell_again(),
            Self::Stateless(driver) => driver.tell_again(),
        }
    }

    /// All that waits is flushed.
    pub(super) fn enter_error<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.enter_error(verbs),
            Self::Stateful(client) => client.enter_error(verbs),
            Self::Stateless(driver) => driver.enter_error(verbs),
        }
    }

    /// Begins to drain the send queue.
    pub(super) fn drain<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.drain(verbs),
            Self::Stateful(client) => client.drain(verbs),
            Self::Stateless(driver) => driver.drain(verbs),
        }
    }

    /// Whether requests are outstanding although the send queue drains.
    pub(super) fn is_draining(&self) -> bool {
        match self {
            Self::Roce(connection) => connection.is_draining(),
            Self::Stateful(client) => client.is_draining(),
            Self::Stateless(driver) => driver.is_draining(),
        }
    }

    /// The send queue goes on after it was drained.
    pub(super) fn resume(&mut self) {
        match self {
            Self::Roce(connection) => connection.resume(),
            Self::Stateful(client) => client.resume(),
            Self::Stateless(driver) => driver.resume(),
        }
    }

    /// Forgets everything that waits, and gives back the queue pair.
    pub(super) fn dissolve<M: Memory>(self, verbs: &mut Verbs<M>) -> QueuePair {
        let mut qp = match self {
            Self::Roce(mut connection) => {
                connection.drop_answers(verbs);
                connection.qp
            }
            Self::Stateful(client) => client.dissolve(verbs),
            Self::Stateless(driver) => driver.qp,
        };
        qp.clear(verbs);
        qp
    }

    /// Completions are lost: the program cannot know any more how its requests ended.
    pub(super) fn lost_completions<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.lost_completions(verbs),
            Self::Stateful(client) => client.lost_completions(verbs),
            Self::Stateless(driver) => driver.lost_completions(verbs),
        }
    }

    /// Bytes of the connection's state that a card would hold.
    pub(super) fn state_bytes(&self) -> usize {
        match self {
            Self::Roce(_) => size_of::<Connection>(),
            Self::Stateful(_) => size_of::<Stateful>(),
            Self::Stateless(_) => 0,
        }
    }

    /// Whether there may be something to send.
    #[inline]
    pub(super) fn has_work(&self, now: Instant) -> bool {
        match self {
            Self::Roce(connection) => connection.has_work(now),
            Self::Stateful(client) => client.has_work(),
            Self::Stateless(driver) => driver.has_work(),
        }
    }

    /// When time alone changes something.
    #[inline]
    pub(super) fn next_timeout(&self, config: &Config, now: Instant) -> Option<Instant> {
        match self {
            Self::Roce(connection) => connection.next_timeout(now),
            Self::Stateful(client) => client.next_timeout(config, now),
            Self::Stateless(driver) => driver.next_timeout(),
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout<M: Memory>(&mut self, config: &Config, verbs: &mut Verbs<M>) {
        match self {
            Self::Roce(connection) => connection.handle_timeout(verbs),
            Self::Stateful(client) => client.handle_timeout(config, verbs),
            Self::Stateless(driver) => driver.handle_timeout(verbs),
        }
    }

    /// A receive was posted.
    #[inline]
    pub(super) fn receive_posted<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let is_done = match self {
            Self::Roce(_) | Self::Stateful(_) => true,
            Self::Stateless(driver) => driver.is_closed(),
        };
        let qp = self.qp_mut();
        if qp.state == QpState::Err && is_done {
            qp.flush(verbs);
        }
    }

    /// Whether a posted receive may let something be sent.
    #[inline]
    pub(super) fn waits_for_receives(&self) -> bool {
        !matches!(self, Self::Roce(_))
    }
}
