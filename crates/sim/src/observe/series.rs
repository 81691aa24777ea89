//! Time series sampled from a world.

use std::fmt;

use nichrome_wire::Instant;

/// A time series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name.
    pub name: String,
    /// The unit; empty for a count.
    pub unit: &'static str,
    /// The samples in time order.
    pub samples: Vec<Sample>,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The time; the sample is taken after all events of that time.
    pub time: Instant,
    /// The value.
    pub value: f64,
}

/// The registered probes.
pub struct Probes<W>(Vec<Probe<W>>);

impl<W> fmt::Debug for Probes<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes").finish_non_exhaustive()
    }
}

type Read<W> = Box<dyn FnMut(&W, Instant) -> f64>;

struct Probe<W> {
    read: Read<W>,
    series: Series,
}

impl<W> Default for Probes<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Probes<W> {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Registers a value. `read` may keep state between samples, such as a counter's last value for a rate.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        read: impl FnMut(&W, Instant) -> f64 + 'static,
    ) {
        let series = Series { name: name.into(), unit, samples: Vec::new() };
        self.0.push(Probe { read: Box::new(read), series });
    }

    /// Registers the rate of a counter: its increase per nanosecond since the last sample, times `scale`. The
    /// first sample is 0.
    pub fn register_rate(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        scale: f64,
        count: impl Fn(&W, Instant) -> u64 + 'static,
    ) {
        let mut last: Option<(Instant, u64)> = None;
        self.register(name, unit, move |world, now| {
            let counted = count(world, now);
            let (before, at) = last.replace((now, counted)).map_or((counted, now), |(at, count)| (count, at));
            let nanos = now.nanos_since(at).max(1);
            counted.saturating_sub(before) as f64 / nanos as f64 * scale
        });
    }

    /// Returns true if no probe is registered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Samples all probes, unless done at this time already.
    pub fn sample(&mut self, world: &W, time: Instant) {
        let is_new = |probe: &&mut Probe<W>| probe.series.samples.last().is_none_or(|last| last.time < time);
        for probe in self.0.iter_mut().filter(is_new) {
            let value = (probe.read)(world, time);
            probe.series.samples.push(Sample { time, value });
        }
    }

    /// Returns the time series in order of registration.
    pub fn into_series(self) -> impl Iterator<Item = Series> {
        self.0.into_iter().map(|probe| probe.series)
    }
}
