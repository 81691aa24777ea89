//! What every stage does.

use nichrome_wire::Instant;

use crate::exits::{Exits, Transit};
use crate::{Impairments, Packet};

/// What a stage makes of a packet that enters it.
pub(crate) enum Passage<P> {
    /// The packet goes on at once.
    Onward(Transit<P>),
    /// So does a copy, after it.
    Doubled { original: Transit<P>, copy: Transit<P> },
    /// The packet goes on in parts, in this order.
    Fragmented(Vec<Transit<P>>),
    /// The stage holds the packet until later, or has dropped it.
    Ended,
}

/// A stage.
pub(crate) trait Impair<P: Packet> {
    /// Takes what concerns it of `impairments`, and begins anew only where that has changed. What is held stays.
    fn configure(&mut self, impairments: &Impairments, now: Instant);

    /// Takes a packet at `at`, which never goes back and is never after [`Impair::due`].
    fn enter(&mut self, transit: Transit<P>, at: Instant, exits: &mut Exits<P>) -> Passage<P>;

    /// Whether it does nothing and holds nothing, so that packets may go past it.
    fn is_idle(&self) -> bool;

    /// When [`Impair::fire`] is wanted.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does what is due next; returns the packet that goes on because of it, at the time at which it was due.
    fn fire(&mut self, exits: &mut Exits<P>) -> Option<Transit<P>> {
        let _ = exits;
        None
    }
}
