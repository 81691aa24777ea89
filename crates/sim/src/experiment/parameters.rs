//! The parameter values of a run.

use std::collections::BTreeMap;

use super::dimension::{Dimension, WHOLE};
use super::parameter::{Kind, ParameterSpec, Value};
use super::run_error::RunError;
use crate::{Rate, TraceHash};

/// A value for every parameter of a model. Equal values mean the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    values: BTreeMap<&'static str, (&'static ParameterSpec, Value)>,
}

impl Parameters {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a parameter, replacing its value.
    pub fn set(&mut self, spec: &'static ParameterSpec, value: Value) {
        self.values.insert(spec.key, (spec, value));
    }

    /// Returns a parameter's value, if set.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.values.get(key).map(|(_, value)| *value)
    }

    /// Iterates over all parameters by key.
    pub fn iter(&self) -> impl Iterator<Item = (&'static ParameterSpec, Value)> {
        self.values.values().copied()
    }

    /// Returns a time in nanoseconds.
    pub fn nanos(&self, key: &'static str) -> Result<u64, RunError> {
        self.quantity(key, |dimension| dimension == Dimension::Time)
    }

    /// Returns a rate.
    pub fn rate(&self, key: &'static str) -> Result<Rate, RunError> {
        let bits_per_second = self.quantity(key, |dimension| dimension == Dimension::Rate)?;
        Rate::new(bits_per_second).ok_or_else(|| RunError::Impossible(format!("{key} is 0")))
    }

    /// Returns a size in bytes.
    pub fn bytes(&self, key: &'static str) -> Result<u64, RunError> {
        self.quantity(key, |dimension| dimension == Dimension::Size)
    }

    /// Returns a frequency in hertz.
    pub fn hertz(&self, key: &'static str) -> Result<u64, RunError> {
        self.quantity(key, |dimension| dimension == Dimension::Frequency)
    }

    /// Returns a time per byte in picoseconds.
    pub fn picos_per_byte(&self, key: &'static str) -> Result<u64, RunError> {
        self.quantity(key, |dimension| dimension == Dimension::TimePerByte)
    }

    /// Returns a count.
    pub fn count(&self, key: &'static str) -> Result<u64, RunError> {
        self.quantity(key, |dimension| matches!(dimension, Dimension::Count(_)))
    }

    /// Returns a fraction or factor.
    pub fn fraction(&self, key: &'static str) -> Result<f64, RunError> {
        Ok(self.billionths(key)? as f64 / WHOLE as f64)
    }

    /// Returns a fraction or factor in parts of 10⁹, for exact arithmetic.
    pub fn billionths(&self, key: &'static str) -> Result<u64, RunError> {
        self.quantity(key, |dimension| dimension == Dimension::Fraction)
    }

    /// Returns a boolean.
    pub fn flag(&self, key: &'static str) -> Result<bool, RunError> {
        match self.get(key) {
            Some(Value::Flag(flag)) => Ok(flag),
            _ => Err(RunError::Undeclared(key)),
        }
    }

    /// Returns the value paired with the chosen name.
    pub fn choice<T, const N: usize>(
        &self,
        key: &'static str,
        values: [(&str, T); N],
    ) -> Result<T, RunError> {
        let Some(Value::Choice(chosen)) = self.get(key) else { return Err(RunError::Undeclared(key)) };
        let value = values.into_iter().find(|(name, _)| *name == chosen);
        value.map(|(_, value)| value).ok_or(RunError::Undeclared(key))
    }

    /// Hashes model and values: equal on every machine, for any order and units of the source file.
    pub fn hash(&self, model: &str) -> u64 {
        let mut hash = TraceHash::default();
        hash.add_bytes(model.as_bytes());
        for (spec, value) in self.iter() {
            hash.add_bytes(spec.key.as_bytes());
            hash.add_bytes(value.to_string().as_bytes());
        }
        hash.value()
    }

    fn quantity(&self, key: &'static str, is_allowed: impl Fn(Dimension) -> bool) -> Result<u64, RunError> {
        match self.values.get(key) {
            Some((ParameterSpec { kind: Kind::Quantity(dimension, _), .. }, Value::Quantity(number)))
                if is_allowed(*dimension) =>
            {
                Ok(*number)
            }
            _ => Err(RunError::Undeclared(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SPECS: [ParameterSpec; 3] = [
        ParameterSpec::time("setup", 0..=1_000_000, "to start"),
        ParameterSpec::rate("rate", 1..=1_000_000_000_000, "of the wire"),
        ParameterSpec::fraction("loss", "of packets"),
    ];

    fn parameters(texts: [&str; 3]) -> Parameters {
        let mut parameters = Parameters::new();
        for (spec, text) in SPECS.iter().zip(texts) {
            parameters.set(spec, spec.parse(text).unwrap());
        }
        parameters
    }

    #[test]
    fn values_come_in_base_units() {
        let parameters = parameters(["10.7us", "10Gb/s", "25%"]);
        assert_eq!(parameters.nanos("setup"), Ok(10_700));
        assert_eq!(parameters.rate("rate"), Ok(Rate::TEN_GIGABIT));
        assert_eq!(parameters.fraction("loss"), Ok(0.25));
        assert_eq!(parameters.count("setup"), Err(RunError::Undeclared("setup")));
        assert_eq!(parameters.nanos("delay"), Err(RunError::Undeclared("delay")));
    }

    #[test]
    fn the_hash_is_of_values_and_not_of_how_they_are_written() {
        let hash = |texts| parameters(texts).hash("model");
        assert_eq!(hash(["10.7us", "10Gb/s", "25%"]), hash(["10700ns", "10000Mb/s", "0.25"]));
        assert_ne!(hash(["10.7us", "10Gb/s", "25%"]), hash(["10.7us", "10Gb/s", "26%"]));
        assert_ne!(
            parameters(["0", "1Gb/s", "0"]).hash("model"),
            parameters(["0", "1Gb/s", "0"]).hash("other")
        );
    }
}
