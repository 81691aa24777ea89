//! Times in text notation: `40ms`, `1.5ms`, `50us`, `0`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ParseError;
use crate::decimal;

/// The maximum time.
pub const LONGEST: Duration = Duration::from_secs(3600);

const ALLOWED: &str = "a number with ns, us, ms or s, such as 40ms, 1.5ms or 50us, or 0; at most 3600s";

/// Nanoseconds per unit, smallest first.
const UNITS: [(&str, u64); 6] =
    [("ns", 1), ("us", 1000), ("µs", 1000), ("μs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a time from 0 to [`LONGEST`], exact to the nanosecond.
///
/// # Errors
/// The text is not a time in this range.
pub fn parse(text: &str) -> Result<Duration, ParseError> {
    let nanos = if text == "0" { Some(0) } else { nanos(text) };
    nanos
        .map(Duration::from_nanos)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| ParseError::new(text, "time", ALLOWED))
}

fn nanos(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    decimal::parse(number, scale)
}

/// A time from 0 to one hour ([`LONGEST`]): a delay, deviation or interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delay(Duration);

impl Delay {
    /// Zero.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Creates a delay; `None` if longer than [`LONGEST`].
    pub const fn new(duration: Duration) -> Option<Self> {
        if duration.as_nanos() <= LONGEST.as_nanos() { Some(Self(duration)) } else { None }
    }

    /// Returns the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Returns nanoseconds, at most 3.6 × 10¹².
    pub const fn nanos(self) -> u64 {
        self.0.as_nanos() as u64
    }
}

impl FromStr for Delay {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).map(Self)
    }
}

impl fmt::Display for Delay {
    /// Formats exactly, in the largest unit of which the time has at least one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos();
        let unit = UNITS.into_iter().rev().find(|(name, scale)| name.is_ascii() && nanos >= *scale);
        let Some((unit, scale)) = unit else { return f.write_str("0") };
        decimal::write(f, nanos, scale)?;
        f.write_str(unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        let cases = [
            ("0", 0),
            ("0ms", 0),
            ("7ns", 7),
            ("50us", 50_000),
            ("50µs", 50_000),
            ("1.5ms", 1_500_000),
            ("40ms", 40_000_000),
            ("0.000000001s", 1),
            ("3600s", 3_600_000_000_000),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_format() {
        let texts =
            ["", "5", "ms", "5 ms", "-5ms", "1.5ns", "5m", "3600.000000001s", "1e3ms", "五ms", "1.2.3s"];
        for text in texts {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("1.5ms") && error.contains("3600s"), "{error}");
        }
        assert_eq!(Delay::new(LONGEST + Duration::from_nanos(1)), None);
    }

    #[test]
    fn a_delay_is_shown_in_the_unit_that_fits() {
        for text in ["0", "7ns", "1.5us", "40ms", "1.000000001s"] {
            assert_eq!(text.parse::<Delay>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(nanos in 0..=3_600_000_000_000u64) {
            let delay = Delay::new(Duration::from_nanos(nanos)).unwrap();
            prop_assert_eq!(delay.to_string().parse(), Ok(delay));
            prop_assert_eq!(delay.get(), Duration::from_nanos(nanos));
        }
    }
}
