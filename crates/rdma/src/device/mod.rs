//! The device: objects, verbs, and the packets of all queue pairs.
//!
//! | file | verbs |
//! |---|---|
//! | `objects.rs` | protection domains, completion queues, shared receive queues, address handles |
//! | `regions.rs` | memory regions and windows |
//! | `queue_pairs.rs` | making, changing and asking queue pairs |
//! | `post.rs` | posting, polling |
//! | `traffic.rs` | packets and time |
//! | `star.rs`, `answers.rs` | StaR: set-up, packets; the stateless card |
//!
//! `transport.rs` is a queue pair on its transport, whichever that is.

mod answers;
mod objects;
mod post;
mod queue_pairs;
mod regions;
mod star;
mod traffic;
mod transport;

use std::collections::VecDeque;
use std::net::IpAddr;

use nichrome_wire::rdma::{IcrcChecker, QpNumber, UdpFlow};
use nichrome_wire::{AddressPair, TimingWheel};

use crate::config::{Config, ConfigError, Limits};
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::numbers::QpNumbers;
use crate::core::slab::{Handle, Slab};
use crate::core::verbs::{TICK, Verbs};
use crate::counters::Counters;
use crate::error::{ObjectError, ObjectKind};
use crate::kind;
use crate::qp::attributes::AddressVector;
use crate::roce::packet::Route;
use answers::Answers;
use transport::Transport;

pub use objects::SrqAttributes;
pub use queue_pairs::{QpConfig, QpReport};
pub use regions::{RegionConfig, RegionHandle, RegionReport, WindowHandle};
pub use traffic::Transmit;

/// A protection domain: what is in one cannot be used with what is in another.
struct Domain {
    /// Objects in it.
    users: u32,
}

/// An RDMA device whose memory is `M`: an engine, see the [crate](crate).
pub struct Device<M> {
    config: Config,
    verbs: Verbs<M>,
    domains: Slab<Domain, kind::Domain>,
    qps: Slab<Transport, kind::Qp>,
    numbers: QpNumbers,
    /// Queue pairs that may have something to send, in turn.
    line: VecDeque<u32>,
    /// One timer per queue pair.
    wheel: TimingWheel<TICK>,
    icrc: IcrcChecker,
    /// The stateless card of StaR.
    answers: Answers,
    /// Connections whose state the peer keeps.
    stateless: usize,
}

impl<M: Memory> Device<M> {
    /// A device without objects.
    ///
    /// # Errors
    /// A value of `config` is out of its range.
    pub fn new(config: Config, memory: M) -> Result<Self, ConfigError> {
        config.validate()?;
        let limits = &config.limits;
        Ok(Self {
            verbs: Verbs::new(memory, limits, config.seed),
            domains: Slab::new(limits.domains),
            qps: Slab::new(limits.qps),
            numbers: QpNumbers::new(config.first_qp, limits.qps as u32, config.seed),
            line: VecDeque::new(),
            wheel: TimingWheel::new(0),
            icrc: IcrcChecker::default(),
            answers: Answers::new(&config),
            stateless: 0,
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

    /// The place of a queue pair by its number.
    #[inline]
    fn place_of(&self, number: QpNumber) -> Option<u32> {
        self.numbers.index_of(number)
    }
}

impl Config {
    /// The way that an address vector describes; `None` where the device has no such address.
    #[inline]
    pub(crate) fn route(&self, vector: &AddressVector) -> Option<Route> {
        let addresses = match (*self.addresses.get(usize::from(vector.source_index))?, vector.destination) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => AddressPair::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => AddressPair::V6 { src, dst },
            _ => return None,
        };
        Some(Route::new(UdpFlow::to_roce(addresses, self.source_port), vector))
    }
}

/// Checks a size that a program asks for.
fn in_range(what: &'static str, value: usize, min: usize, max: usize) -> Result<(), ObjectError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ObjectError::Size { what, value, min, max }) }
}
