//! StaR at a live adapter: its port, and the set-up over TCP that says which side of a connection is stateless.
//!
//! A reliable connection's queue pair, brought to [`Rtr`](nichrome_rdma::QpState::Rtr) by its program, sends and takes in
//! nothing until both sides have negotiated; the program goes on meanwhile. The side whose address and number are lower calls the other.

mod negotiation;
mod negotiator;
mod port;

use std::fmt;
use std::str::FromStr;

use nichrome_rdma::StarConfig;
use nichrome_rdma::star::{CardAuthentication, ServerSecret, Wish};
use nichrome_wire::star::Epoch;
use rustix::io;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

pub(crate) use negotiator::{Host, Negotiator, Order};
pub(crate) use port::listen;

/// How an adapter takes part in StaR.
#[derive(Clone, Copy, Debug)]
pub struct StarOptions {
    /// Which side of its connections is to be stateless.
    pub stateless: Stateless,
    /// Connections whose state it keeps; beyond it, new ones are stateless here. `None` for any number.
    pub connection_budget: Option<usize>,
    /// Whether packets to it must be authenticated where it is stateless.
    pub authenticates: bool,
    /// Is told why a connection could not be set up; its queue pair is in error then.
    pub report: fn(&str),
}

/// How far a stamp may be from the clock of the card that it is for, in milliseconds: so long a packet can be replayed.
const LIFETIME_MS: u32 = 1_000;

impl StarOptions {
    /// The device that takes part like this, in a start of its own.
    pub(crate) fn device(&self) -> io::Result<StarConfig> {
        let mut bytes = [0; 20];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        let [epoch @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, secret @ ..] = bytes;
        let authentication =
            CardAuthentication { secret: ServerSecret::new(secret), lifetime_ms: LIFETIME_MS };
        Ok(StarConfig {
            connection_budget: self.connection_budget,
            epoch: Epoch(u32::from_be_bytes(epoch)),
            authentication: self.authenticates.then_some(authentication),
            ..StarConfig::default()
        })
    }
}

impl Default for StarOptions {
    fn default() -> Self {
        let stateless = Stateless::default();
        Self { stateless, connection_budget: None, authenticates: false, report: |_| {} }
    }
}

/// Which side of a connection is to be stateless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stateless {
    /// The one that has no room for state; where both have, the connection is RoCE. `auto`.
    #[default]
    Automatic,
    /// This one. `self`.
    Own,
    /// The other. `peer`.
    Peer,
}

impl Stateless {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Automatic, Self::Own, Self::Peer];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Automatic => "auto",
            Self::Own => "self",
            Self::Peer => "peer",
        }
    }

    pub(crate) const fn wish(self) -> Wish {
        match self {
            Self::Automatic => Wish::Automatic,
            Self::Own => Wish::Own,
            Self::Peer => Wish::Peers,
        }
    }
}

/// A text names no side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stateless side is one of: {}", Stateless::ALL.map(Stateless::name).join(", "))]
pub struct StatelessError;

impl FromStr for Stateless {
    type Err = StatelessError;

    fn from_str(text: &str) -> Result<Self, StatelessError> {
        Self::ALL.into_iter().find(|side| side.name() == text).ok_or(StatelessError)
    }
}

impl fmt::Display for Stateless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
