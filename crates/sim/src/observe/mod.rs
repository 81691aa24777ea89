//! Observation of a run: counters, time series, captures, progress.
//!
//! Observation is not an event: it does not change the trace hash.

mod capture;
mod counters;
mod series;

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use nichrome_wire::Instant;

pub use self::capture::{Capture, PacketSink, PointId};
pub use self::counters::Counters;
pub use self::series::{Probes, Sample, Series};
use crate::simulation::{Advance, Progress, Stop};

type ProgressHook = Box<dyn FnMut(Progress) -> ControlFlow<()>>;

/// Collects the observations of a run. By default counters only.
pub struct Observer {
    /// The counters.
    pub counters: Counters,
    /// The time series.
    pub series: Vec<Series>,
    /// The capture, from which a world records packets at any point.
    pub capture: Capture,
    threads: NonZeroUsize,
    sample_interval: Option<u64>,
    progress: Option<ProgressHook>,
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            series: Vec::new(),
            capture: Capture::default(),
            threads: NonZeroUsize::MIN,
            sample_interval: None,
            progress: None,
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("counters", &self.counters)
            .field("sample_interval", &self.sample_interval)
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Calls `hook` periodically; its result says whether to continue: see [`Advance::run_with_progress`].
    pub fn on_progress(&mut self, hook: impl FnMut(Progress) -> ControlFlow<()> + 'static) {
        self.progress = Some(Box::new(hook));
    }

    /// Lets a run use this many threads, if its model has [parts](crate::Parts). The results are the same.
    pub fn use_threads(&mut self, threads: NonZeroUsize) {
        self.threads = threads;
    }

    /// Returns how many threads a run may use.
    pub fn threads(&self) -> NonZeroUsize {
        self.threads
    }

    /// Samples the registered probes every `nanos` nanoseconds of virtual time, at least 1.
    pub fn sample_every(&mut self, nanos: u64) {
        self.sample_interval = Some(nanos.max(1));
    }

    /// Runs a simulation until `limit`, sampling at the start, at multiples of the interval and at the end.
    pub fn run<S: Advance>(
        &mut self,
        simulation: &mut S,
        limit: Instant,
        probes: &mut Probes<S::View>,
    ) -> Stop {
        match self.sample_interval.filter(|_| !probes.is_empty()) {
            Some(interval) => self.run_and_sample(simulation, limit, interval, probes),
            None => self.run_quietly(simulation, limit),
        }
    }

    /// Stores the probes' samples as time series.
    pub fn keep<W>(&mut self, probes: Probes<W>) {
        self.series.extend(probes.into_series().filter(|series| !series.samples.is_empty()));
    }

    fn run_and_sample<S: Advance>(
        &mut self,
        simulation: &mut S,
        limit: Instant,
        interval: u64,
        probes: &mut Probes<S::View>,
    ) -> Stop {
        let mut at = simulation.now();
        loop {
            let stop = self.run_quietly(simulation, at);
            probes.sample(simulation.view(), simulation.now());
            match stop {
                Stop::Limit if at < limit => {
                    at = at.plus_nanos(interval - at.as_nanos() % interval).min(limit);
                }
                // No events are left: the clock moves to the limit, as without probes.
                Stop::Idle => return self.run_quietly(simulation, limit),
                Stop::Limit | Stop::Interrupted => return stop,
            }
        }
    }

    fn run_quietly<S: Advance>(&mut self, simulation: &mut S, limit: Instant) -> Stop {
        match &mut self.progress {
            Some(hook) => simulation.run_with_progress(limit, hook),
            None => simulation.run_until(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::{EventQueue, Simulation, World};

    struct Ticks(u64);

    impl World for Ticks {
        type Event = u64;

        fn handle(&mut self, event: u64, queue: &mut EventQueue<u64>) {
            self.0 += event;
            if self.0 < 100_000 {
                queue.schedule_in(10, event);
            }
        }
    }

    fn ticks() -> Simulation<Ticks> {
        let mut simulation = Simulation::new(Ticks(0));
        simulation.queue.schedule(Instant::ZERO, 1);
        simulation
    }

    #[test]
    fn samples_come_at_their_times_and_change_nothing() {
        let limit = Instant::from_nanos(1000);
        let (mut plain, mut sampled) = (ticks(), ticks());
        plain.run_until(limit);
        let mut observer = Observer::default();
        observer.sample_every(300);
        let mut probes = Probes::new();
        probes.register("ticks", "", |world: &Ticks, _| world.0 as f64);
        probes.register_rate("rate", "ticks/us", 1000.0, |world, _| world.0);
        for limit in [Instant::from_nanos(450), limit] {
            assert_eq!(observer.run(&mut sampled, limit, &mut probes), Stop::Limit);
        }
        observer.keep(probes);
        let samples: Vec<_> =
            observer.series[0].samples.iter().map(|sample| (sample.time.as_nanos(), sample.value)).collect();
        assert_eq!(samples, [(0, 1.0), (300, 31.0), (450, 46.0), (600, 61.0), (900, 91.0), (1000, 101.0)]);
        let rates: Vec<_> = observer.series[1].samples.iter().map(|sample| sample.value).collect();
        assert_eq!(rates, [0.0, 100.0, 100.0, 100.0, 100.0, 100.0]);
        assert_eq!(plain.trace_hash(), sampled.trace_hash());
    }

    #[test]
    fn a_long_run_shows_its_progress() {
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let mut observer = Observer::default();
        observer.on_progress(move |_| {
            counted.set(counted.get() + 1);
            ControlFlow::Continue(())
        });
        assert_eq!(observer.run(&mut ticks(), Instant::MAX, &mut Probes::new()), Stop::Idle);
        assert_eq!(calls.get(), 1);
    }
}
