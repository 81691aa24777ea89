//! Packets on their way in and out.

use nichrome_wire::Ecn;
use nichrome_wire::star::{Authentication, Repr};

use super::flight::Place;

/// A packet that came in for a connection, with the payload and what its IP header says of congestion.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) repr: Repr,
    pub(crate) payload: &'a [u8],
    pub(crate) authentication: Option<Authentication>,
    pub(crate) ecn: Ecn,
}

/// The packet that a connection would send next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) repr: Repr,
    pub(crate) payload_len: usize,
    pub(crate) cause: Cause,
}

/// What a packet is sent for, and so what its leaving changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Elements have come.
    Acknowledgement,
    /// An element.
    Element,
    /// A sign of life is wanted.
    Ping,
    /// A chunk of an operation.
    Chunk(Place),
}

/// A packet cannot be made: what it needs is gone.
#[derive(Debug)]
pub(crate) struct Impossible;
