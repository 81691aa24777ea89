//! Received packets and packets to send, between the wire format and requester or responder.

use nichrome_wire::rdma::{Message, PKey, Psn, RKey, SrqNumber};
use nichrome_wire::{AddressPair, SeqNumber, TrafficClass};

use crate::core::kind;
use crate::core::send_queue::Source;
use crate::core::slab::Handle;

/// The content of a received request or answer.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) psn: Psn,
    /// The shared receive queue that an XRC request names; 0 for others.
    pub(super) srq: SrqNumber,
    pub(super) ack_request: bool,
    pub(super) solicited: bool,
    /// The sender accepts selective NAKs.
    pub(super) selective: bool,
    /// The sender received packets with a congestion mark.
    pub(super) ecn_echo: bool,
    pub(super) payload: &'a [u8],
    pub(super) addresses: AddressPair,
    pub(super) traffic_class: TrafficClass,
}

/// The packet that a queue pair sends next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) message: Message,
    pub(super) psn: Psn,
    pub(super) ack_request: bool,
    pub(super) solicited: bool,
    pub(super) payload: PayloadSource,
    pub(super) payload_len: usize,
    pub(super) cause: Cause,
}

/// Where the payload of a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadSource {
    Nothing,
    /// The buffers of a send.
    Send {
        source: Source,
        offset: u32,
    },
    /// Memory that the peer READs.
    Remote {
        domain: Handle<kind::Domain>,
        address: u64,
        rkey: RKey,
    },
}

/// The cause of a sent packet, which determines the state that changes when the packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A request packet: how many PSNs it takes, and whether it ends the send.
    Request { packets: u32, ends: bool },
    /// A single lost packet of a send.
    Repeat { work: usize },
    /// A READ response or the result of an atomic; the place among the answers.
    Data { index: usize },
    /// An ACK or NAK.
    Acknowledgement,
    /// A selective NAK.
    Missing,
    /// A congestion notification.
    Notification,
}

/// Returns a PSN as a sequence number for congestion controllers. The 24 bits are at the top, so that
/// comparison modulo 2³² has the PSNs' order.
#[inline]
pub(super) fn serial(psn: Psn) -> SeqNumber {
    SeqNumber(psn.value() << 8)
}

/// Returns true if a packet is of the default partition, as full or limited member (IBA 10.9.3).
#[inline]
pub(super) fn is_of_partition(pkey: PKey) -> bool {
    pkey.0 & 0x7FFF == PKey::default().0 & 0x7FFF
}
