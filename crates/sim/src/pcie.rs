//! The bus between a card and its host's memory, as the card sees it.
//!
//! A write is posted: it takes its time on the bus and the latency, and nobody waits for an answer. A read is a request
//! for at most so many bytes, of which so many may be outstanding; its data comes back a round trip later, one
//! completion after the other. The two directions do not disturb each other; a request's own few bytes do not count.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroUsize};

use nichrome_wire::Instant;

use crate::{Pacer, Rate};

/// What the bus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieConfig {
    /// Bits per second in each direction, headers included.
    pub rate: Rate,
    /// From the card to memory, or back, in nanoseconds; a read takes twice that.
    pub latency: u64,
    /// Bytes that one packet of the bus carries.
    pub max_payload: NonZeroU32,
    /// Bytes that each packet of the bus takes beside: framing, header, check sum.
    pub overhead: u32,
    /// Bytes that one read request asks for.
    pub max_read: NonZeroU32,
    /// Read requests that may wait for their data.
    pub outstanding_reads: NonZeroUsize,
}

/// The bus. `now` must not go backwards in any of its calls.
#[derive(Clone, Debug)]
pub struct Pcie {
    config: PcieConfig,
    to_memory: Pacer,
    from_memory: Pacer,
    /// When the data of each of the last requests is there, in order; as many as may be outstanding.
    completions: VecDeque<Instant>,
    counters: PcieCounters,
}

/// What the bus has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieCounters {
    /// Writes, and their bytes without overhead.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Read requests sent.
    pub read_requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Pcie {
    /// An idle bus.
    pub fn new(config: PcieConfig) -> Self {
        Self {
            config,
            to_memory: Pacer::new(config.rate),
            from_memory: Pacer::new(config.rate),
            completions: VecDeque::with_capacity(config.outstanding_reads.get()),
            counters: PcieCounters::default(),
        }
    }

    /// Writes `bytes` bytes to memory; says when the last is there.
    pub fn write(&mut self, bytes: u64, now: Instant) -> Instant {
        self.counters.writes += 1;
        self.counters.bytes_written += bytes;
        self.to_memory.send(self.with_overhead(bytes), now).plus_nanos(self.config.latency)
    }

    /// Reads `bytes` bytes from memory; says when the last is here.
    pub fn read(&mut self, bytes: u64, now: Instant) -> Instant {
        let max_read = u64::from(self.config.max_read.get());
        self.counters.bytes_read += bytes;
        let mut here = now;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(max_read);
            here = self.request(piece, now);
            left -= piece;
        }
        here
    }

    /// Sends one read request, once it may be outstanding.
    fn request(&mut self, bytes: u64, now: Instant) -> Instant {
        let is_full = self.completions.len() == self.config.outstanding_reads.get();
        let frees = if is_full { self.completions.pop_front() } else { None };
        let sent = frees.map_or(now, |frees| frees.max(now));
        let there_and_back = 2 * self.config.latency;
        let here = self.from_memory.send(self.with_overhead(bytes), sent.plus_nanos(there_and_back));
        self.completions.push_back(here);
        self.counters.read_requests += 1;
        here
    }

    /// When what is written at `now` begins to move: when the writes before it are on their way.
    pub fn write_begins(&self, now: Instant) -> Instant {
        self.to_memory.begins(now)
    }

    /// Read requests that wait for their data at `now`, those that wait to be sent included up to the limit.
    pub fn outstanding(&self, now: Instant) -> usize {
        self.completions.iter().filter(|here| **here > now).count()
    }

    /// What it has done.
    pub fn counters(&self) -> PcieCounters {
        self.counters
    }

    fn with_overhead(&self, bytes: u64) -> u64 {
        let packets = bytes.div_ceil(u64::from(self.config.max_payload.get())).max(1);
        bytes + packets * u64::from(self.config.overhead)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// 1 byte a nanosecond, 400 ns one way.
    fn config(outstanding_reads: usize) -> PcieConfig {
        PcieConfig {
            rate: Rate::new(8_000_000_000).unwrap(),
            latency: 400,
            max_payload: 128.try_into().unwrap(),
            overhead: 20,
            max_read: 512.try_into().unwrap(),
            outstanding_reads: outstanding_reads.try_into().unwrap(),
        }
    }

    #[test]
    fn a_write_takes_its_packets_and_the_latency() {
        let mut bus = Pcie::new(config(1));
        assert_eq!(bus.write(129, at(0)), at(129 + 2 * 20 + 400));
        assert_eq!(bus.write(8, at(0)), at(169 + 28 + 400));
        assert_eq!(bus.read(8, at(0)), at(800 + 28), "reads do not wait for writes");
    }

    #[test]
    fn reads_overlap_as_far_as_they_may_be_outstanding() {
        let one_by_one = Pcie::new(config(1)).read(2048, at(0));
        let together = Pcie::new(config(4)).read(2048, at(0));
        assert_eq!(one_by_one, at(4 * (800 + 512 + 80)));
        assert_eq!(together, at(800 + 4 * (512 + 80)));
    }

    proptest! {
        /// By Little's law no more than the limit is outstanding on average; by this test it never is.
        #[test]
        fn no_more_reads_are_outstanding_than_may_be(
            limit in 1..9usize,
            reads in prop::collection::vec((0..2000u64, 1..=512u64), 1..200),
        ) {
            let mut bus = Pcie::new(config(limit));
            let mut now = Instant::ZERO;
            let mut spans: Vec<(Instant, Instant)> = Vec::new();
            for (gap, bytes) in reads {
                now = now.plus_nanos(gap);
                let here = bus.read(bytes, now);
                // A request was sent when one of the last `limit` was answered, and no later.
                let freed = spans.len().checked_sub(limit).map_or(Instant::ZERO, |nth| spans[nth].1);
                let sent = now.max(freed);
                prop_assert!(here >= sent.plus_nanos(800 + bytes), "{here} for a request at {sent}");
                prop_assert!(spans.last().is_none_or(|(_, last)| here.nanos_since(*last) >= bytes));
                let outstanding = spans.iter().filter(|(_, here)| *here > sent).count() + 1;
                prop_assert!(outstanding <= limit);
                prop_assert!(bus.outstanding(now) <= limit);
                spans.push((sent, here));
            }
        }

        #[test]
        fn writes_never_exceed_the_rate(writes in prop::collection::vec((0..500u64, 0..1000u64), 1..200)) {
            let mut bus = Pcie::new(config(1));
            let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
            for (gap, bytes) in writes {
                now = now.plus_nanos(gap);
                let there = bus.write(bytes, now);
                let on_bus = bytes + bytes.div_ceil(128).max(1) * 20;
                prop_assert_eq!(there, last.max(now.plus_nanos(400)).plus_nanos(on_bus));
                last = there;
            }
        }
    }
}
