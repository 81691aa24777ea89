//! Medians, and numbers in report format.

use anyhow::Context;
use serde_json::Value;

/// Returns the median, the upper of the two middle values; 0 if empty.
pub(super) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

/// Says of how many measurements a result is the median: of one there is none.
pub(super) fn median_of(of: usize, one: &str, several: &str) -> String {
    if of == 1 { format!("one {one}") } else { format!("median of {of} {several}") }
}

/// Says of how many measurements the results are medians: of one there is none.
pub(super) fn medians(of: usize, one: &str, several: &str) -> String {
    if of == 1 { format!("one {one}") } else { format!("medians of {of} {several}") }
}

/// Rounds to two decimals.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
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
    fn one_measurement_has_no_median() {
        assert_eq!(medians(1, "round", "rounds"), "one round");
        assert_eq!(medians(5, "round", "rounds"), "medians of 5 rounds");
        assert_eq!(
            (&*median_of(1, "run", "runs"), &*median_of(3, "run", "runs")),
            ("one run", "median of 3 runs")
        );
    }
}
