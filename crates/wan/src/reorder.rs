//! The configuration of reordering.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Delay, ParseError, Probability};

/// The probability and duration of holding a packet back, while later ones overtake: `1%` or `1%:5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    probability: Probability,
    hold: Delay,
}

impl Reorder {
    /// The default duration: 5 ms.
    pub const DEFAULT_HOLD: Delay = match Delay::new(Duration::from_millis(5)) {
        Some(hold) => hold,
        None => Delay::ZERO,
    };

    /// Creates the configuration; `None` if `hold` is 0.
    pub fn new(probability: Probability, hold: Delay) -> Option<Self> {
        (hold > Delay::ZERO).then_some(Self { probability, hold })
    }

    /// Returns the probability that a packet is held back.
    pub const fn probability(self) -> Probability {
        self.probability
    }

    /// Returns how long a packet is held back.
    pub const fn hold(self) -> Delay {
        self.hold
    }

    fn parse(text: &str) -> Option<Self> {
        let Some((probability, hold)) = text.split_once(':') else {
            return Self::new(text.parse().ok()?, Self::DEFAULT_HOLD);
        };
        Self::new(probability.parse().ok()?, hold.parse().ok()?)
    }
}

impl FromStr for Reorder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let allowed = "a probability such as 1%, or with the time that a packet is held back, such as 1%:5ms; \
                       more than 0, at most 3600s";
        Self::parse(text).ok_or_else(|| ParseError::new(text, "reordering", allowed))
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.probability, self.hold)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_time_may_be_left_out() {
        assert_eq!("1%".parse::<Reorder>(), "0.01:5ms".parse());
        assert_eq!("1%".parse::<Reorder>().unwrap().to_string(), "1%:5ms");
    }

    #[test]
    fn other_texts_are_refused_with_the_format() {
        for text in ["", "1%:0", "1%:", ":5ms", "5ms", "1%:2s:3s", "101%", "1%:3601s"] {
            let error = text.parse::<Reorder>().unwrap_err().to_string();
            assert!(error.contains("1%:5ms"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(fraction in 0.0..=1.0f64, nanos in 1..=3_600_000_000_000u64) {
            let hold = Delay::new(Duration::from_nanos(nanos)).unwrap();
            let reorder = Reorder::new(Probability::new(fraction).unwrap(), hold).unwrap();
            prop_assert_eq!(reorder.to_string().parse(), Ok(reorder));
        }
    }
}
