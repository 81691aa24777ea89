//! Requests of reliable connections that are kept until earlier ones arrive.

use std::collections::VecDeque;

use nichrome_wire::rdma::{Psn, RcMessage, SrqNumber};
use nichrome_wire::{AddressPair, TrafficClass};

use super::packet::Incoming;

/// A request that is kept.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) message: RcMessage,
    pub(super) psn: Psn,
    srq: SrqNumber,
    ack_request: bool,
    solicited: bool,
    addresses: AddressPair,
    traffic_class: TrafficClass,
    payload: Vec<u8>,
}

impl HeldRequest {
    /// Creates a request with a copy of its payload.
    pub(super) fn new(message: RcMessage, request: &Incoming<'_>, payload: Vec<u8>) -> Self {
        let Incoming { psn, srq, ack_request, solicited, addresses, traffic_class, .. } = *request;
        Self { message, psn, srq, ack_request, solicited, addresses, traffic_class, payload }
    }

    pub(super) fn incoming(&self) -> Incoming<'_> {
        Incoming {
            psn: self.psn,
            srq: self.srq,
            ack_request: self.ack_request,
            solicited: self.solicited,
            selective: true,
            ecn_echo: false,
            payload: &self.payload,
            addresses: self.addresses,
            traffic_class: self.traffic_class,
        }
    }

    /// Returns the buffer of the payload.
    pub(super) fn into_payload(self) -> Vec<u8> {
        self.payload
    }
}

/// The kept requests of one queue pair, in order.
#[derive(Debug, Default)]
pub(super) struct HeldRequests {
    /// The request at index n has the expected PSN + n.
    pub(super) requests: VecDeque<Option<HeldRequest>>,
    /// Packets that selective NAKs are to name.
    pub(super) missing: VecDeque<Psn>,
}
