//! The interface of models.

use super::parameter::ParameterSpec;
use super::parameters::Parameters;
use super::run_error::RunError;
use crate::observe::Observer;

/// A model for experiments. Its results depend on parameters and seed only; everything with a physical
/// meaning is a parameter.
pub trait Runner: Sync {
    /// Returns the name in files: lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// Returns the parameters; all of them must be set.
    fn parameters(&self) -> &'static [ParameterSpec];

    /// Returns the metrics.
    fn metrics(&self) -> &'static [MetricSpec];

    /// Returns true if its packets have bytes, as captures need.
    fn has_packets(&self) -> bool {
        true
    }

    /// Returns true if it has [probes](Observer::keep), as time series need.
    fn has_series(&self) -> bool {
        true
    }

    /// Runs once on this thread, in steps of [`Observer::run`], which shows progress, samples, and may end
    /// the run.
    fn run(&self, parameters: &Parameters, seed: u64, observer: &mut Observer) -> Result<Outcome, RunError>;
}

/// A metric of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// The name in files: lower case, words joined by `-`.
    pub name: &'static str,
    /// The unit, such as `"Gb/s"` or `"%"`; empty for plain numbers.
    pub unit: &'static str,
    /// A short description: the label of an axis.
    pub about: &'static str,
}

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The metric's name.
    pub metric: &'static str,
    /// The value in the metric's unit; finite.
    pub value: f64,
}

impl Measurement {
    /// Creates a measurement.
    pub const fn new(metric: &'static str, value: f64) -> Self {
        Self { metric, value }
    }
}

/// The results of a run. Metrics without measurements, such as the latency of no replies, are omitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In any order.
    pub measurements: Vec<Measurement>,
    /// Number of events processed.
    pub events: u64,
    /// The trace hash: [`Simulation::trace_hash`](crate::Simulation::trace_hash).
    pub trace_hash: u64,
}

/// Checks that the model has packets with bytes.
///
/// # Errors
/// [`RunError::NothingToCapture`].
pub fn check_capture(runner: &dyn Runner) -> Result<(), RunError> {
    if runner.has_packets() { Ok(()) } else { Err(RunError::NothingToCapture(runner.name())) }
}

/// Runs a model and validates its results.
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
