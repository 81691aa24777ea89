//! Configuration of the `npu` profile alone.

use std::time::Duration;

use nichrome_wire::instant;

use super::ack::ActiveAck;
use crate::config::{self, ConfigError};

/// Which rules apply where the paper's can break a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// The safe rules: see the table of the [module](super).
    #[default]
    Safe,
    /// Algorithms 1 and 2 and section IV.A as written; [`NpuConfig::paper`] has the matching times and
    /// limits.
    Paper,
}

/// Treatment of PSH on data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PshRule {
    /// Ignored: a timeout delivers the run.
    #[default]
    Hold,
    /// PSH ends the aggregate.
    End,
}

/// Configuration of the `npu` profile alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NpuConfig {
    /// Minimum timeout of a connection after its last segment, 0 to 60 s.
    pub floor: Duration,
    /// Maximum timeout of a connection after its last segment, and maximum time that a segment is held while
    /// more arrive, 0 to 60 s.
    pub ceiling: Duration,
    /// Time that segments wait behind a gap, 0 to 60 s. A held gap hides loss from the sender: stay well
    /// below the round-trip time.
    pub reorder_hold: Duration,
    /// Maximum distance of a waiting segment from nextseq, in bytes, 0 to 2³⁰.
    pub reorder_bytes: u32,
    /// Maximum number of segments of a connection behind a gap, 1 to 1,023.
    pub reorder_segments: usize,
    /// Treatment of PSH.
    pub psh: PshRule,
    /// When the card generates ACK frames.
    pub active_ack: ActiveAck,
    /// The paper's rules or the safe ones.
    pub rules: Rules,
}

impl Default for NpuConfig {
    fn default() -> Self {
        Self {
            floor: Duration::from_micros(20),
            ceiling: Duration::from_millis(1),
            reorder_hold: Duration::from_micros(500),
            reorder_bytes: 1 << 20,
            reorder_segments: 256,
            psh: PshRule::Hold,
            active_ack: ActiveAck::Off,
            rules: Rules::Safe,
        }
    }
}

/// Upper bound of the configurable times, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// Upper bound of `reorder_bytes`.
const FURTHEST: u32 = 1 << 30;
/// Upper bound of `reorder_segments`.
const MOST_WAITING: usize = 1023;

impl NpuConfig {
    /// Returns the paper's rules: no floor, and the largest configurable limits. The table of the
    /// [module](super) names the rules that stay safe.
    #[must_use]
    pub fn paper() -> Self {
        Self {
            floor: Duration::ZERO,
            ceiling: Duration::from_nanos(LONGEST),
            reorder_hold: Duration::from_nanos(LONGEST),
            reorder_bytes: FURTHEST,
            reorder_segments: MOST_WAITING,
            rules: Rules::Paper,
            ..Self::default()
        }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        config::check(&[
            ("floor in ns", instant::nanos(self.floor), 0, LONGEST),
            ("ceiling in ns", instant::nanos(self.ceiling), 0, LONGEST),
            ("reorder_hold in ns", instant::nanos(self.reorder_hold), 0, LONGEST),
            ("reorder_bytes", u64::from(self.reorder_bytes), 0, u64::from(FURTHEST)),
            ("reorder_segments", self.reorder_segments as u64, 1, MOST_WAITING as u64),
        ])
    }

    /// Returns true if the engine drops segments of bytes that were received before: by the paper's rules, or
    /// because the host has acknowledged them.
    #[must_use]
    pub fn drops_duplicates(&self) -> bool {
        self.rules == Rules::Paper || self.active_ack == ActiveAck::Safe
    }

    /// Returns the default with `hold` as the ceiling and as the time that segments wait behind a gap.
    #[must_use]
    pub fn with_hold(hold: Duration) -> Self {
        let default = Self::default();
        Self { floor: default.floor.min(hold), ceiling: hold, reorder_hold: hold, ..default }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rules_are_within_all_ranges() {
        assert!(NpuConfig::paper().validate().is_ok());
    }

    /// Section IV.E has neither floor nor ceiling; the other limits are as large as memory reserved at start
    /// allows.
    #[test]
    fn the_papers_rules_have_no_floor_and_the_largest_limits() {
        let longest = Duration::from_secs(60);
        let paper = NpuConfig {
            floor: Duration::ZERO,
            ceiling: longest,
            reorder_hold: longest,
            reorder_bytes: 1 << 30,
            reorder_segments: 1023,
            rules: Rules::Paper,
            ..NpuConfig::default()
        };
        assert_eq!(NpuConfig::paper(), paper);
    }

    #[test]
    fn a_hold_time_limits_every_time() {
        for micros in [1, 1_000_000] {
            let hold = Duration::from_micros(micros);
            let config = NpuConfig::with_hold(hold);
            assert_eq!((config.ceiling, config.reorder_hold), (hold, hold));
            assert_eq!(config.floor, NpuConfig::default().floor.min(hold));
        }
    }

    #[test]
    fn each_value_beyond_its_range_is_refused() {
        let paper = NpuConfig::paper();
        let more = Duration::from_secs(60) + Duration::from_nanos(1);
        for config in [
            NpuConfig { floor: more, ..paper },
            NpuConfig { ceiling: more, ..paper },
            NpuConfig { reorder_hold: more, ..paper },
            NpuConfig { reorder_bytes: (1 << 30) + 1, ..paper },
            NpuConfig { reorder_segments: 1024, ..paper },
            NpuConfig { reorder_segments: 0, ..paper },
        ] {
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
