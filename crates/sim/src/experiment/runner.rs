//! What a model offers to experiments.

use super::parameter::ParameterSpec;
use super::parameters::Parameters;
use super::run_error::RunError;
use crate::observe::Observer;

/// A model that experiments run. What it measures depends on its parameters and the seed only, and everything with a
/// physical meaning is a parameter.
pub trait Runner: Sync {
    /// Its name in files: lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// What it can be told; all of it must be.
    fn parameters(&self) -> &'static [ParameterSpec];

    /// What it measures.
    fn metrics(&self) -> &'static [MetricSpec];

    /// Whether its packets have bytes, which a capture can hold, instead of lengths only.
    fn has_packets(&self) -> bool {
        true
    }

    /// Runs once, on this thread, in steps of [`Observer::run`]: it shows progress, samples, and may end the run.
    fn run(&self, parameters: &Parameters, seed: u64, observer: &mut Observer) -> Result<Outcome, RunError>;
}

/// Something that a model measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Its name in files: lower case, words joined by `-`.
    pub name: &'static str,
    /// Its unit, such as `"Gb/s"` or `"%"`; empty for plain numbers.
    pub unit: &'static str,
    /// What it is, in a few words: the label of an axis.
    pub about: &'static str,
}

/// A metric and what it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The name of a metric that the model has.
    pub metric: &'static str,
    /// In the metric's unit; finite.
    pub value: f64,
}

impl Measurement {
    /// A metric and what it was.
    pub const fn new(metric: &'static str, value: f64) -> Self {
        Self { metric, value }
    }
}

/// What a run came to. A metric that had nothing to measure, such as the latency of no replies, is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In the order of the model's metrics or any other.
    pub measurements: Vec<Measurement>,
    /// Events handled.
    pub events: u64,
    /// The hash of all that happened: [`Simulation::trace_hash`](crate::Simulation::trace_hash).
    pub trace_hash: u64,
}

/// Checks that a model has packets for a capture.
///
/// # Errors
/// [`RunError::NothingToCapture`].
pub fn check_capture(runner: &dyn Runner) -> Result<(), RunError> {
    if runner.has_packets() { Ok(()) } else { Err(RunError::NothingToCapture(runner.name())) }
}

/// Runs a model and checks what it says.
pub fn run(
    runner: &dyn Runner,
    parameters: &Parameters,
    seed: u64,
    observer: &mut Observer,
) -> Result<Outcome, RunError> {
    if observer.capture.is_on() {
        check_capture(runner)?;
    }
    let outcome = runner.run(parameters, seed, observer)?;
    let is_declared = |metric: &str| runner.metrics().iter().any(|declared| declared.name == metric);
    let wrong = outcome.measurements.iter().find(|m| !is_declared(m.metric) || !m.value.is_finite());
    match wrong {
        Some(measurement) => Err(RunError::Metric(measurement.metric)),
        None => Ok(outcome),
    }
}
