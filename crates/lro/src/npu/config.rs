//! What only the `npu` profile is configured with.

use std::time::Duration;

use nichrome_wire::instant;

use super::ack::ActiveAck;
use crate::config::{self, ConfigError};

/// Whether the paper's rules apply where they can break a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// What keeps connections alive: see the table of the [module](super).
    #[default]
    Safe,
    /// Algorithms 1 and 2 and section IV.A as written; [`NpuConfig::paper`] has the times and bounds that go with them.
    Paper,
}

/// What PSH does to the segments that are buffered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PshRule {
    /// Nothing: the timeouts deliver.
    #[default]
    Hold,
    /// The aggregate ends with it.
    End,
}

/// What only the `npu` profile is configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NpuConfig {
    /// A connection never times out sooner after its last segment than this.
    pub floor: Duration,
    /// It always times out this long after its last segment, and nothing waits longer, however steadily more comes.
    pub ceiling: Duration,
    /// How long segments wait for a gap before them to be filled. A gap that is held hides loss from the sender: stay
    /// well below the round-trip time.
    pub reorder_hold: Duration,
    /// How far ahead in bytes a segment may wait.
    pub reorder_bytes: u32,
    /// How many segments of a connection may wait behind a gap, 1 to 1,023.
    pub reorder_segments: usize,
    /// What PSH does.
    pub psh: PshRule,
    /// When the card acknowledges by itself.
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

/// The longest time that can be configured, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// The furthest ahead in bytes that a segment may wait.
const FURTHEST: u32 = 1 << 30;
/// The most segments that may wait behind a gap.
const MOST_WAITING: usize = 1023;

impl NpuConfig {
    /// The paper's rules: no floor and no bounds but the largest that can be configured. See the table of the
    /// [module](super) for what stays ours.
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

    /// The default with other hold times: `hold` is the ceiling and the time that a gap is held.
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
}
