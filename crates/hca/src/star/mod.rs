//! StaR at a live adapter: options, and the negotiation over TCP of which side of a connection is stateless.
//!
//! An RC queue pair that its program moves to [`Rtr`](nichrome_rdma::QpState::Rtr) is held, and neither sends
//! nor receives, until both sides have negotiated. The verb returns at once. The side with the lower address
//! and QP number connects.

mod handshake;
mod key_file;
mod pending;
mod set_up;
mod slots;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use nichrome_rdma::StarConfig;
use nichrome_rdma::star::{CardAuthentication, ServerSecret, Wish};
use nichrome_wire::star::Epoch;
use rustix::io;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use crate::connect::PreSharedKey;

pub use key_file::KeyFileError;
pub(crate) use pending::{Host, Request};
pub(crate) use set_up::{SetUpPort, StarSetup, listen};
pub(crate) use slots::{SLOT_BITS, STEERING};

/// Options of StaR.
#[derive(Clone, Debug)]
pub struct StarOptions {
    /// The side of the adapter's connections that should be stateless.
    pub stateless: Stateless,
    /// Connections whose state the adapter keeps; further ones are stateless at this side. `None` for any
    /// number.
    pub connection_budget: Option<usize>,
    /// Packets to stateless connections must be authenticated. Without it, StaR is for loopback addresses
    /// only.
    pub authenticates: bool,
    /// The file of the key under which connections are set up, the same at both sides: [`KeyFileError`] has
    /// its rules. Without one, StaR is for loopback addresses and processes of one user only.
    pub key_file: Option<PathBuf>,
    /// Called with a line per connection that could not be set up, whose queue pair is then in ERROR, and
    /// with warnings.
    pub report: fn(&str),
}

/// Why StaR does not run at an address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StarAddressError {
    /// No key protects the keys and memory tables that set-up exchanges.
    #[error(
        "StaR at {0} needs a key for its set-up: give both sides the same --key-file (NICHROME_KEY_FILE)"
    )]
    NoKey(IpAddr),
    /// Any sender that reaches the port could read and write registered memory.
    #[error("StaR without authentication is for loopback addresses only: {0} needs authenticated packets")]
    NoTags(IpAddr),
    /// The key file is not usable.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
}

impl StarOptions {
    /// Reads the key of set-ups at `address`, and warns if packets are not authenticated.
    ///
    /// # Errors
    /// The key file is not usable, or the address needs a key or authentication that these options do not
    /// have.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Option<PreSharedKey>, StarAddressError> {
        let key = self.key(Some(address))?;
        if !self.authenticates {
            (self.report)(
                "warning: StaR's packets are not authenticated: every process of this machine can read and write \
                 registered memory",
            );
        }
        Ok(key)
    }

    /// Reads the key of set-ups, and checks whether StaR may run at `address`; `None` if it is not known yet.
    ///
    /// # Errors
    /// As [`StarOptions::admit`].
    pub(crate) fn key(&self, address: Option<IpAddr>) -> Result<Option<PreSharedKey>, StarAddressError> {
        let key = self.key_file.as_deref().map(key_file::read).transpose()?;
        match address.filter(|address| !address.to_canonical().is_loopback()) {
            Some(address) if !self.authenticates => Err(StarAddressError::NoTags(address)),
            Some(address) if key.is_none() => Err(StarAddressError::NoKey(address)),
            _ => Ok(key),
        }
    }

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
        Self { stateless, connection_budget: None, authenticates: true, key_file: None, report: |_| {} }
    }
}

/// The side of a connection that should be stateless.
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
#[error("the stateless side must be one of: {}", Stateless::ALL.map(Stateless::name).join(", "))]
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
