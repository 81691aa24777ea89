//! The configuration of the network. Times are in nanoseconds.

use nichrome_wire::rdma::PathMtu;

use super::baselines::Baseline;
use super::card::CardConfig;
use super::operation::{Message, Operation};
use crate::LinkConfig;

/// The traffic pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// This many connections from this many client machines, round robin, to one server.
    FanIn { connections: usize, machines: usize },
    /// A connection from every node to every other.
    AllToAll { nodes: usize },
}

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// RoCEv2's reliable connections: a context on both sides.
    Reliable,
    /// StaR: a context on the client side only.
    Stateless,
    /// Reliable until a card has `budget` contexts, StaR beyond (section 3.3).
    Auto { budget: usize },
    /// A transport without an engine.
    Outline(Baseline),
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    /// None: only the window limits senders.
    None,
    /// DCTCP.
    Dctcp,
}

/// Connections take turns in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grouping {
    /// Connections per group, at least 1.
    pub(super) size: usize,
    /// Length of a group's turn, at least 1.
    pub(super) slice: u64,
}

/// Loss and retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    /// Loss probability, scaled to 2⁶⁴.
    pub(super) loss: u64,
    /// Retransmission timeout.
    pub(super) timeout: u64,
}

/// The configuration of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkConfig {
    pub(super) pattern: Pattern,
    pub(super) transport: Transport,
    pub(super) request: Message,
    /// Maximum payload of an engine's packet.
    pub(super) path_mtu: PathMtu,
    pub(super) operation: Operation,
    /// Poisson arrivals in operations per second; `None`: a connection starts the next operation when the
    /// last completes.
    pub(super) offered: Option<f64>,
    pub(super) grouping: Option<Grouping>,
    /// The link from a card to the switch.
    pub(super) uplink: LinkConfig,
    /// The link from the switch to a card.
    pub(super) downlink: LinkConfig,
    /// Round-trip time between cards in an empty network.
    pub(super) base_rtt: u64,
    /// Time from posting an operation to its arrival at the card.
    pub(super) post: u64,
    pub(super) card: CardConfig,
    /// Size of a StaR client's context relative to RoCEv2's.
    pub(super) star_context: f64,
    /// Consecutive connections that share a context at the server, at least 1.
    pub(super) sharing: u32,
    /// Time of a packet in a card's receive or send pipeline; 0 for none.
    pub(super) packet_time: u64,
    /// Core time of an element in the driver of StaR's server; 0 for none.
    pub(super) element_time: u64,
    /// True if StaR's packets carry tags.
    pub(super) tags: bool,
    /// Time from the refusal of a context to the next request for one.
    pub(super) retry: u64,
    /// Maximum packets in flight per sender.
    pub(super) window: u32,
    pub(super) congestion: Congestion,
    /// `None` for a lossless network.
    pub(super) recovery: Option<Recovery>,
    /// Cores per server for software and StaR's driver, and the software's time per request.
    pub(super) cores: usize,
    pub(super) request_time: u64,
    /// Connections start at random times within this interval.
    pub(super) start: u64,
    pub(super) seed: u64,
}

impl NetworkConfig {
    /// Returns the payload of an operation in both directions, in bytes.
    pub(super) fn payload(&self) -> u64 {
        match self.operation {
            Operation::Write => self.request.len(),
            Operation::Rpc { response, .. } => self.request.len() + response.len(),
        }
    }
}
