//! The parameters of a model: kinds, ranges and notation.

use std::fmt;
use std::ops::RangeInclusive;

use thiserror::Error;

use super::dimension::{Dimension, QuantityError, WHOLE};

/// A parameter of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The key in files and in `--set`: lower case, words joined by `-`.
    pub key: &'static str,
    /// The kind of value.
    pub kind: Kind,
    /// A short description.
    pub about: &'static str,
}

/// The kind of a parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of base units within a range.
    Quantity(Dimension, RangeInclusive<u64>),
    /// One of several choices.
    Choice(&'static [&'static str]),
    /// A boolean.
    Flag,
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number of base units.
    Quantity(u64),
    /// A choice.
    Choice(&'static str),
    /// A boolean.
    Flag(bool),
}

/// An invalid parameter value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    /// Not a valid quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Out of range.
    #[error("{value} is out of range: expected {least} to {most}")]
    Range {
        /// The value given.
        value: String,
        /// The minimum.
        least: String,
        /// The maximum.
        most: String,
    },
    /// Not one of the choices.
    #[error("'{value}' is not one of: {}", choices.join(", "))]
    Choice {
        /// The value given.
        value: String,
        /// The choices.
        choices: &'static [&'static str],
    },
    /// Not a boolean.
    #[error("'{0}' is neither true nor false")]
    Flag(String),
}

impl ParameterSpec {
    /// A time in a range of nanoseconds.
    pub const fn time(key: &'static str, nanos: RangeInclusive<u64>, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Time, nanos), about }
    }

    /// A rate in a range of bits per second.
    pub const fn rate(key: &'static str, bits_per_second: RangeInclusive<u64>, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Rate, bits_per_second), about }
    }

    /// A size in a range of bytes.
    pub const fn size(key: &'static str, bytes: RangeInclusive<u64>, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Size, bytes), about }
    }

    /// A frequency in a range of hertz.
    pub const fn frequency(key: &'static str, hertz: RangeInclusive<u64>, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Frequency, hertz), about }
    }

    /// A time per byte in a range of picoseconds.
    pub const fn time_per_byte(key: &'static str, picos: RangeInclusive<u64>, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::TimePerByte, picos), about }
    }

    /// A fraction from 0 to 1.
    pub const fn fraction(key: &'static str, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Fraction, 0..=WHOLE), about }
    }

    /// A factor from 0 to `most`, with nine decimals.
    pub const fn factor(key: &'static str, most: u32, about: &'static str) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Fraction, 0..=most as u64 * WHOLE), about }
    }

    /// A count of things such as `"threads"`.
    pub const fn count(
        key: &'static str,
        unit: &'static str,
        range: RangeInclusive<u64>,
        about: &'static str,
    ) -> Self {
        Self { key, kind: Kind::Quantity(Dimension::Count(unit), range), about }
    }

    /// A choice.
    pub const fn choice(key: &'static str, choices: &'static [&'static str], about: &'static str) -> Self {
        Self { key, kind: Kind::Choice(choices), about }
    }

    /// A boolean.
    pub const fn flag(key: &'static str, about: &'static str) -> Self {
        Self { key, kind: Kind::Flag, about }
    }

    /// Parses a value with its unit: `10.7us`, `13`, `round-robin`, `true`.
    pub fn parse(&self, text: &str) -> Result<Value, ValueError> {
        match &self.kind {
            Kind::Quantity(dimension, range) => in_range(*dimension, range, dimension.parse(text)?),
            Kind::Choice(choices) => {
                let choice = choices.iter().find(|choice| **choice == text);
                let unknown = || ValueError::Choice { value: text.into(), choices };
                choice.map(|choice| Value::Choice(choice)).ok_or_else(unknown)
            }
            Kind::Flag => text.parse().map(Value::Flag).map_err(|_| ValueError::Flag(text.into())),
        }
    }

    /// Parses a number and its unit; the unit of a choice or a boolean is empty.
    pub fn parse_with_unit(&self, text: &str, unit: &str) -> Result<Value, ValueError> {
        match &self.kind {
            Kind::Quantity(dimension, range) => in_range(*dimension, range, dimension.exact(text, unit)?),
            _ if unit.is_empty() => self.parse(text),
            _ => {
                let allowed = "it has none".into();
                Err(QuantityError::Unit { unit: unit.into(), allowed }.into())
            }
        }
    }

    /// Formats a value in the notation of [`ParameterSpec::parse`].
    pub fn show(&self, value: Value) -> String {
        match (value, &self.kind) {
            (Value::Quantity(number), Kind::Quantity(dimension, _)) => dimension.show(number),
            (value, _) => value.to_string(),
        }
    }
}

fn in_range(dimension: Dimension, range: &RangeInclusive<u64>, number: u64) -> Result<Value, ValueError> {
    if range.contains(&number) {
        return Ok(Value::Quantity(number));
    }
    let [value, least, most] = [number, *range.start(), *range.end()].map(|number| dimension.show(number));
    Err(ValueError::Range { value, least, most })
}

impl fmt::Display for Value {
    /// Formats the number of base units, the choice, or the boolean.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(number) => number.fmt(f),
            Self::Choice(choice) => choice.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: ParameterSpec = ParameterSpec::time("dma-setup", 100..=1_000_000, "to start a transfer");
    const ARBITER: ParameterSpec = ParameterSpec::choice("arbiter", &["stack", "round-robin"], "whose turn");
    const LRO: ParameterSpec = ParameterSpec::flag("lro", "whether the card coalesces");

    #[test]
    fn a_value_is_read_as_it_is_shown() {
        for (spec, text) in [(SETUP, "10.7us"), (ARBITER, "round-robin"), (LRO, "true")] {
            assert_eq!(spec.show(spec.parse(text).unwrap()), text);
        }
        assert_eq!(SETUP.parse_with_unit("10.7", "us"), SETUP.parse("10.7us"));
        assert_eq!(LRO.parse_with_unit("true", ""), Ok(Value::Flag(true)));
    }

    #[test]
    fn errors_name_the_valid_values() {
        for (spec, text, message) in [
            (SETUP, "2ms", "2ms is out of range: expected 100ns to 1ms"),
            (ARBITER, "queue", "'queue' is not one of: stack, round-robin"),
            (LRO, "on", "'on' is neither true nor false"),
        ] {
            assert_eq!(spec.parse(text).unwrap_err().to_string(), message);
        }
        let message = LRO.parse_with_unit("true", "us").unwrap_err().to_string();
        assert_eq!(message, "unknown unit 'us': it has none");
    }
}
