//! What is simulated: the numbers that the model needs. Times are in nanoseconds.

use nichrome_wire::rdma::PathMtu;

use super::card::CardConfig;
use crate::LinkConfig;

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// So many connections, from so many client machines in turn, to one server.
    FanIn { connections: usize, machines: usize },
    /// A connection from every node to every other.
    AllToAll { nodes: usize },
}

/// What carries the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Reliable connections of RoCEv2: a context on both sides.
    Reliable,
    /// StaR: a context at the client only.
    Stateless,
    /// Reliable until a card has so many contexts, StaR beyond (section 3.3).
    Auto { budget: usize },
    /// Unreliable datagrams: one context for all, and software that answers.
    Datagram,
}

/// What limits senders beside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    /// Nothing.
    None,
    /// DCTCP.
    Dctcp,
}

/// A message cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) packets: u32,
    /// Bytes of each packet but the last.
    full: u32,
    last: u32,
}

impl Message {
    /// `len` bytes in packets of at most `full`, at least 1.
    pub(super) fn new(len: u32, full: u32) -> Self {
        let packets = len.div_ceil(full.max(1)).max(1);
        Self { packets, full, last: len - (packets - 1) * full }
    }

    /// Bytes of the whole message.
    pub(super) fn len(self) -> u64 {
        u64::from(self.packets - 1) * u64::from(self.full) + u64::from(self.last)
    }

    /// Bytes of a packet of a sequence of such messages.
    pub(super) fn payload(self, sequence: u32) -> u32 {
        if self.ends_with(sequence) { self.last } else { self.full }
    }

    /// Whether a packet of the sequence is the last of its message.
    pub(super) fn ends_with(self, sequence: u32) -> bool {
        (sequence + 1).is_multiple_of(self.packets)
    }
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// WRITE to the server.
    Write,
    /// SEND a request, and get the response by SEND; whether the server posts a RECV again for each.
    Rpc { response: Message, reposts: bool },
}

/// Connections take turns in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grouping {
    /// Connections of a group, at least 1.
    pub(super) size: usize,
    /// How long a group may begin operations before the next one may, at least 1.
    pub(super) slice: u64,
}

/// What sends again what is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    /// How many of 2⁶⁴ packets are lost.
    pub(super) loss: u64,
    /// After how long without a word things are sent again.
    pub(super) timeout: u64,
}

/// Everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkConfig {
    pub(super) pattern: Pattern,
    pub(super) transport: Transport,
    pub(super) request: Message,
    /// The most data in a packet of an engine.
    pub(super) path_mtu: PathMtu,
    pub(super) operation: Operation,
    /// Operations that arrive in a second, by chance; `None`: a connection begins the next when the last is complete.
    pub(super) offered: Option<f64>,
    pub(super) grouping: Option<Grouping>,
    /// From a card to the switch.
    pub(super) uplink: LinkConfig,
    /// From the switch to a card.
    pub(super) downlink: LinkConfig,
    /// From a card to another and back, in an empty network.
    pub(super) base_rtt: u64,
    /// For an operation that the host posts to reach the card.
    pub(super) post: u64,
    pub(super) card: CardConfig,
    /// How much larger a client's context of StaR is than one of RoCEv2.
    pub(super) star_context: f64,
    /// Packets that a sender may have under way.
    pub(super) window: u32,
    pub(super) congestion: Congestion,
    /// `None` where nothing can be lost.
    pub(super) recovery: Option<Recovery>,
    /// Of each server, for datagrams: cores, and how long one takes for a request.
    pub(super) cores: usize,
    pub(super) request_time: u64,
    /// Connections begin at any time in this one.
    pub(super) start: u64,
    pub(super) seed: u64,
}

impl NetworkConfig {
    /// Bytes of data of an operation, both ways.
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
