//! The device: objects, verbs, and what all queue pairs send and receive.
//!
//! | file | concept |
//! |---|---|
//! | `objects.rs` | protection domains, completion queues, shared receive queues, address handles |
//! | `regions.rs` | memory regions and windows |
//! | `queue_pairs.rs` | making, changing and querying queue pairs |
//! | `set_up.rs` | putting a connection on a transport that was negotiated |
//! | `post.rs` | posting, polling |
//! | `datagrams.rs`, `streams.rs` | what arrives, for each kind of port |
//! | `line.rs` | what leaves, and timers |
//! | `transports.rs` | the transports, one line each |

pub(crate) mod config;
mod datagrams;
#[cfg(test)]
mod framed;
mod line;
mod objects;
mod post;
mod queue_pairs;
mod regions;
mod set_up;
mod streams;
mod transports;

use std::collections::VecDeque;

use nichrome_wire::TimingWheel;

use crate::core::counters::Counters;
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::event::Event;
use crate::core::kind;
use crate::core::limits::Limits;
use crate::core::memory::Memory;
use crate::core::numbers::QpNumbers;
use crate::core::slab::{Handle, Slab};
use crate::core::verbs::{TICK, Verbs};
use crate::net::LocalAddresses;
use crate::transport::Environment;
use transports::{Transport, Transports};

pub use config::{Config, ConfigError};
pub use objects::SrqAttributes;
pub use queue_pairs::{QpConfig, QpReport};
pub use regions::{RegionConfig, RegionHandle, RegionReport, WindowHandle};

/// A protection domain: objects of one cannot be used with objects of another.
struct Domain {
    /// Objects in it.
    users: u32,
}

/// An RDMA device whose memory is `M`: an engine, see the [crate](crate).
pub struct Device<M> {
    config: Config,
    environment: Environment,
    verbs: Verbs<M>,
    domains: Slab<Domain, kind::Domain>,
    qps: Slab<Transport, kind::Qp>,
    numbers: QpNumbers,
    /// Queue pairs that may have something to send, in turn.
    line: VecDeque<u32>,
    /// One timer per queue pair.
    wheel: TimingWheel<TICK>,
    transports: Transports,
}

impl<M: Memory> Device<M> {
    /// Makes a device without objects.
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
            qps: Slab::new(limits.qps),
            numbers: QpNumbers::new(config.first_qp, limits.qps as u32, config.seed),
            line: VecDeque::new(),
            wheel: TimingWheel::new(0),
            transports: Transports::new(&environment, &config),
            environment,
            config,
        })
    }

    /// What programs may ask for.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// What the device was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the device has done so far.
    pub fn counters(&self) -> &Counters {
        &self.verbs.counters
    }

    /// The memory that the device reaches.
    pub fn memory(&self) -> &M {
        &self.verbs.memory
    }

    /// The memory that the device reaches, to be changed by its program.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.verbs.memory
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.verbs.events.pop_front()
    }

    fn domain_mut(&mut self, domain: Handle<kind::Domain>) -> Result<&mut Domain, ObjectError> {
        self.domains.get_mut(domain).ok_or(ObjectError::Unknown(ObjectKind::Domain))
    }

    /// One more object belongs to this domain.
    fn join(&mut self, domain: Handle<kind::Domain>) {
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.users += 1;
        }
    }

    /// One object less belongs to this domain.
    fn leave(&mut self, domain: Handle<kind::Domain>) {
        if let Some(domain) = self.domains.get_mut(domain) {
            domain.users -= 1;
        }
    }
}

/// Checks a size that a program asks for.
fn in_range(what: &'static str, value: usize, min: usize, max: usize) -> Result<(), ObjectError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ObjectError::Size { what, value, min, max }) }
}
