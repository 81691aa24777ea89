//! Two hosts, a card for each, and the wire between them.

use std::fmt;
use std::sync::Arc;

use nichrome_lro::{Config, ProfileConfig};
use nichrome_nic::{
    Card, CardConfig, MemoryDirection, MemoryPath, MemoryWire, Queue, memory_directions, memory_wire,
};
use nichrome_port::{Device, Offloads};
use nichrome_wan::{ConfigError, Impairments, Stats};

use crate::error::LabError;
use crate::host::Host;
use crate::side::Side;

/// The longest IP packet on the path of a [`Lab`], in bytes.
pub const MTU: u32 = 1500;

/// Bytes of a frame's Ethernet header.
const LINK: usize = 14;

/// The packets that a thread carries.
#[derive(Clone, Copy)]
enum Threads {
    /// From and to one host: the thread reads the host's answers before it delivers more.
    ByHost,
    /// From one host to the other: their bytes stay in the cache of one core.
    ByDirection,
}

/// Two hosts and the path between them; removed when dropped.
pub struct Lab {
    hosts: [Host; 2],
    /// The card that delivers to each host.
    cards: [Card; 2],
    /// The path towards each host.
    paths: [MemoryPath; 2],
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").finish_non_exhaustive()
    }
}

impl Lab {
    /// Creates both hosts, and a path with these impairments towards the left and towards the right host. The
    /// seed determines all random choices.
    ///
    /// # Errors
    /// The kernel refuses a namespace or an interface, or the impairments contradict each other.
    pub fn new(impairments: &[Impairments; 2], seed: u64) -> Result<Self, LabError> {
        Self::build(impairments, seed, Threads::ByHost, (Config::default(), None))
    }

    /// As [`Lab::new`], with more throughput; both hosts receive through a card that coalesces with
    /// `profile`, if it is given. A host's packets are lost if more than a thousand wait for a busy CPU.
    ///
    /// # Errors
    /// As for [`Lab::new`], or a value of `engine` or `profile` is out of its range.
    pub fn with_offload(
        impairments: &[Impairments; 2],
        seed: u64,
        engine: Config,
        profile: Option<ProfileConfig>,
    ) -> Result<Self, LabError> {
        Self::build(impairments, seed, Threads::ByDirection, (engine, profile))
    }

    fn build(
        impairments: &[Impairments; 2],
        seed: u64,
        threads: Threads,
        (engine, profile): (Config, Option<ProfileConfig>),
    ) -> Result<Self, LabError> {
        let [left, right] = Side::BOTH;
        let hosts = [Host::new(left, MTU, Offloads::All)?, Host::new(right, MTU, Offloads::All)?];
        let frame_len = MTU as usize + LINK;
        let config = |side: Side| CardConfig { name: side.name(), engine, profile, busy_poll: false };
        let tap = |side: Side| Arc::clone(&side.of(&hosts).tap) as Arc<dyn Device + Send + Sync>;
        // An engine that generates ACKs must observe what its host sends, so one thread carries both
        // directions.
        let threads = if config(left).observes_host() { Threads::ByHost } else { threads };
        let (paths, cards) = match threads {
            Threads::ByHost => {
                let wires = memory_wire(impairments, seed, frame_len)?;
                let paths = wires.each_ref().map(MemoryWire::path);
                let [to_left, to_right] = wires;
                let start = |wire, to: Side| {
                    let queue = Queue { wire, observer: None };
                    Card::start(vec![queue], &[tap(to)], &config(to), || {})
                };
                (paths, [start(to_left, left)?, start(to_right, right)?])
            }
            Threads::ByDirection => {
                let wires = memory_directions(impairments, seed, frame_len)?;
                let paths = wires.each_ref().map(MemoryDirection::path);
                let [to_left, to_right] = wires;
                let start = |wire, to: Side| {
                    let queue = Queue { wire, observer: None };
                    Card::between([to.other(), to].map(tap), queue, &config(to), || {})
                };
                (paths, [start(to_left, left)?, start(to_right, right)?])
            }
        };
        Ok(Self { hosts, cards, paths })
    }

    /// Returns the host on `side`.
    pub fn host(&self, side: Side) -> &Host {
        side.of(&self.hosts)
    }

    /// Replaces the impairments of packets to the host on `to`. Packets that the bottleneck has sent keep
    /// their delays; those in its queue are sent at the new rate, with the new delay.
    ///
    /// # Errors
    /// The impairments contradict each other; the path keeps its own.
    pub fn impair(&self, to: Side, impairments: &Impairments) -> Result<(), ConfigError> {
        to.of(&self.paths).set(impairments)
    }

    /// Returns the counters of the path to the host on `to`.
    pub fn stats(&self, to: Side) -> Stats {
        to.of(&self.paths).stats()
    }

    /// Ends the path; packets on it are lost.
    ///
    /// # Errors
    /// The path had ended early: an interface was removed.
    pub fn stop(self) -> Result<(), LabError> {
        for card in self.cards {
            card.stop()?;
        }
        Ok(())
    }
}
