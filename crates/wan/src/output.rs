//! The outputs of a path.

use nichrome_wire::Instant;

use crate::DropReason;

/// An output of a [`Path`](crate::Path).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<P> {
    /// The packet leaves the path.
    Released(Departure<P>),
    /// The packet is dropped.
    Dropped {
        /// The packet.
        packet: P,
        /// The reason.
        reason: DropReason,
    },
}

/// A packet that leaves the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<P> {
    /// The packet, possibly marked or corrupted.
    pub packet: P,
    /// Arrival time; for a copy, that of its original.
    pub arrived: Instant,
    /// Scheduled departure time. The difference to the actual departure is the driver's lateness.
    pub due: Instant,
}
