//! Drop reasons with stable names.

use std::fmt;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The path held [`crate::Limit`] packets when this one arrived.
    InFlightLimit,
    /// The packet is longer than the MTU.
    Mtu,
    /// Configured loss.
    Loss,
    /// The bottleneck's queue was full.
    TailDrop,
    /// CoDel dropped the packet.
    CoDel,
}

impl DropReason {
    /// All reasons in the order of their counters.
    pub const ALL: [Self; 5] = [Self::InFlightLimit, Self::Mtu, Self::Loss, Self::TailDrop, Self::CoDel];

    /// Returns the name in reports and JSON, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InFlightLimit => "in_flight_limit",
            Self::Mtu => "mtu",
            Self::Loss => "loss",
            Self::TailDrop => "tail_drop",
            Self::CoDel => "codel",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Dropped packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    #[inline]
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Returns the count of one reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the total.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Iterates over names and counts in a stable order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DropReason::ALL.into_iter().map(|reason| (reason.name(), self.get(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_of_its_own() {
        let mut drops = Drops::default();
        for (times, reason) in DropReason::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| drops.count(reason));
        }
        let counted: Vec<_> = drops.named().collect();
        assert_eq!(
            counted,
            [("in_flight_limit", 0), ("mtu", 1), ("loss", 2), ("tail_drop", 3), ("codel", 4)]
        );
        assert_eq!((drops.total(), drops.get(DropReason::Loss)), (10, 2));
    }
}
