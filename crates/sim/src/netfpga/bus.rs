//! The PCI bus between card and host memory.

use std::num::NonZeroU64;

use super::clock::Clock;

/// The configuration of the bus. A packet moves in bursts; each begins with an address and ends with a
/// turnaround.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bus {
    /// The bus clock; one word per cycle within a burst.
    pub(super) clock: Clock,
    /// Length of a word, in bytes.
    pub(super) width: NonZeroU64,
    /// Maximum bytes per burst.
    pub(super) burst: NonZeroU64,
    /// Overhead cycles per burst.
    pub(super) burst_overhead: u64,
    /// Overhead cycles per packet.
    pub(super) packet_overhead: u64,
}

impl Bus {
    /// Returns the transfer time of `len` bytes, in nanoseconds.
    pub(super) fn nanos(&self, len: u64) -> u64 {
        let words = len.div_ceil(self.width.get());
        let bursts = len.div_ceil(self.burst.get());
        self.clock.nanos(words + bursts * self.burst_overhead + self.packet_overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_words_bursts_and_an_overhead() {
        let non_zero = |number| NonZeroU64::new(number).unwrap();
        let bus = Bus {
            clock: Clock::new(100_000_000).unwrap(),
            width: non_zero(4),
            burst: non_zero(64),
            burst_overhead: 2,
            packet_overhead: 10,
        };
        assert_eq!(bus.nanos(64), (16 + 2 + 10) * 10);
        assert_eq!(bus.nanos(65), (17 + 4 + 10) * 10);
    }
}
