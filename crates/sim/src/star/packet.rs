//! What travels: a datagram that an engine has built, or one of which only length and meaning are known.

use crate::{Fingerprint, TraceHash};

use super::lengths::UNDERLAY;

/// The two ends of a connection. The client asks; with StaR it is the stateful one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client = 0,
    Server = 1,
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What a packet is to the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What a card with state sends by itself: it needs the connection's context.
    Work,
    /// What answers a packet, and what a driver sends.
    Answer,
    /// Datagrams of software, without an engine: a packet of a request or a response, and whether it is the last.
    Request(bool),
    Response(bool),
}

/// The bits of a traffic class that say whether a packet can be marked (RFC 3168).
const ECN: u8 = 0b11;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) connection: u32,
    pub(super) kind: Kind,
    /// Where it goes.
    pub(super) to: Side,
    /// "Congestion experienced".
    pub(super) marked: bool,
    /// Bytes from its Ethernet header on, without the frame check sequence.
    pub(super) len: u32,
    /// The UDP payload; none without an engine.
    pub(super) bytes: Vec<u8>,
    /// The UDP port.
    pub(super) port: u16,
    /// The traffic class that it was sent with.
    pub(super) class: u8,
}

impl Packet {
    /// A datagram that an engine has built.
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

    /// A datagram of software.
    pub(super) fn of_software(connection: u32, to: Side, kind: Kind, len: u32) -> Self {
        Self { connection, kind, to, marked: false, len, bytes: Vec::new(), port: 0, class: 0 }
    }

    /// Whether a switch may mark it.
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
