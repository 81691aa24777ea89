//! Exact probabilities.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;
use crate::decimal;

/// A probability from 0 to 1, in parts of 10¹²: `1%` or `0.01`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

const ONE: u64 = 1_000_000_000_000;

const ALLOWED: &str = "0 to 1, such as 0.01, or in percent, such as 1%; at most 12 decimal places";

impl Probability {
    /// 0.
    pub const NEVER: Self = Self(0);
    /// 1.
    pub const ALWAYS: Self = Self(ONE);

    /// Returns the probability nearest to `fraction`; `None` outside 0 to 1.
    pub fn new(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then(|| Self((fraction * ONE as f64).round() as u64))
    }

    /// Returns the probability as a fraction from 0 to 1.
    pub fn fraction(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// Returns the probability times 2⁶⁴.
    pub(crate) fn of_two_to_the_64(self) -> u128 {
        (u128::from(self.0) << 64) / u128::from(ONE)
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts = match text.strip_suffix('%') {
            Some(percent) => decimal::parse(percent, ONE / 100),
            None => decimal::parse(text, ONE),
        };
        parts
            .filter(|parts| *parts <= ONE)
            .map(Self)
            .ok_or_else(|| ParseError::new(text, "probability", ALLOWED))
    }
}

impl fmt::Display for Probability {
    /// Formats in percent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal::write(f, self.0, ONE / 100)?;
        f.write_str("%")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percent_and_fractions_are_the_same() {
        for (percent, fraction) in [
            ("1%", "0.01"),
            ("0%", "0"),
            ("100%", "1"),
            ("100.0%", "1.000"),
            ("0.0000000001%", "0.000000000001"),
        ] {
            assert_eq!(percent.parse::<Probability>(), fraction.parse(), "{percent}");
            assert!(percent.parse::<Probability>().is_ok());
        }
        assert_eq!(Probability::new(0.01), "1%".parse().ok());
        assert_eq!("7%".parse::<Probability>().unwrap().to_string(), "7%");
        assert_eq!("12.5%".parse::<Probability>().unwrap().fraction(), 0.125);
    }

    #[test]
    fn nothing_else_is_a_probability() {
        for text in
            ["", "%", "1.01", "101%", "-1%", "-0", "1 %", "NaN", "inf", "1e-3", "0.0000000000001", "1%%"]
        {
            let error = text.parse::<Probability>().unwrap_err().to_string();
            assert!(error.contains("expected 0 to 1"), "{error}");
        }
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Probability::new(fraction), None);
        }
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(parts in 0..=ONE) {
            let probability = Probability(parts);
            prop_assert_eq!(probability.to_string().parse(), Ok(probability));
        }
    }
}
