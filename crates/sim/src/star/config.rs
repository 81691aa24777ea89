//! The configuration of the network. Times are in nanoseconds.

use nichrome_wire::rdma::PathMtu;

use super::card::CardConfig;
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
    /// Unreliable datagrams: one context for all connections, and software that answers.
    Datagram,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    /// None: only the window limits senders.
    None,
    /// DCTCP.
    Dctcp,
}

/// A message and its segmentation into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) packets: u32,
    /// Payload of each packet but the last, in bytes.
    full: u32,
    last: u32,
}

impl Message {
    /// Creates a message of `len` bytes in packets of at most `full`, at least 1.
    pub(super) fn new(len: u32, full: u32) -> Self {
        let packets = len.div_ceil(full.max(1)).max(1);
        Self { packets, full, last: len - (packets - 1) * full }
    }

    /// Returns the length of the message, in bytes.
    pub(super) fn len(self) -> u64 {
        u64::from(self.packets - 1) * u64::from(self.full) + u64::from(self.last)
    }

    /// Returns the payload of packet `sequence` in a stream of such messages.
    pub(super) fn payload(self, sequence: u32) -> u32 {
        if self.ends_with(sequence) { self.last } else { self.full }
    }

    /// Returns true if packet `sequence` is the last of its message.
    pub(super) fn ends_with(self, sequence: u32) -> bool {
        (sequence + 1).is_multiple_of(self.packets)
    }
}

/// The operation of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// WRITE to the server.
    Write,
    /// An RPC: request and response by SEND. `reposts`: the server posts a RECV for each request.
    Rpc { response: Message, reposts: bool },
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
    /// Poisson arrivals in operations per second; `None`: a connection starts the next operation when the last
    /// completes.
    pub(super) offered: Option<f64>,
    pub(super) grouping: Option<Grouping>,
    /// From a card to the switch.
    pub(super) uplink: LinkConfig,
    /// From the switch to a card.
    pub(super) downlink: LinkConfig,
    /// Round-trip time between cards in an empty network.
    pub(super) base_rtt: u64,
    /// Time from posting an operation to its arrival at the card.
    pub(super) post: u64,
    pub(super) card: CardConfig,
    /// Size of a StaR client's context relative to RoCEv2's.
    pub(super) star_context: f64,
    /// Maximum packets in flight per sender.
    pub(super) window: u32,
    pub(super) congestion: Congestion,
    /// `None` for a lossless network.
    pub(super) recovery: Option<Recovery>,
    /// Cores per server for datagrams, and time per request.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_into_full_packets_and_a_rest() {
        let message = Message::new(2800, 1400);
        assert_eq!(
            (message.packets, message.payload(0), message.payload(3), message.len()),
            (2, 1400, 1400, 2800)
        );
        let message = Message::new(2867, 1400);
        assert_eq!(
            (message.packets, message.payload(2), message.payload(3), message.len()),
            (3, 67, 1400, 2867)
        );
        assert!(message.ends_with(5) && !message.ends_with(3));
        assert_eq!(Message::new(0, 1400).packets, 1);
    }
}
