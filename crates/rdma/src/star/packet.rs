//! Parsed packets received by a connection, and packets to build and send.

use nichrome_wire::Ecn;
use nichrome_wire::star::{Authentication, GrantCode, Repr};

use super::flight::ChunkId;

/// A received packet with its payload and the ECN field of its IP header.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) repr: Repr,
    pub(crate) payload: &'a [u8],
    pub(crate) authentication: Option<Authentication>,
    pub(crate) ecn: Ecn,
}

/// The packet that a connection sends next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) repr: Repr,
    pub(crate) payload_len: usize,
    pub(crate) cause: Cause,
    /// The grant code for the memory of an RDP or GD.
    pub(crate) code: GrantCode,
    /// Bytes of the message before the payload of an RDP.
    pub(crate) offset: u32,
}

/// Why a packet is sent, which determines the state that changes when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An EA.
    Acknowledgement,
    /// A WQEP or CQEP.
    Element,
    /// A WQEP sent again to get an EA.
    Ping,
    /// An RDP or GD.
    Chunk(ChunkId),
}

/// A packet cannot be built: its memory or request no longer exists.
#[derive(Debug)]
pub(crate) struct Impossible;
