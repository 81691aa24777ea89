//! What the sides of a connection tell each other in set-up: offers, admissions, refusals.

use std::net::IpAddr;

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::{PathMtu, QpNumber};
use nichrome_wire::star::{Epoch, Registration, Stamp};
use thiserror::Error;

use crate::core::access::Access;
use crate::star::tag::ConnectionKey;

/// The version of set-up that is spoken.
pub(super) const VERSION: u8 = 1;

/// Regions in a memory table at most; others are registered when the connection stands.
pub const MAX_REGIONS: usize = 1 << 16;

/// Which side a program or user wants to be stateless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Wish {
    /// Whichever the other side wants, or has no room (section 3.3 of the paper, auto adaption).
    #[default]
    Automatic = 0,
    /// This one.
    Own = 1,
    /// The other.
    Peers = 2,
}

impl Wish {
    pub(super) fn new(code: u8) -> Option<Self> {
        [Self::Automatic, Self::Own, Self::Peers].into_iter().find(|wish| *wish as u8 == code)
    }
}

/// Whether a card can keep the state of one connection more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// It can.
    Free,
    /// Its budget is used up.
    Full,
}

/// Where a queue pair has its receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receives {
    /// In a queue of its own.
    Own,
    /// In a shared receive queue: they cannot be handed to one client.
    Shared,
}

/// How many requests a side's queues hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueDepth {
    /// The send queue.
    pub sends: u32,
    /// The receive queue.
    pub receives: u32,
}

/// The timers of a queue pair, in the units of the verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timers {
    /// 4.096 µs · 2ⁿ for 1 to 31, none for 0.
    pub timeout: u8,
    /// Repetitions, 0 to 7.
    pub retry_count: u8,
    /// Repetitions where there is no receive, 0 to 6; 7 for ever.
    pub rnr_retry: u8,
    /// How long to wait for a receive: a code of 5 bits.
    pub min_rnr_timer: u8,
}

impl Timers {
    pub(super) fn checked(self) -> Option<Self> {
        let valid =
            self.timeout < 32 && self.retry_count < 8 && self.rnr_retry < 8 && self.min_rnr_timer < 32;
        valid.then_some(self)
    }
}

/// What a side tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Who is to be stateless.
    pub wish: Wish,
    /// Whether this side could be stateful.
    pub room: Room,
    /// Whether it could be stateless.
    pub receives: Receives,
    /// Its number of the connection: that of its queue pair.
    pub connection: QpNumber,
    /// The queue pair of the other side that it wants to be connected with, if it knows.
    pub peer_connection: Option<QpNumber>,
    /// Where its packets come from and go to.
    pub address: IpAddr,
    /// The largest payload that fits the packets of its way.
    pub path_mtu: PathMtu,
    /// What the other side may do through this queue pair.
    pub access: Access,
    /// The sequence number of its first element, best chosen at random.
    pub first_element: SeqNumber,
    /// The sizes of its queues.
    pub depth: QueueDepth,
    /// Its timers.
    pub timers: Timers,
}

/// What the stateless side hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Its start.
    pub epoch: Epoch,
    /// Its name for the protection domain of the connection.
    pub domain: u32,
    /// What packets are authenticated by, if they are.
    pub credentials: Option<Credentials>,
    /// The memory of the domain; what changes later is told by elements.
    pub regions: Vec<Registration>,
}

/// What a client authenticates its packets by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The key of the connection.
    pub key: ConnectionKey,
    /// What the server's clock shows now.
    pub clock: Stamp,
    /// How far a stamp may be from the server's clock.
    pub lifetime_ms: u32,
}

/// Which of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// This one.
    Ours,
    /// The other.
    Theirs,
}

/// What two sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// Both keep state: a reliable connection over RoCE.
    Roce,
    /// One side is stateless.
    Star {
        /// It is this one.
        stateless: Side,
    },
}

/// Why a side ends set-up although the roles are clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// It has no memory or table entry left.
    Resources = 1,
    /// It has no such queue pair, or not in a state to be connected.
    Connection = 2,
    /// It is ending.
    Shutdown = 3,
}

impl Refusal {
    pub(super) fn new(code: u8) -> Option<Self> {
        [Self::Resources, Self::Connection, Self::Shutdown].into_iter().find(|why| *why as u8 == code)
    }
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// The other side does not speak this protocol, or not rightly.
    #[error("the peer does not speak StaR's set-up")]
    Garbage,
    /// The other side speaks another version.
    #[error("the peer speaks version {0} of StaR's set-up where {VERSION} is spoken here")]
    Version(u8),
    /// The stream ended before set-up did.
    #[error("the peer has ended StaR's set-up in the middle")]
    Truncated,
    /// A message that does not fit here.
    #[error("the peer has sent a message of StaR's set-up out of turn")]
    OutOfTurn,
    /// Both sides are to be stateless: nobody would keep the state.
    #[error("both sides want to be stateless: one of them must keep the state")]
    BothStateless,
    /// Each side wants the other to be stateless.
    #[error("each side wants the other to be stateless: one of them must want it itself")]
    BothStateful,
    /// The side that would be stateful has used up its connection budget.
    #[error("the connection budget of {} is used up", owner(*.0))]
    NoRoom(Side),
    /// The side that would be stateless shares its receives.
    #[error("{} uses a shared receive queue and so cannot be stateless", owner(*.0))]
    SharedReceives(Side),
    /// More regions than a memory table holds.
    #[error("{0} regions are registered where a memory table holds {MAX_REGIONS}")]
    TooManyRegions(usize),
    /// One side has refused.
    #[error("the connection was refused: {}", words(*.0))]
    Refused(Refusal),
}

fn owner(side: Side) -> &'static str {
    match side {
        Side::Ours => "this side",
        Side::Theirs => "the peer",
    }
}

fn words(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Resources => "no memory or table entry is left",
        Refusal::Connection => "there is no such queue pair",
        Refusal::Shutdown => "the adapter is closing",
    }
}
