//! The extent of `nichrome bench wan`.

use std::time::Duration;

use super::probe;

/// The extent of a measurement.
pub(super) struct Plan {
    pub(super) engine_runs: usize,
    pub(super) iperf3_runs: usize,
    /// Packets of a run of the engine.
    pub(super) packets: u64,
    /// Configured delays, in milliseconds.
    pub(super) delays: &'static [u64],
    /// Duration of sending over each delay.
    pub(super) sending: Duration,
    /// Duration of a run of iperf3, in seconds.
    pub(super) seconds: &'static str,
    pub(super) mahimahi: bool,
}

pub(super) const FULL: Plan = Plan {
    engine_runs: 7,
    iperf3_runs: 5,
    packets: 2_000_000,
    delays: &[0, 1, 20, 100, 300],
    sending: probe::TIME,
    seconds: "2",
    mahimahi: true,
};

/// With --quick.
pub(super) const QUICK: Plan = Plan {
    engine_runs: 1,
    iperf3_runs: 1,
    packets: 100_000,
    delays: &[0, 1, 20],
    sending: Duration::from_millis(200),
    seconds: "1",
    mahimahi: false,
};
