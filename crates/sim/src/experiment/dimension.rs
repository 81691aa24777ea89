//! Dimensions of parameters: units, and exact conversion between text and base units.

use std::fmt;

use nichrome_wan::decimal;
use thiserror::Error;

/// The dimension of a parameter. Values are integers in the base unit, so that nothing is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Nanoseconds.
    Time,
    /// Bits per second.
    Rate,
    /// Bytes.
    Size,
    /// Hertz.
    Frequency,
    /// Picoseconds per byte.
    TimePerByte,
    /// Parts of 10⁹.
    Fraction,
    /// A count with the name of what is counted, such as `"threads"`.
    Count(&'static str),
}

/// A unit and its size in base units.
type Unit = (&'static str, u64);

const TIME: &[Unit] =
    &[("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];
const RATE: &[Unit] = &[
    ("bit/s", 1),
    ("kb/s", 1000),
    ("Mb/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
];
const SIZE: &[Unit] =
    &[("B", 1), ("kB", 1000), ("MB", 1_000_000), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const FREQUENCY: &[Unit] = &[("Hz", 1), ("kHz", 1000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)];
const TIME_PER_BYTE: &[Unit] = &[("ps/B", 1), ("ns/B", 1000), ("us/B", 1_000_000)];
/// The fraction 1.
pub(super) const WHOLE: u64 = 1_000_000_000;
const FRACTION: &[Unit] = &[("", WHOLE), ("%", WHOLE / 100)];

/// An invalid quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// Not a decimal number.
    #[error("'{0}' is not a number: expected digits, optionally with a decimal point")]
    Number(String),
    /// A unit of another dimension.
    #[error("unknown unit '{unit}': {allowed}")]
    Unit {
        /// The unit given.
        unit: String,
        /// The allowed units.
        allowed: String,
    },
    /// The unit is missing.
    #[error("the unit is missing: {0}")]
    NoUnit(String),
    /// The number is finer than the base unit, or exceeds 64 bits.
    #[error("{number} is too fine or too large: it must be a whole number of {base} below 2^64")]
    Precision {
        /// The number and its unit.
        number: String,
        /// The base unit.
        base: &'static str,
    },
}

impl Dimension {
    /// Converts `number` of `unit` to base units.
    pub fn exact(self, number: &str, unit: &str) -> Result<u64, QuantityError> {
        if !is_number(number) {
            return Err(QuantityError::Number(number.into()));
        }
        let scale = self.scale(unit).ok_or_else(|| self.unknown(unit))?;
        decimal::parse(number, scale).ok_or_else(|| QuantityError::Precision {
            number: format!("{number} {unit}").trim_end().into(),
            base: self.base(),
        })
    }

    /// Parses a number followed by its unit, such as `10.7us`. Zeros and counts need no unit.
    pub fn parse(self, text: &str) -> Result<u64, QuantityError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        if number.is_empty() {
            return Err(QuantityError::Number(text.into()));
        }
        let unit = match (self, unit.trim_start()) {
            (Self::Count(unit), "") => unit,
            (_, "") if number == "0" => self.base(),
            (_, unit) => unit,
        };
        self.exact(number, unit)
    }

    /// Formats a number of base units exactly, in the unit with the shortest result, such as `10.7us`. A
    /// fraction is in %: a bare number is read in the axis' unit.
    pub fn show(self, number: u64) -> String {
        let units = self.units().iter().rev().filter(|(unit, _)| !unit.is_empty());
        let (whole, parts): (Vec<_>, Vec<_>) = units.partition(|(_, scale)| number >= *scale);
        let texts = |units: &[&Unit]| {
            let texts = units.iter().filter_map(|(unit, scale)| in_unit(number, unit, *scale));
            texts.min_by_key(String::len)
        };
        texts(&whole).or_else(|| texts(&parts)).unwrap_or_else(|| number.to_string())
    }

    /// Converts to `unit` in floating point; `None` for a unit of another dimension.
    pub fn in_unit(self, number: u64, unit: &str) -> Option<f64> {
        self.scale(unit).map(|scale| number as f64 / scale as f64)
    }

    /// Returns the base unit.
    pub fn base(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::Rate => "bit/s",
            Self::Size => "B",
            Self::Frequency => "Hz",
            Self::TimePerByte => "ps/B",
            Self::Fraction => "parts of 10^9",
            Self::Count(unit) => unit,
        }
    }

    fn units(self) -> &'static [Unit] {
        match self {
            Self::Time => TIME,
            Self::Rate => RATE,
            Self::Size => SIZE,
            Self::Frequency => FREQUENCY,
            Self::TimePerByte => TIME_PER_BYTE,
            Self::Fraction => FRACTION,
            Self::Count(_) => &[],
        }
    }

    fn scale(self, unit: &str) -> Option<u64> {
        if self == Self::Fraction && unit == self.base() {
            return Some(1);
        }
        if let Self::Count(name) = self {
            return (unit == name).then_some(1);
        }
        let unit = if unit == "µs" { "us" } else { unit };
        self.units().iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
    }

    fn unknown(self, unit: &str) -> QuantityError {
        let allowed = match self {
            Self::Count("") => "this is a plain number".into(),
            Self::Count(unit) => format!("this is a number of {unit}"),
            Self::Fraction => "a fraction is a plain number or has %".into(),
            _ => {
                let names: Vec<_> = self.units().iter().map(|(name, _)| *name).collect();
                format!("{} is in {}", self.name(), names.join(", "))
            }
        };
        match unit {
            "" => QuantityError::NoUnit(allowed),
            unit => QuantityError::Unit { unit: unit.into(), allowed },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Time => "a time",
            Self::Rate => "a rate",
            Self::Size => "a size",
            Self::Frequency => "a frequency",
            Self::TimePerByte => "a time per byte",
            Self::Fraction => "a fraction",
            Self::Count(_) => "a count",
        }
    }
}

fn is_number(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    [whole, fraction].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Formats the number in a unit; `None` if it is not exact as a decimal.
fn in_unit(number: u64, unit: &str, scale: u64) -> Option<String> {
    struct Decimal(u64, u64);
    impl fmt::Display for Decimal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            decimal::write(f, self.0, self.1)
        }
    }
    let is_decimal = 10u64.pow(scale.ilog10()) == scale;
    let text = match (number % scale, is_decimal) {
        (0, _) => (number / scale).to_string(),
        (_, true) => Decimal(number, scale).to_string(),
        (_, false) => return None,
    };
    Some(text + unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_exact_in_any_unit() {
        for (dimension, text, number) in [
            (Dimension::Time, "10.7us", 10_700),
            (Dimension::Time, "8 ns", 8),
            (Dimension::Time, "0", 0),
            (Dimension::Rate, "4.75Gb/s", 4_750_000_000),
            (Dimension::Rate, "1.5MB/s", 12_000_000),
            (Dimension::Size, "64KiB", 65_536),
            (Dimension::Size, "1.5KiB", 1536),
            (Dimension::Frequency, "125MHz", 125_000_000),
            (Dimension::TimePerByte, "0.35ns/B", 350),
            (Dimension::Fraction, "28%", 280_000_000),
            (Dimension::Fraction, "0.28", 280_000_000),
            (Dimension::Count("threads"), "13", 13),
            (Dimension::Count("threads"), "13 threads", 13),
        ] {
            assert_eq!(dimension.parse(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_format() {
        for (dimension, text, message) in [
            (Dimension::Time, "10.7", "the unit is missing: a time is in ns, us, ms, s, min"),
            (Dimension::Time, "5 sec", "unknown unit 'sec': a time is in ns, us, ms, s, min"),
            (
                Dimension::Time,
                "0.5ns",
                "0.5 ns is too fine or too large: it must be a whole number of ns below 2^64",
            ),
            (
                Dimension::Time,
                "-5us",
                "'-5us' is not a number: expected digits, optionally with a decimal point",
            ),
            (
                Dimension::Time,
                "1.2.3us",
                "'1.2.3' is not a number: expected digits, optionally with a decimal point",
            ),
            (Dimension::Count("threads"), "13 cores", "unknown unit 'cores': this is a number of threads"),
            (Dimension::Fraction, "5 ms", "unknown unit 'ms': a fraction is a plain number or has %"),
        ] {
            assert_eq!(dimension.parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn the_shortest_text_is_shown() {
        for (dimension, number, text) in [
            (Dimension::Time, 10_700, "10.7us"),
            (Dimension::Time, 0, "0s"),
            (Dimension::Rate, 6_000_000_000, "6Gb/s"),
            (Dimension::Size, 65_536, "64KiB"),
            (Dimension::Size, 1514, "1514B"),
            (Dimension::Fraction, 280_000_000, "28%"),
            (Dimension::Fraction, WHOLE, "100%"),
            (Dimension::Fraction, 0, "0%"),
            (Dimension::Count("threads"), 13, "13"),
        ] {
            assert_eq!(dimension.show(number), text);
        }
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(number: u64) {
            for dimension in [Dimension::Time, Dimension::Rate, Dimension::Size, Dimension::Frequency,
                              Dimension::TimePerByte, Dimension::Fraction, Dimension::Count("threads")] {
                prop_assert_eq!(dimension.parse(&dimension.show(number)), Ok(number));
            }
        }
    }
}
