//! The path engine: one direction.

use std::fmt;

use nichrome_wire::{Engine, Instant};

use crate::exits::{Exits, Transit};
use crate::stage::{Passage, Stages};
use crate::{ConfigError, Departure, Impairments, Order, Output, Packet, Stage, Stats};

/// One direction of a path.
///
/// Events take effect in the order of their scheduled times, however late the driver passes the time: equal
/// inputs give equal outputs with equal [`Departure::due`](crate::Departure::due). Allocates nothing in the
/// steady state; memory grows to the maximum number of packets in flight.
pub struct Path<P> {
    stages: Stages<P>,
    /// The active stages, in order.
    route: Vec<Stage>,
    exits: Exits<P>,
    now: Instant,
}

impl<P> fmt::Debug for Path<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path").field("route", &self.route).field("now", &self.now).finish_non_exhaustive()
    }
}

impl<P: Packet> Path<P> {
    /// Creates a path whose random choices depend on `seed` only.
    ///
    /// # Errors
    /// The impairments contradict each other.
    pub fn new(impairments: &Impairments, seed: u64) -> Result<Self, ConfigError> {
        let (stages, exits) = (Stages::new(seed), Exits::new(impairments.limit));
        let mut path = Self { stages, route: Vec::new(), exits, now: Instant::ZERO };
        path.reconfigure(impairments, Instant::ZERO)?;
        Ok(path)
    }

    /// Changes the impairments from `now` on. Packets that are delayed, held back or in transmission keep
    /// their times; packets in the bottleneck's queue are sent at the new rate; each continues from its
    /// stage's new position. No accepted packet is lost, and counters continue. A stage whose impairment is
    /// unchanged keeps its state.
    ///
    /// # Errors
    /// The impairments contradict each other. The path is unchanged then.
    pub fn reconfigure(&mut self, impairments: &Impairments, now: Instant) -> Result<(), ConfigError> {
        impairments.validate()?;
        self.pass_time(now);
        self.exits.set_limit(impairments.limit);
        for stage in Stage::ALL {
            self.stages.get_mut(stage).configure(impairments, self.now);
        }
        self.route = route(&impairments.order, &self.stages);
        Ok(())
    }

    /// Receives a packet as [`Engine::receive`] does. Without impairments and pending outputs, returns the
    /// packet at once instead of queueing it for [`Engine::poll`].
    #[inline]
    pub fn receive_at_once(&mut self, packet: P, now: Instant) -> Option<Departure<P>> {
        self.pass_time(now);
        let transit = self.exits.admit(packet, self.now)?;
        if self.is_clear() {
            return Some(self.exits.depart(transit, self.now));
        }
        self.travel(transit, 0, self.now);
        None
    }

    /// Counts packets of these lengths in bytes that arrive at `now` and leave at once. Returns false, and
    /// does nothing, if the path has impairments or pending outputs.
    #[inline]
    pub fn count_passed(&mut self, lens: impl Iterator<Item = usize>, now: Instant) -> bool {
        if !self.is_clear() {
            return false;
        }
        self.now = self.now.max(now);
        self.exits.count_passed(lens);
        true
    }

    /// Returns true if packets leave at once: no stage is active and no output is pending.
    #[inline]
    fn is_clear(&self) -> bool {
        self.route.is_empty() && !self.exits.has_outputs()
    }

    /// Returns true if the path may hold packets that it receives: it has a bottleneck, a delay or
    /// reordering. Without these, each packet leaves at once or is dropped.
    pub fn holds_packets(&self) -> bool {
        self.route.iter().any(|stage| matches!(stage, Stage::Bottleneck | Stage::Delay | Stage::Reorder))
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.exits.stats
    }

    /// Returns the number of packets in flight.
    pub fn in_flight(&self) -> usize {
        self.exits.in_flight()
    }

    /// Processes all events due until `now`.
    fn pass_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.step() {}
    }

    /// Processes the next due event, if any; returns true if there was one.
    fn step(&mut self) -> bool {
        let Some((at, place)) = self.next_event().filter(|(at, _)| *at <= self.now) else { return false };
        let Some(stage) = self.route.get(place) else { return false };
        if let Some(transit) = self.stages.get_mut(*stage).fire(&mut self.exits) {
            self.travel(transit, place + 1, at);
        }
        true
    }

    /// Returns the time and stage position of the next event. Of simultaneous events the last stage goes
    /// first, so that packets leave before others take their places.
    #[inline]
    fn next_event(&self) -> Option<(Instant, usize)> {
        let due = |(place, stage): (usize, &Stage)| Some((self.stages.get(*stage).due()?, place));
        self.route.iter().enumerate().rev().filter_map(due).min_by_key(|(at, _)| *at)
    }

    /// Passes a packet through the stages from `place` on, until one holds or drops it.
    fn travel(&mut self, mut transit: Transit<P>, place: usize, at: Instant) {
        for next in place..self.route.len() {
            match self.stages.get_mut(self.route[next]).enter(transit, at, &mut self.exits) {
                Passage::Onward(onward) => transit = onward,
                Passage::Doubled { original, copy } => {
                    self.travel(original, next + 1, at);
                    transit = copy;
                }
                Passage::Fragmented(fragments) => {
                    return fragments.into_iter().for_each(|fragment| self.travel(fragment, next + 1, at));
                }
                Passage::Ended => return,
            }
        }
        self.exits.release(transit, at);
    }
}

/// Returns the stages that packets pass, in order.
fn route<P: Packet>(order: &Order, stages: &Stages<P>) -> Vec<Stage> {
    let mut route: Vec<_> = Stage::ALL.into_iter().filter(|stage| !stages.get(*stage).is_idle()).collect();
    route.sort_by_key(|stage| order.place(*stage));
    route
}

impl<P: Packet> Engine for Path<P> {
    type Input = P;
    type Output = Output<P>;

    #[inline]
    fn receive(&mut self, packet: P, now: Instant) {
        self.pass_time(now);
        if let Some(transit) = self.exits.admit(packet, self.now) {
            self.travel(transit, 0, self.now);
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Output<P>> {
        loop {
            if let Some(output) = self.exits.poll() {
                return Some(output);
            }
            if !self.step() {
                return None;
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.next_event().map(|(at, _)| at)
    }

    /// Defers all work to [`Engine::poll`], which produces one output at a time, so that outputs never
    /// accumulate.
    #[inline]
    fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}
