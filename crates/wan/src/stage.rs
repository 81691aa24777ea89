//! The stages that packets pass, each a small state machine.
//!
//! A stage receives a packet with the packet's own logical time and passes it on with that time or a later
//! one: a late timer in one stage does not delay the next. To add a stage: a type in its own file that
//! implements [`Impair`], a variant of [`crate::Stage`], and a field of [`Stages`].

mod backlog;
mod bottleneck;
mod codel;
mod corrupt;
mod delay;
mod duplicate;
mod impair;
mod link;
mod loss;
mod mtu;
mod reorder;

use self::impair::Impair;
pub(crate) use self::impair::Passage;

use crate::random::Random;
use crate::{Packet, Stage};

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
    /// Creates idle stages whose random choices depend on `seed`.
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
