//! What comes out of a path.

use nichrome_wire::Instant;

use crate::DropReason;

/// What comes out of a [`Path`](crate::Path).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<P> {
    /// The packet has come through.
    Released(Departure<P>),
    /// The packet has not.
    Dropped {
        /// The packet.
        packet: P,
        /// Why.
        reason: DropReason,
    },
}

/// A packet that has come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<P> {
    /// The packet, marked or corrupted maybe.
    pub packet: P,
    /// When it came in: for a copy, when its original did.
    pub arrived: Instant,
    /// When it was to leave. What the driver is late is the time that passes until it does.
    pub due: Instant,
}
