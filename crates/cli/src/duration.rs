//! Durations on the command line: `50us`, `1.5ms`, `1s`, `0`.

use std::time::Duration;

/// The maximum that all engines accept.
const LONGEST: Duration = Duration::from_secs(60);

/// The format.
const FORMAT: &str = "a time is a number with ns, us, ms or s, such as 50us, 1.5ms or 1s, at most 60s";

/// As [`parse`], but not 0.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match parse(text) {
        Ok(Duration::ZERO) => Err("it must be longer than 0".into()),
        Err(error) => Err(error.trim_end_matches(OR_ZERO).into()),
        positive => positive,
    }
}

/// As [`parse`], but at least `shortest`.
pub(crate) fn at_least(
    shortest: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| match parse(text) {
        Ok(duration) if duration < shortest => Err(format!("at least {shortest:?}")),
        Err(error) => Err(error.trim_end_matches(OR_ZERO).into()),
        duration => duration,
    }
}

/// Continues [`FORMAT`] in the errors of [`parse`], which also accepts 0.
const OR_ZERO: &str = ", or it is 0";

/// Parses a number with its unit, exact to the nanosecond; the error states the format.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let duration = nichrome_wan::duration::parse(text).ok();
    duration.filter(|duration| *duration <= LONGEST).ok_or_else(|| format!("{FORMAT}{OR_ZERO}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_time_longer_than_0() {
        assert_eq!(positive("1ns"), Ok(Duration::from_nanos(1)));
        assert_eq!(positive("0s"), Err("it must be longer than 0".into()));
        assert_eq!(positive("1h"), Err(FORMAT.into()));
        assert_eq!(positive("61s"), Err(FORMAT.into()));
    }

    #[test]
    fn a_time_that_is_too_short_is_answered_with_the_minimum() {
        let parse = at_least(Duration::from_millis(10));
        assert_eq!(parse("10ms"), Ok(Duration::from_millis(10)));
        for short in ["9ms", "0"] {
            assert_eq!(parse(short), Err("at least 10ms".into()));
        }
        assert_eq!(parse("61s"), Err(FORMAT.into()));
        assert_eq!(parse("5"), Err(FORMAT.into()));
    }

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        assert_eq!(parse("7ns"), Ok(Duration::from_nanos(7)));
        assert_eq!(parse("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse("50µs"), Ok(Duration::from_micros(50)));
        assert_eq!(parse("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse("0.000000001s"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse("60s"), Ok(LONGEST));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("0ms"), Ok(Duration::ZERO));
    }

    /// A fraction of a nanosecond is an error, not rounded.
    #[test]
    fn errors_state_the_format_and_the_maximum() {
        for text in ["", "5", "ms", "5 ms", "-5ms", "0.5ns", "0.0000000001s", ".5s", "5m", "5msec", "五ms"] {
            assert!(parse(text).unwrap_err().contains("50us"), "{text}");
        }
        for text in ["61s", "60.000000001s", "18446744073709551615s", "99999999999999999999s"] {
            assert!(parse(text).unwrap_err().contains("at most 60s"), "{text}");
        }
    }
}
