//! A connection: both of its ends.

use std::collections::VecDeque;

use nichrome_wire::Instant;

use super::elements::Elements;
use super::exchange::Exchange;
use super::packet::Side;
use super::stream::Stream;

/// A connection and the operation that it carries. Pairs are those of the client and the server.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) nodes: [u32; 2],
    /// The numbers of its contexts at their cards; `None` where there is none.
    pub(super) contexts: [Option<u32>; 2],
    pub(super) state: State,
    /// Whether an operation is under way, when it came, and those that came since.
    pub(super) is_busy: bool,
    pub(super) started: Instant,
    pub(super) waiting: VecDeque<Instant>,
    /// Whether its card knows that it has something to send.
    pub(super) is_queued: [bool; 2],
    /// Whether a timeout is scheduled, and when it last sent or heard something.
    pub(super) has_timer: [bool; 2],
    pub(super) active: [Instant; 2],
}

/// What its transport knows.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// A stream for each side that sends.
    Reliable([Stream; 2]),
    /// StaR. All but `work`'s sender and `completions`' receiver, the server's driver, is the client's.
    Stateless {
        /// Data for the server (RDP, RA).
        out: Exchange,
        /// Data of the server (GD, SDP).
        back: Exchange,
        /// WQEPs.
        work: Elements,
        /// CQEPs.
        completions: Elements,
    },
    /// Nothing.
    Datagram,
}

impl Connection {
    /// Whether this side has a packet of data to send now.
    pub(super) fn can_send(&self, side: Side) -> bool {
        match &self.state {
            State::Reliable(streams) => streams[side as usize].can_send(),
            State::Stateless { out, back, .. } => side == Side::Client && (out.can_send() || back.can_send()),
            State::Datagram => false,
        }
    }

    /// Whether this side waits for an answer.
    pub(super) fn is_under_way(&self, side: Side) -> bool {
        match (&self.state, side) {
            (State::Reliable(streams), _) => streams[side as usize].is_under_way(),
            (State::Stateless { out, back, completions, .. }, Side::Client) => {
                out.is_under_way() || back.is_under_way() || !completions.unacknowledged().is_empty()
            }
            (State::Stateless { work, .. }, Side::Server) => !work.unacknowledged().is_empty(),
            (State::Datagram, _) => false,
        }
    }
}
