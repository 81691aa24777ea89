//! The device: the verbs for programs, and the interface of drivers.
//!
//! | file | concept |
//! |---|---|
//! | `objects.rs` | protection domains, completion queues, shared receive queues, address handles |
//! | `regions.rs` | memory regions and windows |
//! | `queue_pairs.rs` | creating, modifying, querying and destroying queue pairs |
//! | `set_up.rs` | connecting a queue pair on a negotiated transport |
//! | `post.rs` | posting and polling |
//! | `send_form.rs` | requests that are posted, and complete in error without being sent |
//! | `datagrams.rs`, `streams.rs` | receiving |
//! | `management.rs` | datagrams of queue pair 1 |
//! | `multicast.rs` | multicast groups |
//! | `transmit_queue.rs` | transmitting, timers |
//! | `xrc.rs` | XRC domains, their shared receive queues and target queue pairs |
//! | `transports.rs` | the list of transports, static dispatch to them |
//! | `config.rs` | the configuration |
//! | `framed.rs` | a small transport over streams, for tests |

pub(crate) mod config;
mod datagrams;
#[cfg(test)]
mod framed;
mod management;
mod multicast;
mod objects;
mod post;
mod queue_pairs;
mod regions;
mod send_form;
mod set_up;
mod streams;
mod transmit_queue;
mod transports;
mod xrc;

use std::collections::VecDeque;
use std::fmt;

use nichrome_wire::TimingWheel;

use crate::core::counters::Counters;
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::event::Event;
use crate::core::kind;
use crate::core::limits::Limits;
use crate::core::members::Members;
use crate::core::memory::Memory;
use crate::core::multicast::Groups;
use crate::core::numbers::QpNumbers;
use crate::core::slab::{Handle, Slab};
use crate::core::verbs::{TICK, Verbs};
use crate::net::LocalAddresses;
use crate::transport::Environment;
use transports::{Transport, Transports};

pub use config::{Config, ConfigError, Native};
pub use objects::SrqAttributes;
pub use queue_pairs::{QpConfig, QpReport};
pub use regions::{Paging, RegionConfig, RegionHandle, RegionReport, WindowHandle};

/// A protection domain: its objects cannot be used with objects of other domains.
struct Domain {
    /// Number of objects in the domain.
    users: u32,
}

/// An XRC domain.
struct XrcDomain {
    /// Number of shared receive queues and targets in the domain.
    users: u32,
    /// A protection domain without objects.
    domain: Handle<kind::Domain>,
    /// A completion queue without completions.
    cq: Handle<kind::Cq>,
}

/// An RDMA device with access to the memory `M`: an engine, see the [crate](crate).
pub struct Device<M> {
    config: Config,
    environment: Environment,
    verbs: Verbs<M>,
    domains: Slab<Domain, kind::Domain>,
    xrc_domains: Slab<XrcDomain, kind::Xrc>,
    qps: Slab<Transport, kind::Qp>,
    qps_of: Members,
    numbers: QpNumbers,
    groups: Groups,
    /// The transmit queue: queue pairs that may have packets to send, in round-robin order.
    transmit_queue: VecDeque<u32>,
    /// A timer per queue pair.
    wheel: TimingWheel<TICK>,
    transports: Transports,
}

impl<M> fmt::Debug for Device<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<M: Memory> Device<M> {
    /// Creates a device without objects.
    ///
    /// # Errors
    /// A value of `config` is out of its range.
    pub fn new(config: Config, memory: M) -> Result<Self, ConfigError> {
        config.validate()?;
        let limits = &config.limits;
        let environment = Environment {
            addresses: LocalAddresses::new(&config.addresses),
            mtu: config.mtu,
            message_limit: limits.message,
            window: config.window,
        };
        Ok(Self {
            verbs: Verbs::new(memory, limits, config.seed),
            domains: Slab::new(limits.domains),
            xrc_domains: Slab::new(limits.xrc_domains),
            qps: Slab::new(limits.qps),
            qps_of: Members::default(),
            numbers: QpNumbers::new(config.first_qp, limits.qps as u32, config.seed, "queue pair numbers"),
            groups: Groups::new(limits.groups, limits.group_members),
            transmit_queue: VecDeque::new(),
            wheel: TimingWheel::new(0),
            transports: Transports::new(&environment, &config),
            environment,
            config,
        })
    }

    /// Returns the device's limits.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Returns the device's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the device's counters.
    pub fn counters(&self) -> &Counters {
        &self.verbs.counters
    }

    /// Returns the program's memory.
    pub fn memory(&self) -> &M {
        &self.verbs.memory
    }

    /// Returns the program's memory, mutable.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.verbs.memory
    }

    /// Removes the oldest event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.verbs.events.pop_front()
    }

    fn domain_mut(&mut self, domain: Handle<kind::Domain>) -> Result<&mut Domain, ObjectError> {
        self.domains.get_mut(domain).ok_or(ObjectError::Unknown(ObjectKind::Domain))
    }

    /// Counts a new object of the domain.
    fn join(&mut self, domain: Handle<kind::Domain>) {
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.users += 1;
        }
    }

    /// Counts a destroyed object of the domain.
    fn leave(&mut self, domain: Handle<kind::Domain>) {
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.users -= 1;
        }
    }
}

/// Checks that a requested size is within its range.
fn in_range(what: &'static str, value: usize, min: usize, max: usize) -> Result<(), ObjectError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ObjectError::Size { what, value, min, max }) }
}
