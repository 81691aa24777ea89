//! The configuration of the test bed.

use nichrome_rdma::Congestion;

use super::processors::Balancing;
use crate::host::HostConfig;
use crate::{LinkConfig, PcieConfig};

/// The transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// The kernel's TCP.
    Sockets,
    /// iWARP over the card's TCP.
    Rdma,
    /// RDMA in datagrams.
    Packets(Packets),
}

/// RDMA in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packets {
    /// RoCEv2 with go-back-N: the packets after a lost one are retransmitted with it.
    RoceGoBackN,
    /// RoCEv2; lost packets are sent again one by one.
    RoceSelective,
    /// StaR: the server keeps no state.
    Star,
}

/// Where the nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// All behind one switch.
    Lan,
    /// The server in another network than its clients, behind the router.
    Wan,
}

/// The processing costs of a node's processors, in nanoseconds and, per byte, picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostCosts {
    /// Per system call, including the switch to the program if it had to wait.
    pub(super) call: u64,
    /// Per segment that TCP sends.
    pub(super) segment_out: u64,
    /// Per interrupt.
    pub(super) interrupt: u64,
    /// Per received packet.
    pub(super) packet_in: u64,
    /// Per byte that is copied between program and kernel, in picoseconds.
    pub(super) copy: u64,
    /// Per verb, which needs no system call.
    pub(super) verb: u64,
}

impl HostCosts {
    /// Returns the nanoseconds to copy `bytes` bytes.
    pub(super) fn copy_of(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.copy) / 1000
    }
}

/// The parameters of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CardConfig {
    /// Nanoseconds of the card's processor per RDMA message, both when it leaves and when it arrives.
    pub(super) message: u64,
    /// Nanoseconds of the card's processor per frame, in either direction.
    pub(super) segment: u64,
    /// Bytes of a work request in the host's memory.
    pub(super) descriptor: u64,
    /// The bus to the host's memory.
    pub(super) bus: PcieConfig,
}

/// The interrupt moderation of a card of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moderation {
    /// Nanoseconds from the first waiting frame to the interrupt.
    pub(super) delay: u64,
    /// Number of waiting frames that raises the interrupt at once.
    pub(super) frames: usize,
}

/// The parameters of the router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RouterConfig {
    /// Nanoseconds per interrupt.
    pub(super) interrupt: u64,
    /// Nanoseconds to forward a frame.
    pub(super) forward: u64,
    /// The interrupt moderation of the cards to networks A and B.
    pub(super) moderation: [Moderation; 2],
    /// Nanoseconds by which degen delays a frame.
    pub(super) delay: u64,
    /// Probability that degen loses a frame, 0 to 1.
    pub(super) loss: f64,
}

/// The whole test bed.
#[derive(Clone, Debug)]
pub(super) struct TestbedConfig {
    pub(super) transport: Transport,
    pub(super) topology: Topology,
    /// Nodes beside the server.
    pub(super) clients: usize,
    pub(super) costs: HostCosts,
    /// The processor that takes interrupts; programs start on processor 1.
    pub(super) interrupts: usize,
    /// Whether the scheduler moves the application.
    pub(super) balancing: Balancing,
    /// Processes of the application on the server.
    pub(super) application: usize,
    pub(super) card: CardConfig,
    /// Bytes of the longest message.
    pub(super) longest: usize,
    /// TCP of the kernel and of the card.
    pub(super) tcp: HostConfig,
    /// The congestion control of RoCE and StaR, in addition to the window.
    pub(super) datagram_congestion: Congestion,
    /// Every link.
    pub(super) link: LinkConfig,
    /// Nanoseconds of a switch per frame.
    pub(super) switch: u64,
    pub(super) router: RouterConfig,
    /// The seed of random choices.
    pub(super) seed: u64,
}

impl TestbedConfig {
    /// Bytes of the longest TCP segment.
    pub(super) const fn mss(&self) -> usize {
        /// Bytes of the IPv4 and the TCP header.
        const HEADERS: usize = 40;
        self.tcp.mtu - HEADERS
    }
}
