//! Set-up: two sides of a connection agree over a byte stream which of them is stateless, and the stateless one hands
//! over what the other must know. No I/O: a driver carries the bytes, over TCP or whatever it trusts.
//!
//! ```text
//! both       OFFER ────►  ◄──── OFFER       roles follow from the two: each side computes them
//! stateless  ADMISSION ────►                start, domain, key, memory table
//! stateful   ◄──── READY                    or REFUSAL, which either may send in place of its next message
//! ```
//!
//! | wishes | the stateless side |
//! |---|---|
//! | one `Own`, the other not | that one |
//! | one `Peers`, the other `Automatic` | the other |
//! | both `Automatic` | the one without room for state; with room on both sides there is none, and the connection is RoCE |
//! | both `Own`, or both `Peers` | an error |
//!
//! The stateful side must have room, and the stateless side receives of its own.

mod message;

use std::net::IpAddr;

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::{PathMtu, QpNumber};
use nichrome_wire::star::{Epoch, Registration, Stamp};
use thiserror::Error;

use self::message::{SetupMessage, VERSION, read, write};
use super::tag::ConnectionKey;
use crate::core::access::Access;

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
    fn new(code: u8) -> Option<Self> {
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
    fn checked(self) -> Option<Self> {
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
    fn new(code: u8) -> Option<Self> {
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

/// What two offers come to; each side finds the mirror image of what the other does.
///
/// # Errors
/// The wishes contradict each other, or the roles cannot be taken.
pub fn agree(ours: &Offer, theirs: &Offer) -> Result<Agreement, SetupError> {
    let stateless = match (ours.wish, theirs.wish) {
        (Wish::Own, Wish::Own) => return Err(SetupError::BothStateless),
        (Wish::Peers, Wish::Peers) => return Err(SetupError::BothStateful),
        (Wish::Own, _) | (_, Wish::Peers) => Side::Ours,
        (Wish::Peers, _) | (_, Wish::Own) => Side::Theirs,
        (Wish::Automatic, Wish::Automatic) => match (ours.room, theirs.room) {
            (Room::Free, Room::Free) => return Ok(Agreement::Roce),
            (Room::Full, _) => Side::Ours,
            (Room::Free, Room::Full) => Side::Theirs,
        },
    };
    let (server, client, client_side) = match stateless {
        Side::Ours => (ours, theirs, Side::Theirs),
        Side::Theirs => (theirs, ours, Side::Ours),
    };
    if client.room == Room::Full {
        return Err(SetupError::NoRoom(client_side));
    }
    if server.receives == Receives::Shared {
        return Err(SetupError::SharedReceives(stateless));
    }
    Ok(Agreement::Star { stateless })
}

/// What a driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupEvent {
    /// The connection is RoCE, with this peer. Set-up is over.
    Roce(Offer),
    /// This side is stateless: [`Setup::admit`] the peer, or [`Setup::refuse`].
    Admit(Offer),
    /// This side is stateful: take in what the server says and [`Setup::accept`], or [`Setup::refuse`].
    Accept(Offer, Admission),
    /// The peer that was admitted is ready. Set-up is over.
    Ready(Offer),
}

/// The offer that the bytes of another side begin with, `None` where it is not all there yet: who is called is known before
/// an offer is made.
///
/// # Errors
/// They begin with something else.
pub fn peek_offer(bytes: &[u8]) -> Result<Option<Offer>, SetupError> {
    match read(&mut bytes.to_vec())? {
        Some(SetupMessage::Offer(offer)) => Ok(Some(offer)),
        Some(_) => Err(SetupError::OutOfTurn),
        None => Ok(None),
    }
}

enum State {
    /// For the other side's offer.
    Waiting,
    /// For the driver, to admit this peer.
    Admitting(Offer),
    /// For the ready of this peer.
    Admitted(Offer),
    /// For the admission by this peer.
    Applying(Offer),
    /// For the driver, to accept.
    Accepting,
    Over,
    Failed(SetupError),
}

/// One side of a set-up.
pub struct Setup {
    ours: Offer,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Setup {
    /// Begins with this side's offer.
    pub fn new(ours: Offer) -> Self {
        let mut output = Vec::new();
        write(&SetupMessage::Offer(ours), &mut output);
        Self { ours, state: State::Waiting, input: Vec::new(), output }
    }

    /// What is to be sent, and was not taken before.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes in bytes of the other side. What is kept of them is less than one message.
    ///
    /// # Errors
    /// There will be no connection; from then on the same error.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<SetupEvent>, SetupError> {
        self.input.extend(bytes);
        let mut event = None;
        loop {
            if let State::Failed(error) = self.state {
                self.input = Vec::new();
                return Err(error);
            }
            match read(&mut self.input) {
                Ok(None) => return Ok(event),
                Ok(Some(message)) => match self.take(message) {
                    Ok(None) => {}
                    Ok(Some(new)) => event = Some(new),
                    Err(error) => self.state = State::Failed(error),
                },
                Err(error) => self.state = State::Failed(error),
            }
        }
    }

    fn take(&mut self, message: SetupMessage) -> Result<Option<SetupEvent>, SetupError> {
        if let SetupMessage::Refusal(refusal) = message {
            return Err(SetupError::Refused(refusal));
        }
        let (state, event) = match (std::mem::replace(&mut self.state, State::Over), message) {
            (State::Waiting, SetupMessage::Offer(peer)) => match agree(&self.ours, &peer)? {
                Agreement::Roce => (State::Over, Some(SetupEvent::Roce(peer))),
                Agreement::Star { stateless: Side::Ours } => {
                    (State::Admitting(peer), Some(SetupEvent::Admit(peer)))
                }
                Agreement::Star { stateless: Side::Theirs } => (State::Applying(peer), None),
            },
            (State::Applying(peer), SetupMessage::Admission(admission)) => {
                (State::Accepting, Some(SetupEvent::Accept(peer, admission)))
            }
            (State::Admitted(peer), SetupMessage::Ready) => (State::Over, Some(SetupEvent::Ready(peer))),
            _ => return Err(SetupError::OutOfTurn),
        };
        self.state = state;
        Ok(event)
    }

    /// Admits the peer of [`SetupEvent::Admit`].
    ///
    /// # Errors
    /// There is nobody to admit, or there are more than [`MAX_REGIONS`]: refuse, or admit with fewer.
    pub fn admit(&mut self, admission: Admission) -> Result<(), SetupError> {
        let State::Admitting(peer) = self.state else { return Err(SetupError::OutOfTurn) };
        if admission.regions.len() > MAX_REGIONS {
            return Err(SetupError::TooManyRegions(admission.regions.len()));
        }
        write(&SetupMessage::Admission(admission), &mut self.output);
        self.state = State::Admitted(peer);
        Ok(())
    }

    /// Tells the server of [`SetupEvent::Accept`] that it may begin. Set-up is over.
    ///
    /// # Errors
    /// There is nothing to accept.
    pub fn accept(&mut self) -> Result<(), SetupError> {
        let State::Accepting = self.state else { return Err(SetupError::OutOfTurn) };
        write(&SetupMessage::Ready, &mut self.output);
        self.state = State::Over;
        Ok(())
    }

    /// Ends set-up. The other side is told unless it is over already.
    pub fn refuse(&mut self, why: Refusal) {
        if !matches!(self.state, State::Over | State::Failed(_)) {
            write(&SetupMessage::Refusal(why), &mut self.output);
            self.state = State::Failed(SetupError::Refused(why));
        }
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// Set-up was not over.
    pub fn end(&self) -> Result<(), SetupError> {
        match self.state {
            State::Over => Ok(()),
            State::Failed(error) => Err(error),
            _ => Err(SetupError::Truncated),
        }
    }
}
