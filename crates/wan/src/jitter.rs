//! Jitter: random variation of the delay.
//!
//! Every distribution but samples has mean 0, so that the mean delay stays as configured, and a scale: half
//! the width of `uniform`, the standard deviation of the others.
//!
//! | kind | deviation |
//! |---|---|
//! | `uniform:J` | uniform from −J to +J |
//! | `normal:J` | Gaussian |
//! | `pareto:J` | Pareto of shape 3, as in netem, cut at 4.5 times its minimum, where netem's table ends; then shifted and scaled to mean 0 and standard deviation 1: from −0.77 J to +4.91 J |
//! | `pareto-normal:J` | one part of `normal` to three of `pareto`, as in netem, but drawn independently; scaled to standard deviation 1 |
//! | samples | one of a list of times, all equally likely, added to the delay unchanged |
//!
//! Delays never become negative: a deviation that would make one negative makes it 0, which raises the mean.
//! This affects delays below J for `uniform` and `pareto`, and below about 3 J for `normal`.
//! [`JitterOrder::Keep`] also raises the mean if packets are closer together than the delay varies.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::{Delay, ParseError};

/// The distribution of the delay's variation: see the [module](self) for the definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Uniform with this maximum deviation: `5ms` or `uniform:5ms`.
    Uniform(Delay),
    /// Gaussian with this standard deviation: `normal:5ms`.
    Normal(Delay),
    /// Heavy-tailed with this standard deviation: `pareto:5ms`.
    Pareto(Delay),
    /// A mix of normal and Pareto: `pareto-normal:5ms`.
    ParetoNormal(Delay),
    /// Random draws from measured times, read from a file; they have no notation of their own.
    Samples(Samples),
}

/// Whether jitter may change the order of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JitterOrder {
    /// No packet overtakes another. If packets are closer together than the delay varies, each waits for the
    /// slowest before it: the mean rises towards the maximum delay, and the deviation falls;
    /// [`crate::Stats::kept_in_order`] has the added delay. `keep`.
    #[default]
    Keep,
    /// Each packet has its own delay, as with netem, so packets may be reordered. The distribution is as
    /// configured, but TCP takes overtaken packets for lost. `reorder`.
    Reorder,
}

impl FromStr for Jitter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (kind, scale) = text.split_once(':').unwrap_or(("uniform", text));
        let of: Option<fn(Delay) -> Self> = match kind {
            "uniform" => Some(Self::Uniform),
            "normal" => Some(Self::Normal),
            "pareto" => Some(Self::Pareto),
            "pareto-normal" => Some(Self::ParetoNormal),
            _ => None,
        };
        let allowed = "a time such as 5ms, or a time after uniform:, normal:, pareto: or pareto-normal:; \
                       at most 3600s";
        of.and_then(|of| scale.parse().ok().map(of)).ok_or_else(|| ParseError::new(text, "jitter", allowed))
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(scale) => write!(f, "uniform:{scale}"),
            Self::Normal(scale) => write!(f, "normal:{scale}"),
            Self::Pareto(scale) => write!(f, "pareto:{scale}"),
            Self::ParetoNormal(scale) => write!(f, "pareto-normal:{scale}"),
            Self::Samples(samples) => write!(f, "{} samples", samples.as_slice().len()),
        }
    }
}

impl FromStr for JitterOrder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "keep" => Ok(Self::Keep),
            "reorder" => Ok(Self::Reorder),
            _ => Err(ParseError::new(text, "order of jitter", "keep or reorder")),
        }
    }
}

impl fmt::Display for JitterOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Reorder => "reorder",
        })
    }
}

/// Measured times: at least one, none longer than [`crate::duration::LONGEST`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples(Arc<[Delay]>);

/// An unusable list of times.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// The list is empty.
    #[error("there are no samples: expected one time per line")]
    Empty,
    /// A line is not a time. Lines count from 1.
    #[error("line {line}: {error}")]
    Line {
        /// The line number.
        line: usize,
        /// The parse error.
        error: ParseError,
    },
    /// A time is too long. Samples count from 1.
    #[error("sample {number} is longer than 3600s")]
    TooLong {
        /// The sample number.
        number: usize,
    },
}

impl Samples {
    /// Creates samples from times.
    ///
    /// # Errors
    /// The list is empty, or a time is longer than [`crate::duration::LONGEST`].
    pub fn new(times: &[Duration]) -> Result<Self, SamplesError> {
        let sample = |(index, time): (usize, &Duration)| {
            Delay::new(*time).ok_or(SamplesError::TooLong { number: index + 1 })
        };
        Self::from_delays(times.iter().enumerate().map(sample).collect::<Result<_, _>>()?)
    }

    /// Parses one time per line. Ignores empty lines and comments after `#`.
    ///
    /// # Errors
    /// There is no time, or a line is not one.
    pub fn parse(text: &str) -> Result<Self, SamplesError> {
        let mut delays = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let sample = line.split('#').next().unwrap_or_default().trim();
            if !sample.is_empty() {
                delays.push(sample.parse().map_err(|error| SamplesError::Line { line: index + 1, error })?);
            }
        }
        Self::from_delays(delays)
    }

    fn from_delays(delays: Vec<Delay>) -> Result<Self, SamplesError> {
        if delays.is_empty() { Err(SamplesError::Empty) } else { Ok(Self(delays.into())) }
    }

    /// Returns the times in the order given.
    pub fn as_slice(&self) -> &[Delay] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Delay {
        Delay::new(Duration::from_millis(millis)).unwrap()
    }

    #[test]
    fn a_time_alone_is_uniform() {
        assert_eq!("5ms".parse(), Ok(Jitter::Uniform(ms(5))));
        assert_eq!("uniform:5ms".parse(), Ok(Jitter::Uniform(ms(5))));
        assert_eq!("pareto-normal:5ms".parse(), Ok(Jitter::ParetoNormal(ms(5))));
        assert_eq!("reorder".parse(), Ok(JitterOrder::Reorder));
        assert_eq!("keep".parse(), Ok(JitterOrder::Keep));
    }

    #[test]
    fn other_texts_are_refused_with_the_format() {
        for text in ["", "5", "-5ms", "normal", "normal:", "gauss:5ms", "normal:3601s", "uniform:5ms:1ms"] {
            let error = text.parse::<Jitter>().unwrap_err().to_string();
            assert!(error.contains("pareto-normal:"), "{error}");
        }
        assert_eq!(
            "free".parse::<JitterOrder>().unwrap_err().to_string(),
            "'free' is not a valid order of jitter: expected keep or reorder"
        );
    }

    #[test]
    fn samples_are_read_one_a_line() {
        let samples = Samples::parse("# measured\n40ms\n\n41.5ms # late\r\n").unwrap();
        let expected = [Duration::from_millis(40), Duration::from_micros(41_500)];
        assert_eq!(Ok(samples), Samples::new(&expected));
        let error = Samples::parse("40ms\n41\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: '41' is not a valid time"), "{error}");
        assert_eq!(Samples::parse("# nothing"), Err(SamplesError::Empty));
        assert_eq!(Samples::new(&[Duration::MAX]), Err(SamplesError::TooLong { number: 1 }));
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(nanos in 0..=3_600_000_000_000u64, kind in 0..4usize) {
            let of: [fn(Delay) -> Jitter; 4] =
                [Jitter::Uniform, Jitter::Normal, Jitter::Pareto, Jitter::ParetoNormal];
            let jitter = of[kind](Delay::new(Duration::from_nanos(nanos)).unwrap());
            prop_assert_eq!(jitter.to_string().parse(), Ok(jitter));
        }
    }
}
