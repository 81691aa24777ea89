//! The terms of set-up: offers, admissions, refusals and errors.

use std::net::IpAddr;

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::{PathMtu, QpNumber};
use nichrome_wire::star::{Epoch, Lease, Registration, Stamp};
use thiserror::Error;

use crate::core::access::Access;
use crate::star::tag::ConnectionKey;

/// The version of the set-up protocol.
pub(super) const VERSION: u8 = 2;

/// Most regions in the memory table of an admission. Elements register further ones.
pub const MAX_REGIONS: usize = 1 << 16;

/// The side that a program or user wants to be stateless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Wish {
    /// As the peer wants, else a side without room (section 3.3 of the paper, auto adaption).
    #[default]
    Automatic = 0,
    /// This side.
    Own = 1,
    /// The peer.
    Peers = 2,
}

impl Wish {
    pub(super) fn new(code: u8) -> Option<Self> {
        [Self::Automatic, Self::Own, Self::Peers].into_iter().find(|wish| *wish as u8 == code)
    }
}

/// Whether a card can keep the state of another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// The connection budget has room.
    Free,
    /// The connection budget is used up.
    Full,
}

/// The receive queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receives {
    /// Its own.
    Own,
    /// A shared receive queue, which a stateless side cannot announce to one client.
    Shared,
}

/// The sizes of a side's queues, in requests.
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
    /// Retries after a timeout, 0 to 7.
    pub retry_count: u8,
    /// Retries without a receive, 0 to 6; 7 for no limit.
    pub rnr_retry: u8,
    /// The RNR timer: a code of 5 bits.
    pub min_rnr_timer: u8,
}

impl Timers {
    pub(super) fn checked(self) -> Option<Self> {
        let valid =
            self.timeout < 32 && self.retry_count < 8 && self.rnr_retry < 8 && self.min_rnr_timer < 32;
        valid.then_some(self)
    }
}

/// A side's properties, sent to the peer at the start of set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The side that it wants to be stateless.
    pub wish: Wish,
    /// Whether it can be stateful.
    pub room: Room,
    /// Whether it can be stateless.
    pub receives: Receives,
    /// Its queue pair number, which is its number for the connection.
    pub connection: QpNumber,
    /// The peer's queue pair number, if known.
    pub peer_connection: Option<QpNumber>,
    /// The address of its packets.
    pub address: IpAddr,
    /// The path MTU.
    pub path_mtu: PathMtu,
    /// The peer's rights through its queue pair.
    pub access: Access,
    /// The sequence number of its first element, chosen at random.
    pub first_element: SeqNumber,
    /// The sizes of its queues.
    pub depth: QueueDepth,
    /// Its timers.
    pub timers: Timers,
}

/// The stateless side's parameters for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The epoch of its card.
    pub epoch: Epoch,
    /// The time of its clock.
    pub clock: Stamp,
    /// The keys, if its card requires authentication.
    pub credentials: Option<Credentials>,
    /// The memory regions that the client may reach. Elements announce later changes.
    pub regions: Vec<Registration>,
}

/// A client's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The key of the connection.
    pub key: ConnectionKey,
    /// The first lease and its key.
    pub lease: (Lease, ConnectionKey),
}

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// This side.
    Ours,
    /// The peer.
    Theirs,
}

/// The result of two offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// Both sides keep state: a reliable connection over RoCE.
    Roce,
    /// StaR.
    Star {
        /// The stateless side.
        stateless: Side,
    },
}

/// A side's reason for refusing the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// No memory or table entry is left.
    Resources = 1,
    /// The queue pair does not exist or is in the wrong state.
    Connection = 2,
    /// The adapter is closing.
    Shutdown = 3,
}

impl Refusal {
    pub(super) fn new(code: u8) -> Option<Self> {
        [Self::Resources, Self::Connection, Self::Shutdown].into_iter().find(|why| *why as u8 == code)
    }
}

/// The error that ended set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// Bytes that are no message of set-up.
    #[error("the peer does not use StaR's set-up protocol")]
    Garbage,
    /// The peer's version is another.
    #[error("the peer uses version {0} of StaR's set-up, this side version {VERSION}")]
    Version(u8),
    /// The stream ended before set-up was complete.
    #[error("the peer closed the stream before StaR's set-up was complete")]
    Truncated,
    /// A message in the wrong state.
    #[error("the peer sent an unexpected message of StaR's set-up")]
    OutOfTurn,
    /// Both sides want to be stateless: none would keep the state.
    #[error("both sides want to be stateless: one of them must keep the state")]
    BothStateless,
    /// Each side wants the other to be stateless.
    #[error("each side wants the other to be stateless: one of them must be stateless itself")]
    BothStateful,
    /// The connection budget of the side that would be stateful is used up.
    #[error("the connection budget of {} is used up", owner(*.0))]
    NoRoom(Side),
    /// More regions than an admission holds.
    #[error("{0} regions are registered, more than the {MAX_REGIONS} of an admission")]
    TooManyRegions(usize),
    /// One side refused the connection.
    #[error("the connection was refused: {}", describe(*.0))]
    Refused(Refusal),
}

fn owner(side: Side) -> &'static str {
    match side {
        Side::Ours => "this side",
        Side::Theirs => "the peer",
    }
}

fn describe(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Resources => "no memory or table entry is left",
        Refusal::Connection => "there is no such queue pair",
        Refusal::Shutdown => "the adapter is closing",
    }
}
