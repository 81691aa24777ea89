//! What travels: a packet of which only length and meaning are known.

use crate::{Fingerprint, TraceHash};

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

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reliable connections of RoCEv2: a packet of a message, and what answers it.
    Data,
    Ack,
    Nak,
    /// Unreliable datagrams of RoCEv2.
    Request,
    Response,
    /// StaR's, as the paper names them.
    Wqep,
    Cqep,
    Ea,
    Rdp,
    Ra,
    Gd,
    Sdp,
}

impl Kind {
    /// Whether a switch may mark it: what carries data.
    pub(super) const fn is_markable(self) -> bool {
        matches!(self, Self::Data | Self::Rdp | Self::Sdp)
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) connection: u32,
    /// Of a packet or an element; of what answers, the next one that is expected, or the one that is answered (RA, SDP).
    pub(super) sequence: u32,
    pub(super) kind: Kind,
    /// Where it goes.
    pub(super) to: Side,
    /// "Congestion experienced": on its own way, or, of what answers, on the way of what it answers.
    pub(super) marked: bool,
    /// Bytes.
    pub(super) len: u32,
}

impl Fingerprint for Packet {
    fn fingerprint(&self) -> u64 {
        let what = (self.kind as u64) << 2 | (self.to as u64) << 1 | u64::from(self.marked);
        TraceHash::of(&[
            u64::from(self.connection) << 32 | u64::from(self.sequence),
            u64::from(self.len) << 8 | what,
        ])
    }
}
