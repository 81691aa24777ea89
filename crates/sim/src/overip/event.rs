//! The events of the test bed.

use super::adapter::{CompleteFpdus, Request};
use super::processors::Wake;
use super::router::Port;
use crate::{Fingerprint, Packet, TraceHash};

/// An event.
pub(super) enum Event {
    /// Clients connect and programs begin.
    Start,
    /// A processor of a node may have completed its work.
    Processor(usize, Wake),
    /// The driver passes a frame to a node's card.
    Driver(usize, Packet),
    /// The card has read a frame from memory.
    Fetched(usize, Packet),
    /// The card transmits a frame.
    Wire(usize, Packet),
    /// A frame arrives at a switch.
    AtSwitch(usize, Packet),
    /// A frame arrives at a card of the router.
    AtRouter(Port, Packet),
    /// The interrupt timer of a router's card.
    RouterInterrupt(Port, u64),
    /// The router forwards a frame.
    Forward(Port, Packet),
    /// degen's timer.
    Degen(Port),
    /// A frame arrives at a node's card.
    AtCard(usize, Packet),
    /// The card has processed the frame.
    FromCard(usize, Packet),
    /// The frame is in host memory.
    InMemory(usize, Packet),
    /// The kernel has processed the frame's interrupt.
    Kernel(usize, Packet),
    /// The card has read a work request for a node.
    Doorbell(usize, usize, Request),
    /// The card has processed the work request.
    Posted(usize, usize, Request),
    /// The card has processed messages of a connection.
    Delivered(usize, usize, CompleteFpdus),
    /// Their payload is in memory.
    Placed(usize, usize, CompleteFpdus),
    /// TCP's timer.
    Tcp(usize),
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        let of = |kind: u64, place: usize, packet: &Packet| {
            TraceHash::of(&[kind, place as u64, packet.fingerprint()])
        };
        let request = |kind: u64, node: usize, peer: usize, request: &Request| {
            let Request { connection, len, message } = *request;
            let message = message.map_or(0, |message| message + 1);
            TraceHash::of(&[kind, node as u64, peer as u64, connection as u64, len as u64, message])
        };
        let fpdus = |kind: u64, node: usize, connection: usize, fpdus: &CompleteFpdus| {
            let CompleteFpdus { bytes, messages, payload } = *fpdus;
            TraceHash::of(&[kind, node as u64, connection as u64, bytes as u64, messages, payload as u64])
        };
        match self {
            Self::Start => TraceHash::of(&[0]),
            Self::Processor(node, wake) => {
                TraceHash::of(&[1, *node as u64, wake.processor as u64, wake.begun])
            }
            Self::Driver(node, frame) => of(2, *node, frame),
            Self::Fetched(node, frame) => of(3, *node, frame),
            Self::Wire(node, frame) => of(4, *node, frame),
            Self::AtSwitch(switch, frame) => of(5, *switch, frame),
            Self::AtRouter(port, frame) => of(6, *port, frame),
            Self::RouterInterrupt(port, interrupts) => TraceHash::of(&[7, *port as u64, *interrupts]),
            Self::Forward(port, frame) => of(8, *port, frame),
            Self::Degen(port) => TraceHash::of(&[9, *port as u64]),
            Self::AtCard(node, frame) => of(10, *node, frame),
            Self::FromCard(node, frame) => of(11, *node, frame),
            Self::InMemory(node, frame) => of(12, *node, frame),
            Self::Kernel(node, frame) => of(13, *node, frame),
            Self::Doorbell(node, peer, what) => request(14, *node, *peer, what),
            Self::Posted(node, peer, what) => request(15, *node, *peer, what),
            Self::Delivered(node, connection, what) => fpdus(16, *node, *connection, what),
            Self::Placed(node, connection, what) => fpdus(17, *node, *connection, what),
            Self::Tcp(node) => TraceHash::of(&[18, *node as u64]),
        }
    }
}
