//! The stored record of a run; names are stable.

use std::collections::BTreeMap;

use nichrome_sim::experiment::{Dimension, Kind, Outcome, Parameters, Runner, Value};
use nichrome_sim::observe::Counters;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// Version of this command: other versions may give other results.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A run with its parameters and results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) model: String,
    /// Hash of model and parameters.
    pub(super) hash: String,
    pub(super) seed: u64,
    /// Version of the command.
    pub(super) version: String,
    /// Numbers in the units below, strings or booleans.
    pub(super) parameters: BTreeMap<String, Json>,
    pub(super) metrics: BTreeMap<String, f64>,
    /// Units of parameters and metrics.
    pub(super) units: BTreeMap<String, String>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) events: u64,
    pub(super) trace_hash: String,
}

impl Record {
    pub(super) fn new(
        runner: &dyn Runner,
        parameters: &Parameters,
        seed: u64,
        outcome: &Outcome,
        counters: &Counters,
    ) -> Self {
        let mut record = Self {
            model: runner.name().into(),
            hash: hash(runner, parameters),
            seed,
            version: VERSION.into(),
            parameters: BTreeMap::new(),
            metrics: BTreeMap::new(),
            units: BTreeMap::new(),
            counters: counters.iter().map(|(name, count)| (name.into(), count)).collect(),
            events: outcome.events,
            trace_hash: format!("{:016x}", outcome.trace_hash),
        };
        for (spec, value) in parameters.iter() {
            let (value, unit) = in_json(&spec.kind, value);
            record.parameters.insert(spec.key.into(), value);
            record.add_unit(spec.key, unit);
        }
        for measurement in &outcome.measurements {
            record.metrics.insert(measurement.metric.into(), measurement.value);
        }
        for metric in runner.metrics() {
            record.add_unit(metric.name, metric.unit);
        }
        record
    }

    fn add_unit(&mut self, name: &str, unit: &str) {
        if !unit.is_empty() {
            self.units.insert(name.into(), unit.into());
        }
    }
}

/// Formats records as lines of JSON.
pub(super) fn lines(records: &[Record]) -> serde_json::Result<String> {
    let lines = records.iter().map(|record| Ok(serde_json::to_string(record)? + "\n"));
    lines.collect()
}

/// Returns the hash of a configuration as it appears in records.
pub(super) fn hash(runner: &dyn Runner, parameters: &Parameters) -> String {
    format!("{:016x}", parameters.hash(runner.name()))
}

/// Returns a value and its unit: the base unit, but fractions are relative to 1.
fn in_json(kind: &Kind, value: Value) -> (Json, &'static str) {
    match (value, kind) {
        (Value::Quantity(number), Kind::Quantity(Dimension::Fraction, _)) => {
            (json!(Dimension::Fraction.in_unit(number, "")), "")
        }
        (Value::Quantity(number), Kind::Quantity(dimension, _)) => (json!(number), dimension.base()),
        (Value::Quantity(number), _) => (json!(number), ""),
        (Value::Choice(choice), _) => (json!(choice), ""),
        (Value::Flag(flag), _) => (json!(flag), ""),
    }
}
