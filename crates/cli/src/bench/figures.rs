//! Medians, and numbers in report format.

use anyhow::Context;
use serde_json::Value;

/// Returns the median, the upper of the two middle values; 0 if empty.
pub(super) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

/// Describes a result as the median of several measurements, or as a single measurement.
pub(super) fn median_of(of: usize, one: &str, several: &str) -> String {
    if of == 1 { format!("one {one}") } else { format!("median of {of} {several}") }
}

/// Describes results as medians of several measurements, or as single measurements.
pub(super) fn medians(of: usize, one: &str, several: &str) -> String {
    if of == 1 { format!("one {one}") } else { format!("medians of {of} {several}") }
}

/// Rounds to two decimals, or below 1 to three significant digits, so that a small value does not become
/// zero.
pub(super) fn rounded(number: f64) -> f64 {
    if number.abs() < 1.0 { significant(number, 3) } else { (number * 100.0).round() / 100.0 }
}

/// Rounds to significant digits; to 0 if not finite.
pub(super) fn significant(number: f64, digits: i32) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(digits - 1 - number.abs().log10().floor() as i32);
    (number * scale).round() / scale
}

/// Returns a number from a report.
pub(super) fn figure(report: &Value, name: &str) -> anyhow::Result<f64> {
    report[name].as_f64().with_context(|| format!("the measurement has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![1.0]), 1.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn rounded_numbers_have_two_decimals_or_three_significant_digits() {
        assert_eq!([1234.567, 1.006, 0.0, -2.345_6].map(rounded), [1234.57, 1.01, 0.0, -2.35]);
        assert_eq!([0.123_45, 0.004_021_9, 3.333e-7].map(rounded), [0.123, 0.004_02, 3.33e-7]);
    }

    #[test]
    fn significant_digits_are_counted_from_the_first() {
        assert_eq!(
            [123_456.0, 12.345_678, 0.0].map(|number| significant(number, 5)),
            [123_460.0, 12.346, 0.0]
        );
        assert_eq!([f64::NAN, f64::INFINITY].map(|number| significant(number, 5)), [0.0, 0.0]);
    }

    #[test]
    fn one_measurement_has_no_median() {
        assert_eq!(medians(1, "round", "rounds"), "one round");
        assert_eq!(medians(5, "round", "rounds"), "medians of 5 rounds");
        assert_eq!(
            (&*median_of(1, "run", "runs"), &*median_of(3, "run", "runs")),
            ("one run", "median of 3 runs")
        );
    }
}
