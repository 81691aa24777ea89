//! Packets: an engine's datagram, or the outline of a transport without an engine.

use crate::{Fingerprint, TraceHash};

use super::baselines::ContextUse;
use super::lengths::UNDERLAY;
use super::side::Side;

/// The role of a packet for the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A packet of a stateful card's own work: needs the connection's context.
    Work,
    /// A response.
    Answer,
    /// A packet between StaR's drivers.
    Element,
    /// A packet of this flight of an operation without an engine; `is_last` in its flight.
    Outline { flight: u8, context: ContextUse, is_last: bool },
    /// The server's card has no context for the operation.
    Refused,
}

/// The ECN bits of a traffic class (RFC 3168).
const ECN: u8 = 0b11;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) connection: u32,
    pub(super) kind: Kind,
    /// The destination side.
    pub(super) to: Side,
    /// CE mark.
    pub(super) marked: bool,
    /// Length from the Ethernet header on, without frame check sequence, in bytes.
    pub(super) len: u32,
    /// The UDP payload; empty without an engine.
    pub(super) bytes: Vec<u8>,
    /// The UDP port.
    pub(super) port: u16,
    /// The traffic class.
    pub(super) class: u8,
}

impl Packet {
    /// Wraps an engine's datagram.
    pub(super) fn of_engine(
        connection: u32,
        to: Side,
        kind: Kind,
        bytes: Vec<u8>,
        port: u16,
        class: u8,
    ) -> Self {
        let len = (UNDERLAY + bytes.len()) as u32;
        Self { connection, kind, to, marked: false, len, bytes, port, class }
    }

    /// Creates a packet without an engine.
    pub(super) fn outline(connection: u32, to: Side, kind: Kind, len: u32) -> Self {
        Self { connection, kind, to, marked: false, len, bytes: Vec::new(), port: 0, class: 0 }
    }

    /// Returns true if the packet is ECN-capable.
    pub(super) fn is_markable(&self) -> bool {
        self.class & ECN != 0
    }
}

impl Fingerprint for Packet {
    fn fingerprint(&self) -> u64 {
        let header = self.bytes.first_chunk().copied().map_or(0, u128::from_be_bytes);
        let what = u64::from(self.marked) << 1 | self.to as u64;
        TraceHash::of(&[
            u64::from(self.connection) << 32 | u64::from(self.len),
            (header >> 64) as u64,
            header as u64,
            what,
        ])
    }
}
