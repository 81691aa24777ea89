//! Computation of programs, simulated by a calibrated loop.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Computes for a given time: executes the number of steps that take this time on an idle processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    steps_per_second: f64,
}

/// Steps of a sample: about 0.1 ms.
const SAMPLE: u64 = 20_000;

/// Number of samples; the fastest counts, since the others were interrupted.
const SAMPLES: u32 = 200;

impl Work {
    /// Measures the duration of a step on this processor.
    pub(super) fn calibrate() -> Self {
        let sample = |_| {
            let start = Instant::now();
            compute(SAMPLE);
            start.elapsed()
        };
        let fastest = (0..SAMPLES).map(sample).min().unwrap_or_default();
        Self { steps_per_second: SAMPLE as f64 / fastest.as_secs_f64().max(1e-9) }
    }

    /// Computes steps for `time`; takes longer if the processor runs other threads meanwhile.
    pub(super) fn run(self, time: Duration) {
        compute((time.as_secs_f64() * self.steps_per_second) as u64);
    }
}

fn compute(steps: u64) {
    let mut value = black_box(0.5f64);
    for _ in 0..steps {
        value = value * 0.999_999 + 0.000_001;
    }
    black_box(value);
}

/// Computes until `time` has passed.
pub(super) fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        compute(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_ten_times_the_time_takes_longer() {
        let work = Work::calibrate();
        // The shortest of several: the others were interrupted.
        let time = |millis| {
            let run = |_| {
                let start = Instant::now();
                work.run(Duration::from_millis(millis));
                start.elapsed()
            };
            (0..5).map(run).min()
        };
        assert!(time(20) > time(2).map(|short| 2 * short));
    }
}
