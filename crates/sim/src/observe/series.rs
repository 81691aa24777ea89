//! Time series: numbers of a world, read at intervals.

use nichrome_wire::Instant;

/// One number over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// In the order of time.
    pub samples: Vec<Sample>,
}

/// A number at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When it was read, after everything that happened at this time.
    pub time: Instant,
    /// What it was.
    pub value: f64,
}

/// What is read from a world.
pub struct Probes<W>(Vec<Probe<W>>);

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
    /// Nothing.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Registers a number. `read` may keep what it needs from sample to sample, such as the last value of a counter
    /// that is to be shown as a rate.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        read: impl FnMut(&W, Instant) -> f64 + 'static,
    ) {
        let series = Series { name: name.into(), unit, samples: Vec::new() };
        self.0.push(Probe { read: Box::new(read), series });
    }

    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads every number.
    pub fn sample(&mut self, world: &W, time: Instant) {
        for probe in &mut self.0 {
            let value = (probe.read)(world, time);
            probe.series.samples.push(Sample { time, value });
        }
    }

    /// What was read, in the order of registration.
    pub fn into_series(self) -> impl Iterator<Item = Series> {
        self.0.into_iter().map(|probe| probe.series)
    }
}
