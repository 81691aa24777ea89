//! A simulation run: a world, its event loop, and the trace hash.

use std::ops::ControlFlow;

use nichrome_wire::Instant;

use crate::{EventQueue, Fingerprint, TraceHash};

/// The simulated system: its parts and event handlers.
pub trait World {
    /// The events.
    type Event: Fingerprint;

    /// Handles an event at `queue.now()` and schedules the following ones.
    fn handle(&mut self, event: Self::Event, queue: &mut EventQueue<Self::Event>);
}

/// A simulation that advances in virtual time, whole or in parts.
pub trait Advance {
    /// The state that probes read.
    type View;

    /// Returns the state that probes read.
    fn view(&self) -> &Self::View;

    /// Returns the virtual time.
    fn now(&self) -> Instant;

    /// Handles all events due at or before `limit`, where the clock ends.
    fn run_until(&mut self, limit: Instant) -> Stop;

    /// As [`Self::run_until`], calling `progress` about every [`Simulation::EVENTS_PER_PROGRESS`] events; its
    /// result says whether to continue.
    fn run_with_progress(
        &mut self,
        limit: Instant,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Stop;
}

/// A running simulation. Independent of machine and clock: equal worlds and events give equal runs.
#[derive(Debug)]
pub struct Simulation<W: World> {
    /// The world; accessible between runs.
    pub world: W,
    /// The pending events.
    pub queue: EventQueue<W::Event>,
    trace: TraceHash,
    events: u64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub now: Instant,
    /// Events handled since the start of the simulation.
    pub events: u64,
}

/// Why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the time limit; later events may be pending.
    Limit,
    /// No event is pending.
    Idle,
    /// The progress hook stopped it.
    Interrupted,
}

impl<W: World> Simulation<W> {
    /// Events between two calls of a progress hook.
    pub const EVENTS_PER_PROGRESS: u64 = 1 << 16;

    /// Creates a simulation at time 0 without events.
    pub fn new(world: W) -> Self {
        Self { world, queue: EventQueue::new(), trace: TraceHash::default(), events: 0 }
    }

    /// Handles all events due at or before `limit`, where the clock ends.
    pub fn run_until(&mut self, limit: Instant) -> Stop {
        while let Some((time, event)) = self.queue.pop_until(limit) {
            self.step(time, event);
        }
        self.reached()
    }

    /// As [`Self::run_until`], calling `progress` every [`Simulation::EVENTS_PER_PROGRESS`] events; its
    /// result says whether to continue.
    pub fn run_with_progress(
        &mut self,
        limit: Instant,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Stop {
        loop {
            for _ in 0..Self::EVENTS_PER_PROGRESS {
                let Some((time, event)) = self.queue.pop_until(limit) else { return self.reached() };
                self.step(time, event);
            }
            if progress(Progress { now: self.now(), events: self.events }).is_break() {
                return Stop::Interrupted;
            }
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.queue.now()
    }

    /// Returns the number of events handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the hash of times and fingerprints of all events handled, in order.
    pub fn trace_hash(&self) -> u64 {
        self.trace.value()
    }

    #[inline]
    fn step(&mut self, time: Instant, event: W::Event) {
        self.trace.add(time.as_nanos());
        self.trace.add(event.fingerprint());
        self.events += 1;
        self.world.handle(event, &mut self.queue);
    }

    fn reached(&self) -> Stop {
        if self.queue.is_empty() { Stop::Idle } else { Stop::Limit }
    }
}

impl<W: World> Advance for Simulation<W> {
    type View = W;

    fn view(&self) -> &W {
        &self.world
    }

    fn now(&self) -> Instant {
        Self::now(self)
    }

    fn run_until(&mut self, limit: Instant) -> Stop {
        Self::run_until(self, limit)
    }

    fn run_with_progress(
        &mut self,
        limit: Instant,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Stop {
        Self::run_with_progress(self, limit, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down; each event schedules the next, a microsecond later.
    #[derive(Default)]
    struct Countdown {
        seen: Vec<u64>,
    }

    impl World for Countdown {
        type Event = u64;

        fn handle(&mut self, event: u64, queue: &mut EventQueue<u64>) {
            self.seen.push(event);
            if let Some(next) = event.checked_sub(1) {
                queue.schedule_in(1000, next);
            }
        }
    }

    fn countdown(from: u64) -> Simulation<Countdown> {
        let mut simulation = Simulation::new(Countdown::default());
        simulation.queue.schedule(Instant::from_nanos(500), from);
        simulation
    }

    #[test]
    fn a_run_stops_at_its_limit_and_goes_on_from_there() {
        let mut simulation = countdown(3);
        assert_eq!(simulation.run_until(Instant::from_nanos(1500)), Stop::Limit);
        assert_eq!((&simulation.world.seen[..], simulation.now()), (&[3, 2][..], Instant::from_nanos(1500)));
        assert_eq!(simulation.run_until(Instant::from_nanos(9000)), Stop::Idle);
        assert_eq!((&simulation.world.seen[..], simulation.events()), (&[3, 2, 1, 0][..], 4));
        assert_eq!(simulation.now(), Instant::from_nanos(9000));
    }

    #[test]
    fn the_trace_tells_runs_apart_and_not_how_they_were_cut() {
        let (mut whole, mut cut, mut other) = (countdown(9), countdown(9), countdown(8));
        whole.run_until(Instant::MAX);
        other.run_until(Instant::MAX);
        for nanos in [1, 777, 4000, 1_000_000] {
            cut.run_until(Instant::from_nanos(nanos));
        }
        assert_eq!(whole.trace_hash(), cut.trace_hash());
        assert_ne!(whole.trace_hash(), other.trace_hash());
    }

    #[test]
    fn the_progress_hook_sees_long_runs_and_can_end_them() {
        let mut simulation = countdown(200_000);
        let mut calls = Vec::new();
        let stop = simulation.run_with_progress(Instant::MAX, |progress| {
            calls.push(progress.events);
            if calls.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((stop, &calls[..]), (Stop::Interrupted, &[65_536, 131_072][..]));
        let stop = simulation.run_with_progress(Instant::MAX, |_| ControlFlow::Continue(()));
        assert_eq!((stop, simulation.events()), (Stop::Idle, 200_001));
    }
}
