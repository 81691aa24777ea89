//! The manager: commands for programs, and the engine for drivers.
//!
//! | file | concept |
//! |---|---|
//! | `identifiers.rs` | channels and identifiers: creating, destroying, migrating, options |
//! | `events.rs` | queueing and fetching events |
//! | `addressing.rs` | binding, resolving, listening |
//! | `connecting.rs` | connecting, accepting, rejecting, disconnecting |
//! | `requests.rs` | requests of peers for listeners |
//! | `unclaimed.rs` | requests of peers for ports without a listener |
//! | `indications.rs` | applies messages and timeouts to identifiers |
//! | `streams.rs` | connections that the driver sets up |
//! | `multicast.rs` | memberships in groups |
//! | `report.rs` | queue pair attributes, the state of an identifier |
//! | `drive.rs` | the engine contract |

mod addressing;
mod connecting;
mod drive;
mod events;
mod identifiers;
mod indications;
mod multicast;
mod report;
mod requests;
mod streams;
mod unclaimed;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use nichrome_rdma::RandomNumbers;
use nichrome_wire::Instant;
use nichrome_wire::rdma::PathMtu;

use crate::channel::Channel;
use crate::config::{CommIdPrefix, Config, ConfigError};
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::error::CommandError;
use crate::exchange::Output;
use crate::held::HeldRequests;
use crate::ib::Connections;
use crate::identifier::{Identifier, Membership};
use crate::name::{ChannelName, IdName, MembershipName};
use crate::ports::Ports;

pub use report::{IdReport, Usage};

/// The Q_Key of datagram services that have none of their own (`RDMA_UDP_QKEY`).
const DEFAULT_QKEY: u32 = 0x0123_4567;

/// Number of names in use up to which they have 16 bits.
const FEW_NAMES: usize = 1 << 15;

/// A connection manager: see the [crate](crate).
pub struct Manager<H> {
    config: Config,
    host: H,
    channels: BTreeMap<ChannelName, Channel>,
    identifiers: BTreeMap<IdName, Identifier>,
    memberships: BTreeMap<MembershipName, Membership>,
    /// Connections that peers initiated, by the driver's number.
    incoming: BTreeMap<u64, IdName>,
    ports: Ports,
    held: HeldRequests,
    ib: Connections,
    deadlines: Deadlines<IdName>,
    outputs: VecDeque<Output>,
    random: RandomNumbers,
    /// The last name given out.
    last_name: u32,
}

impl<H> fmt::Debug for Manager<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<H> Manager<H> {
    /// Creates a manager on a host.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: Config, host: H) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            host,
            channels: BTreeMap::new(),
            identifiers: BTreeMap::new(),
            memberships: BTreeMap::new(),
            incoming: BTreeMap::new(),
            ports: Ports::new(config.ephemeral_ports, config.seed),
            held: HeldRequests::new(config.hold),
            ib: Connections::new(config.clone()),
            deadlines: Deadlines::new(),
            outputs: VecDeque::new(),
            random: RandomNumbers::new(config.seed, "packet sequence numbers"),
            last_name: 0,
            config,
        })
    }

    /// Sets the values that depend on the adapter, for a manager created before its adapter was open.
    ///
    /// # Errors
    /// [`ConfigError::Prefix`].
    pub fn set_adapter(&mut self, comm_ids: CommIdPrefix, max_path_mtu: PathMtu) -> Result<(), ConfigError> {
        let config = Config { comm_ids, max_path_mtu, ..self.config.clone() };
        config.check()?;
        self.ib.set_adapter(comm_ids, max_path_mtu);
        self.config = config;
        Ok(())
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The host.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.ib.counters
    }

    fn identifier(&self, id: IdName) -> Result<&Identifier, CommandError> {
        self.identifiers.get(&id).ok_or(CommandError::NotFound)
    }

    fn identifier_mut(&mut self, id: IdName) -> Result<&mut Identifier, CommandError> {
        self.identifiers.get_mut(&id).ok_or(CommandError::NotFound)
    }

    /// A name that no object has. Names have 16 bits while few are in use: librdmacm indexes identifiers by
    /// them.
    fn next_name(&mut self) -> u32 {
        let in_use = self.identifiers.len() + self.channels.len() + self.memberships.len();
        let last = if in_use < FEW_NAMES { u32::from(u16::MAX) } else { u32::MAX };
        loop {
            self.last_name = if self.last_name >= last { 1 } else { self.last_name + 1 };
            let name = self.last_name;
            let taken = self.identifiers.contains_key(&IdName(name))
                || self.channels.contains_key(&ChannelName(name))
                || self.memberships.contains_key(&MembershipName(name));
            if !taken {
                return name;
            }
        }
    }

    fn set_deadline(&mut self, id: IdName, deadline: Option<Instant>) {
        if let Some(identifier) = self.identifiers.get_mut(&id) {
            self.deadlines.change(id, identifier.deadline, deadline);
            identifier.deadline = deadline;
        }
    }
}
