//! Delay and jitter: degen, the delay generator of papers/rdma-over-ip section 3.
//!
//! A packet is stamped on arrival and leaves at its stamp plus the delay. Packets wait with their own stamps,
//! so that the delays of a burst do not add up.

use nichrome_wire::Instant;

use super::impair::{Impair, Passage};
use crate::exits::{Exits, Transit};
use crate::random::Random;
use crate::sampler::Sampler;
use crate::schedule::Schedule;
use crate::{Delay, Impairments, Jitter, JitterOrder, Packet, Stats};

pub(super) struct DelayStage<P> {
    delay: Delay,
    jitter: Option<(Jitter, Sampler)>,
    order: JitterOrder,
    waiting: Schedule<Transit<P>>,
    /// The latest departure time of all packets so far.
    last: Instant,
    random: Random,
}

impl<P> DelayStage<P> {
    pub(super) fn new(random: Random) -> Self {
        Self {
            delay: Delay::ZERO,
            jitter: None,
            order: JitterOrder::Keep,
            waiting: Schedule::new(),
            last: Instant::ZERO,
            random,
        }
    }

    /// Returns the departure time of a packet that arrives at `at`. Order is kept even if the delay was
    /// shortened.
    fn leaves(&mut self, at: Instant, stats: &mut Stats) -> Instant {
        let Some((_, sampler)) = &self.jitter else {
            return self.in_order(at.plus_nanos(self.delay.nanos()));
        };
        let drawn = self.delay.nanos().saturating_add_signed(sampler.deviation(&mut self.random));
        let leaves = self.in_order(at.plus_nanos(drawn));
        stats.drawn.record_nanos(drawn);
        stats.kept_in_order.record_nanos(leaves.nanos_since(at.plus_nanos(drawn)));
        leaves
    }

    fn in_order(&self, leaves: Instant) -> Instant {
        match self.order {
            JitterOrder::Keep => leaves.max(self.last),
            JitterOrder::Reorder => leaves,
        }
    }
}

impl<P: Packet> Impair<P> for DelayStage<P> {
    fn configure(&mut self, impairments: &Impairments, _: Instant) {
        self.delay = impairments.delay;
        self.order = impairments.jitter_order;
        if self.jitter.as_ref().map(|(jitter, _)| jitter) != impairments.jitter.as_ref() {
            self.jitter = impairments.jitter.clone().map(|jitter| (jitter.clone(), Sampler::from(jitter)));
        }
    }

    fn is_idle(&self) -> bool {
        self.delay == Delay::ZERO && self.jitter.is_none() && self.waiting.is_empty()
    }

    fn enter(&mut self, transit: Transit<P>, at: Instant, exits: &mut Exits<P>) -> Passage<P> {
        let leaves = self.leaves(at, &mut exits.stats);
        self.last = self.last.max(leaves);
        self.waiting.push(transit, leaves, at);
        Passage::Ended
    }

    fn due(&self) -> Option<Instant> {
        self.waiting.next()
    }

    fn fire(&mut self, _: &mut Exits<P>) -> Option<Transit<P>> {
        self.waiting.pop()
    }
}
