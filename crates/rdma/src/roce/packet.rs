//! Packets on their way in and out.

use nichrome_wire::rdma::{Message, Psn, RKey, UdpFlow};
use nichrome_wire::{AddressPair, TrafficClass};

use crate::core::send_queue::Source;
use crate::qp::attributes::AddressVector;

/// Where packets go and what their IP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Addresses and ports.
    pub flow: UdpFlow,
    /// Traffic class (type of service).
    pub traffic_class: TrafficClass,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit (time to live).
    pub hop_limit: u8,
}

impl Route {
    pub(crate) fn new(flow: UdpFlow, vector: &AddressVector) -> Self {
        let AddressVector { traffic_class, flow_label, hop_limit, .. } = *vector;
        Self { flow, traffic_class, flow_label, hop_limit }
    }
}

/// A datagram that came in.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// From whom, to whom.
    pub flow: UdpFlow,
    /// Traffic class with the congestion bits.
    pub traffic_class: TrafficClass,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

/// What a request or answer that was taken in says.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) psn: Psn,
    pub(crate) ack_request: bool,
    pub(crate) solicited: bool,
    /// The sender takes negative acknowledgements of single packets.
    pub(crate) selective: bool,
    pub(crate) payload: &'a [u8],
    /// Addresses that it came with.
    pub(crate) addresses: AddressPair,
    pub(crate) traffic_class: TrafficClass,
}

/// The packet that a queue pair would send next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) psn: Psn,
    pub(crate) ack_request: bool,
    pub(crate) solicited: bool,
    pub(crate) payload: PayloadSource,
    pub(crate) payload_len: usize,
    pub(crate) cause: Cause,
}

/// Where the payload of a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadSource {
    Nothing,
    /// The buffers of a send.
    Send {
        source: Source,
        offset: u32,
    },
    /// Memory that the peer asks for.
    Remote {
        address: u64,
        rkey: RKey,
    },
}

/// What a packet is sent for, and so what its leaving changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A send: so many packet numbers, and whether it is begun or done with.
    Request { packets: u32, ends: bool },
    /// A part of a send once more, because it alone was lost.
    Repeat { work: usize },
    /// Data or a result that the peer asked for; the place among the answers.
    Data { index: usize },
    /// An acknowledgement.
    Acknowledgement,
    /// A packet that is missing, to a peer that repeats it alone.
    Missing,
    /// A congestion notification.
    Notification,
}
