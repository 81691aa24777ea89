//! The stages that packets pass, each a small machine of its own.
//!
//! A stage is handed a packet with the packet's own time and hands it on with that time, or with a later one: what a
//! late timer costs in one stage is not added to the next. To add one: a type in a file of its own that implements
//! [`Impair`], a variant of [`crate::Stage`], and a field of [`Stages`].

mod backlog;
mod bottleneck;
mod codel;
mod corrupt;
mod delay;
mod duplicate;
mod link;
mod loss;
mod mtu;
mod reorder;

use nichrome_wire::Instant;

use crate::exits::{Exits, Transit};
use crate::random::Random;
use crate::{Impairments, Packet, Stage};

/// What a stage makes of a packet that enters it.
pub(crate) enum Passage<P> {
    /// The packet goes on at once.
    Onward(Transit<P>),
    /// So does a copy, after it.
    Doubled { original: Transit<P>, copy: Transit<P> },
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

/// All stages.
pub(crate) struct Stages<P> {
    mtu: mtu::MtuStage,
    loss: loss::LossStage,
    corrupt: corrupt::CorruptStage,
    duplicate: duplicate::DuplicateStage,
    bottleneck: bottleneck::Bottleneck<P>,
    delay: delay::DelayStage<P>,
    reorder: reorder::ReorderStage<P>,
}

impl<P: Packet> Stages<P> {
    /// Stages that do nothing yet; what they choose depends on `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            mtu: mtu::MtuStage::new(),
            loss: loss::LossStage::new(Random::new(seed, Stage::Loss)),
            corrupt: corrupt::CorruptStage::new(Random::new(seed, Stage::Corrupt)),
            duplicate: duplicate::DuplicateStage::new(Random::new(seed, Stage::Duplicate)),
            bottleneck: bottleneck::Bottleneck::new(),
            delay: delay::DelayStage::new(Random::new(seed, Stage::Delay)),
            reorder: reorder::ReorderStage::new(Random::new(seed, Stage::Reorder)),
        }
    }

    pub(crate) fn get(&self, stage: Stage) -> &dyn Impair<P> {
        match stage {
            Stage::Mtu => &self.mtu,
            Stage::Loss => &self.loss,
            Stage::Corrupt => &self.corrupt,
            Stage::Duplicate => &self.duplicate,
            Stage::Bottleneck => &self.bottleneck,
            Stage::Delay => &self.delay,
            Stage::Reorder => &self.reorder,
        }
    }

    pub(crate) fn get_mut(&mut self, stage: Stage) -> &mut dyn Impair<P> {
        match stage {
            Stage::Mtu => &mut self.mtu,
            Stage::Loss => &mut self.loss,
            Stage::Corrupt => &mut self.corrupt,
            Stage::Duplicate => &mut self.duplicate,
            Stage::Bottleneck => &mut self.bottleneck,
            Stage::Delay => &mut self.delay,
            Stage::Reorder => &mut self.reorder,
        }
    }
}
