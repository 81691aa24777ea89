//! Duplicates packets.

use nichrome_wire::Instant;

use super::impair::{Impair, Passage};
use crate::exits::{Exits, Transit};
use crate::random::{Chance, Random};
use crate::{Impairments, Packet, Probability};

pub(super) struct DuplicateStage {
    probability: Probability,
    random: Random,
}

impl DuplicateStage {
    pub(super) fn new(random: Random) -> Self {
        Self { probability: Probability::NEVER, random }
    }
}

impl<P: Packet> Impair<P> for DuplicateStage {
    fn configure(&mut self, impairments: &Impairments, _: Instant) {
        self.probability = impairments.duplicate;
    }

    fn is_idle(&self) -> bool {
        self.probability == Probability::NEVER
    }

    fn enter(&mut self, original: Transit<P>, _: Instant, exits: &mut Exits<P>) -> Passage<P> {
        let copy =
            if self.random.happens(Chance::from(self.probability)) { exits.copy(&original) } else { None };
        match copy {
            Some(copy) => Passage::Doubled { original, copy },
            None => Passage::Onward(original),
        }
    }
}
