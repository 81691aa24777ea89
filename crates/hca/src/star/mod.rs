//! StaR at a live adapter: options, and the negotiation over TCP of which side of a connection is stateless.
//!
//! An RC queue pair that its program brings to [`Rtr`](nichrome_rdma::QpState::Rtr) is held, and neither sends nor receives,
//! until both sides have negotiated. The verb returns at once. The side with the lower address and QP number connects.

mod handshake;
mod pending;
mod set_up;

use std::fmt;
use std::str::FromStr;

use nichrome_rdma::StarConfig;
use nichrome_rdma::star::{CardAuthentication, ServerSecret, Wish};
use nichrome_wire::star::Epoch;
use rustix::io;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

pub(crate) use pending::Host;
pub(crate) use set_up::{StarSetup, listen};

/// Options of StaR.
#[derive(Clone, Copy, Debug)]
pub struct StarOptions {
    /// Which side of the adapter's connections is to be stateless.
    pub stateless: Stateless,
    /// Connections whose state the adapter keeps; further ones are stateless at this side. `None` for any number.
    pub connection_budget: Option<usize>,
    /// Packets to stateless connections must be authenticated.
    pub authenticates: bool,
    /// Called with one line per connection that could not be set up. Its queue pair is in ERROR then.
    pub report: fn(&str),
}

impl StarOptions {
    /// The device's configuration, with a random epoch and secret.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(crate) fn device(&self) -> io::Result<StarConfig> {
        let mut bytes = [0; 20];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        let [epoch @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, secret @ ..] = bytes;
        let authentication = CardAuthentication { secret: ServerSecret::new(secret) };
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
    /// `auto`: the side without room for state. If both have room, the connection is RoCE.
    #[default]
    Automatic,
    /// `self`: this side.
    Own,
    /// `peer`: the other side.
    Peer,
}

impl Stateless {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Automatic, Self::Own, Self::Peer];

    /// The name in options and configuration.
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

/// The text is not the name of a choice.
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
