//! Holds packets back while later ones overtake them.

use nichrome_wire::Instant;

use super::impair::{Impair, Passage};
use crate::exits::{Exits, Transit};
use crate::random::{Chance, Random};
use crate::schedule::Schedule;
use crate::{Impairments, Packet, Reorder};

pub(super) struct ReorderStage<P> {
    reorder: Option<Reorder>,
    held: Schedule<Transit<P>>,
    random: Random,
}

impl<P> ReorderStage<P> {
    pub(super) fn new(random: Random) -> Self {
        Self { reorder: None, held: Schedule::new(), random }
    }

    /// Decides whether to hold back a packet that arrives at `at`; returns the time until which it is held.
    fn held_until(&mut self, at: Instant) -> Option<Instant> {
        let reorder = self.reorder?;
        let is_held = self.random.happens(Chance::from(reorder.probability()));
        is_held.then(|| at.plus_nanos(reorder.hold().nanos()))
    }
}

impl<P: Packet> Impair<P> for ReorderStage<P> {
    fn configure(&mut self, impairments: &Impairments, _: Instant) {
        self.reorder = impairments.reorder;
    }

    fn is_idle(&self) -> bool {
        self.reorder.is_none() && self.held.is_empty()
    }

    fn enter(&mut self, transit: Transit<P>, at: Instant, _: &mut Exits<P>) -> Passage<P> {
        match self.held_until(at) {
            Some(until) => {
                self.held.push(transit, until, at);
                Passage::Ended
            }
            None => Passage::Onward(transit),
        }
    }

    fn due(&self) -> Option<Instant> {
        self.held.next()
    }

    fn fire(&mut self, _: &mut Exits<P>) -> Option<Transit<P>> {
        self.held.pop()
    }
}
