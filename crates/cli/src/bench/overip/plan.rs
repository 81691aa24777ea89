//! The extent of the measurement: places, rounds, repetitions.

use std::time::Duration;

/// Values along the axes, numbers of repetitions, and the duration of each.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Rounds. Each measures all places of a figure over all transports once.
    pub(super) rounds: usize,
    /// Rounds of slow measurements.
    pub(super) long_rounds: usize,
    /// Time for the messages of one place and transport in a round, which determines their number.
    pub(super) time: Duration,
    /// One-way delays of the path.
    pub(super) delays: Vec<Duration>,
    /// Message sizes in bytes.
    pub(super) sizes: &'static [usize],
    /// Computation between sending and receiving, without path delay.
    pub(super) computations: &'static [Duration],
    /// Time that the server's program computes before each answer.
    pub(super) loads: &'static [Duration],
    /// Sizes of pushed messages, in bytes.
    pub(super) pushed_sizes: &'static [usize],
    /// Senders to one host.
    pub(super) senders: usize,
    /// Computation of the application during the pushes.
    pub(super) application: Duration,
}

const fn micros<const N: usize>(values: [u64; N]) -> [Duration; N] {
    let mut durations = [Duration::ZERO; N];
    let mut at = 0;
    while at < N {
        durations[at] = Duration::from_micros(values[at]);
        at += 1;
    }
    durations
}

const MILLI: u64 = 1000;
const DELAYS: [Duration; 8] =
    micros([0, MILLI, 2 * MILLI, 4 * MILLI, 8 * MILLI, 16 * MILLI, 32 * MILLI, 64 * MILLI]);
const QUICK_DELAYS: [Duration; 3] = micros([0, 4 * MILLI, 16 * MILLI]);
const COMPUTATIONS: [Duration; 9] = micros([0, 10, 20, 50, 100, 200, 300, 500, 1000]);
const QUICK_COMPUTATIONS: [Duration; 4] = micros([0, 50, 200, 1000]);
const LOADS: [Duration; 7] = micros([0, MILLI, 2 * MILLI, 4 * MILLI, 8 * MILLI, 16 * MILLI, 32 * MILLI]);
const QUICK_LOADS: [Duration; 3] = micros([0, 4 * MILLI, 16 * MILLI]);
const KI: usize = 1024;

/// Maximum number of messages of a measurement.
const MAX_MESSAGES: u128 = 1000;

/// Minimum number of messages of a measurement.
const MIN_MESSAGES: u128 = 3;

impl Plan {
    /// All places of the paper's figures, in ten minutes.
    pub(super) fn full() -> Self {
        Self {
            rounds: 5,
            long_rounds: 3,
            time: Duration::from_millis(120),
            delays: DELAYS.to_vec(),
            sizes: &[1, 4, 16, 64, 256, KI, 4 * KI, 16 * KI, 64 * KI],
            computations: &COMPUTATIONS,
            loads: &LOADS,
            pushed_sizes: &[KI, 4 * KI, 16 * KI, 64 * KI],
            senders: 40,
            application: Duration::from_millis(300),
        }
    }

    /// A few places of each figure, in a minute.
    pub(super) fn quick() -> Self {
        Self {
            rounds: 3,
            long_rounds: 1,
            time: Duration::from_millis(30),
            delays: QUICK_DELAYS.to_vec(),
            sizes: &[1, 64, KI, 16 * KI, 64 * KI],
            computations: &QUICK_COMPUTATIONS,
            loads: &QUICK_LOADS,
            pushed_sizes: &[KI, 16 * KI],
            application: Duration::from_millis(100),
            ..Self::full()
        }
    }

    /// Returns the longest message of any figure, in bytes.
    pub(super) fn max_len(&self) -> usize {
        self.sizes.iter().chain(self.pushed_sizes).copied().fold(KI, usize::max)
    }

    /// Returns the number of messages of a measurement, if each takes `expected`.
    pub(super) fn iterations(&self, expected: Duration) -> u32 {
        let each = expected.max(Duration::from_micros(20)).as_nanos();
        (self.time.as_nanos() / each).clamp(MIN_MESSAGES, MAX_MESSAGES) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fill_the_time_but_are_never_too_few() {
        let plan = Plan::full();
        assert_eq!(plan.iterations(Duration::from_millis(1)), 120);
        assert_eq!(plan.iterations(Duration::from_secs(1)), 3);
        assert_eq!(plan.iterations(Duration::ZERO), 1000);
        assert_eq!(plan.max_len(), 65_536);
    }
}
