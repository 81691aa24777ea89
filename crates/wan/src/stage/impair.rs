//! The trait of all stages.

use nichrome_wire::Instant;

use crate::exits::{Exits, Transit};
use crate::{Impairments, Packet};

/// The result of a packet entering a stage.
pub(crate) enum Passage<P> {
    /// The packet continues at once.
    Onward(Transit<P>),
    /// The packet and then a copy continue.
    Doubled { original: Transit<P>, copy: Transit<P> },
    /// The packet continues as fragments, in this order.
    Fragmented(Vec<Transit<P>>),
    /// The stage holds or dropped the packet.
    Ended,
}

/// A stage.
pub(crate) trait Impair<P: Packet> {
    /// Applies its part of `impairments`; resets its state only if that part has changed. Held packets stay.
    fn configure(&mut self, impairments: &Impairments, now: Instant);

    /// Passes a packet at `at`, which never decreases and is never after [`Impair::due`].
    fn enter(&mut self, transit: Transit<P>, at: Instant, exits: &mut Exits<P>) -> Passage<P>;

    /// Returns true if the stage does nothing and holds nothing, so that packets may bypass it.
    fn is_idle(&self) -> bool;

    /// Returns when to call [`Impair::fire`].
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Processes the next due event; returns the packet that continues, at the time when the event was due.
    fn fire(&mut self, exits: &mut Exits<P>) -> Option<Transit<P>> {
        let _ = exits;
        None
    }
}
