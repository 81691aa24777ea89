//! The results of a run. `--json` prints them: names are stable.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::number::{Grouped, plural};

/// The summary.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    /// Packets that `--filter` excluded.
    pub(super) filtered: u64,
    /// Packets whose link type is not supported; not in any other count.
    pub(super) skipped: u64,
    /// Segmented packets.
    pub(super) super_packets: u64,
    /// Resulting segments.
    pub(super) segments: u64,
    /// Super-packets left unchanged, by reason.
    pub(super) left: BTreeMap<&'static str, u64>,
    /// True if the input ended early.
    pub(super) truncated: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets_in = plural(self.packets_in, "packet", "packets");
        let super_packets = plural(self.super_packets, "super-packet", "super-packets");
        let segments = plural(self.segments, "segment", "segments");
        write!(
            f,
            "{packets_in} in, {} out: {super_packets} segmented into {segments}",
            Grouped(self.packets_out)
        )?;
        self.left
            .iter()
            .try_for_each(|(reason, count)| write!(f, "; {} left unchanged: {reason}", Grouped(*count)))?;
        if self.filtered > 0 {
            write!(f, "; {} filtered out", Grouped(self.filtered))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_packets_left_unchanged() {
        let left = BTreeMap::from([("IP fragments", 2)]);
        let summary = Summary {
            packets_in: 10,
            packets_out: 1052,
            filtered: 3,
            skipped: 0,
            super_packets: 1,
            segments: 1043,
            left,
            truncated: false,
        };
        let text = "10 packets in, 1,052 out: 1 super-packet segmented into 1,043 segments; 2 left unchanged: IP fragments; 3 filtered out";
        assert_eq!(summary.to_string(), text);
    }
}
