//! Recorded bandwidth in Mahimahi's format: each line is a time in whole milliseconds at which up to 1500
//! bytes may leave. The last line's time is also the period after which the trace repeats. Times may be
//! repeated.

use std::str::FromStr;
use std::sync::Arc;

use nichrome_wire::Instant;
use thiserror::Error;

/// A bandwidth trace: ascending delivery opportunities, at least one, the last of them after 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds since the start.
    opportunities: Arc<[u32]>,
}

/// An invalid bandwidth trace. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace is empty.
    #[error("the trace is empty: expected one time in milliseconds per line")]
    Empty,
    /// A line is not a time.
    #[error(
        "line {line} of the trace is '{text}': a time in whole milliseconds is expected, at most 4294967295"
    )]
    NotATime {
        /// The line number.
        line: usize,
        /// The line's text.
        text: String,
    },
    /// A time is before that of the line above.
    #[error("line {line} of the trace is {time}, after {previous}: times must not decrease")]
    GoesBack {
        /// The line number.
        line: usize,
        /// The line's time, in ms.
        time: u32,
        /// The previous line's time, in ms.
        previous: u32,
    },
    /// All times are 0.
    #[error("the trace ends at 0 ms: its last line is its length and must be above 0")]
    NoLength,
}

impl Trace {
    /// Bytes per opportunity, without link headers.
    pub const OPPORTUNITY: u64 = 1500;

    /// Returns the number of opportunities per period.
    pub fn opportunities(&self) -> usize {
        self.opportunities.len()
    }

    /// Returns the mean rate in bits per second.
    pub fn mean_rate(&self) -> f64 {
        let bits = self.opportunities.len() as f64 * Self::OPPORTUNITY as f64 * 8.0;
        bits * 1e9 / self.period() as f64
    }

    /// Returns the period in nanoseconds.
    fn period(&self) -> u64 {
        self.opportunities.last().map_or(1, |last| nanos(*last))
    }

    /// Returns the time of the `nth` opportunity (from 0, over all repetitions) of a trace that began at
    /// `start`.
    pub(crate) fn time(&self, start: Instant, nth: u64) -> Instant {
        let count = self.opportunities.len() as u64;
        let within = self.opportunities.get((nth % count) as usize).copied().map_or(0, nanos);
        start.plus_nanos((nth / count).saturating_mul(self.period()).saturating_add(within))
    }

    /// Returns the first opportunity after `now`.
    pub(crate) fn first_after(&self, start: Instant, now: Instant) -> u64 {
        let elapsed = now.nanos_since(start);
        let (turns, within) = (elapsed / self.period(), elapsed % self.period());
        let passed = self.opportunities.partition_point(|time| nanos(*time) <= within);
        turns * self.opportunities.len() as u64 + passed as u64
    }
}

fn nanos(millis: u32) -> u64 {
    u64::from(millis) * 1_000_000
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut opportunities: Vec<u32> = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let text = text.trim_end();
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let time = text.parse().ok().filter(|_| is_number);
            let time = time.ok_or_else(|| TraceError::NotATime { line, text: excerpt(text) })?;
            let previous = opportunities.last().copied().unwrap_or(0);
            if time < previous {
                return Err(TraceError::GoesBack { line, time, previous });
            }
            opportunities.push(time);
        }
        match opportunities.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoLength),
            Some(_) => Ok(Self { opportunities: opportunities.into() }),
        }
    }
}

/// Returns the start of a line, so that the error message stays one line.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_trace_repeats_after_its_last_line() {
        let trace: Trace = "0\n3\n3\n10\n".parse().unwrap();
        let times: Vec<_> = (0..9).map(|nth| trace.time(ms(100), nth)).collect();
        assert_eq!(times, [100, 103, 103, 110, 110, 113, 113, 120, 120].map(ms));
        assert_eq!((trace.opportunities(), trace.mean_rate()), (4, 4.8e6));
    }

    #[test]
    fn an_opportunity_that_is_now_has_passed() {
        let trace: Trace = "0\n3\n3\n10".parse().unwrap();
        let first_after = |now| trace.time(ms(100), trace.first_after(ms(100), now));
        assert_eq!(
            [99, 100, 102, 103, 109].map(|now| first_after(ms(now))),
            [103, 103, 103, 110, 110].map(ms)
        );
        assert_eq!(first_after(ms(110)), ms(113));
        assert_eq!(first_after(ms(1_000_000_104)), ms(1_000_000_110));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
        assert!(error("").starts_with("the trace is empty"));
        assert!(error("0\n0\n").starts_with("the trace ends at 0 ms"));
        assert!(error("1\n\n2").starts_with("line 2 of the trace is ''"));
        assert!(error("1\n2.5").starts_with("line 2 of the trace is '2.5'"));
        assert!(error("-1").starts_with("line 1 of the trace is '-1'"));
        assert!(error("+1").starts_with("line 1"));
        assert!(error("4294967296").starts_with("line 1"));
        assert_eq!(error("5\n9\n7"), "line 3 of the trace is 7, after 9: times must not decrease");
    }
}
