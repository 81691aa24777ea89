//! Link rates.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;
use crate::decimal;

/// A rate from 1 kbit/s to 1 Tbit/s: `64kbit`, `10mbit`, `1.5gbit`. Units are decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

const ALLOWED: &str = "a number with bit, kbit, mbit or gbit (a second), such as 10mbit or 1.5gbit; \
                       from 1kbit to 1000gbit";

const UNITS: [(&str, u64); 4] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];

impl Bandwidth {
    /// The minimum: 1 kbit/s.
    pub const MIN: Self = Self(1000);
    /// The maximum: 1 Tbit/s.
    pub const MAX: Self = Self(1_000_000_000_000);

    /// Creates a rate; `None` outside [`Bandwidth::MIN`] to [`Bandwidth::MAX`].
    pub const fn new(bits_per_second: u64) -> Option<Self> {
        if bits_per_second < Self::MIN.0 || bits_per_second > Self::MAX.0 {
            return None;
        }
        Some(Self(bits_per_second))
    }

    /// Returns bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for Bandwidth {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let number = UNITS.into_iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
        number
            .and_then(|(number, scale)| decimal::parse(number, scale))
            .and_then(Self::new)
            .ok_or_else(|| ParseError::new(text, "bandwidth", ALLOWED))
    }
}

impl fmt::Display for Bandwidth {
    /// Formats exactly, in the largest unit of which the rate has at least one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.into_iter().find(|(_, scale)| self.0 >= *scale);
        let (unit, scale) = unit.unwrap_or(("bit", 1));
        decimal::write(f, self.0, scale)?;
        f.write_str(unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bandwidth_is_a_number_with_its_unit() {
        for (text, bits) in
            [("1000bit", 1000), ("64kbit", 64_000), ("10mbit", 10_000_000), ("1.5gbit", 1_500_000_000)]
        {
            assert_eq!(text.parse::<Bandwidth>().map(Bandwidth::bits_per_second), Ok(bits));
        }
        assert_eq!("1000bit".parse::<Bandwidth>().unwrap().to_string(), "1kbit");
    }

    #[test]
    fn nothing_else_is_a_bandwidth() {
        for text in
            ["", "10", "mbit", "-1mbit", "999bit", "0gbit", "1000.1gbit", "1.5bit", "10Mbit", "10mb", "1tbit"]
        {
            let error = text.parse::<Bandwidth>().unwrap_err().to_string();
            assert!(error.contains("10mbit"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(bits in 1000..=1_000_000_000_000u64) {
            let bandwidth = Bandwidth::new(bits).unwrap();
            prop_assert_eq!(bandwidth.to_string().parse(), Ok(bandwidth));
        }
    }
}
