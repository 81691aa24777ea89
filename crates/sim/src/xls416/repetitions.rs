//! The spread of repetitions: quantiles over their results.

use crate::experiment::Measurement;

/// The results of each repetition.
#[derive(Clone, Debug, Default)]
pub(super) struct Repetitions {
    established: Vec<u64>,
    carrying: Vec<u64>,
}

impl Repetitions {
    /// Adds a repetition: established connections, and those that carried data in the measured interval.
    pub(super) fn add(&mut self, established: u64, carrying: u64) {
        self.established.push(established);
        self.carrying.push(carrying);
    }

    /// Returns the 10th and 90th percentile of both.
    pub(super) fn measurements(&self) -> [Measurement; 4] {
        [
            Measurement::new("established-p10", quantile(&self.established, 10)),
            Measurement::new("established-p90", quantile(&self.established, 90)),
            Measurement::new("carrying-p10", quantile(&self.carrying, 10)),
            Measurement::new("carrying-p90", quantile(&self.carrying, 90)),
        ]
    }
}

/// Returns the smallest number that `percent` % of all do not exceed; 0 if empty.
fn quantile(numbers: &[u64], percent: usize) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).map_or(0.0, |number| *number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_numbers() {
        let numbers: Vec<u64> = (1..=20).rev().collect();
        assert_eq!([10, 50, 90, 100].map(|percent| quantile(&numbers, percent)), [2.0, 10.0, 18.0, 20.0]);
        assert_eq!(quantile(&[], 50), 0.0);
    }
}
