//! PCIe between a card and its host's memory.
//!
//! A write is posted: it takes bus time plus latency, without a response. A read is split into requests of
//! limited size and number; data returns after a round trip, one completion after another. The two directions
//! are independent; request packets take no bus time.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroUsize};

use nichrome_wire::Instant;

use crate::{Pacer, Rate};

/// The configuration of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieConfig {
    /// Rate per direction in bits per second, including headers.
    pub rate: Rate,
    /// One-way latency in nanoseconds; a read takes twice that.
    pub latency: u64,
    /// Maximum payload of a bus packet, in bytes.
    pub max_payload: NonZeroU32,
    /// Overhead of a bus packet in bytes: framing, header, checksum.
    pub overhead: u32,
    /// Maximum size of a read request, in bytes.
    pub max_read: NonZeroU32,
    /// Maximum outstanding read requests.
    pub outstanding_reads: NonZeroUsize,
}

/// The bus. `now` must not decrease between calls.
#[derive(Clone, Debug)]
pub struct Pcie {
    config: PcieConfig,
    to_memory: Pacer,
    from_memory: Pacer,
    /// Completion times of the outstanding requests, in order.
    completions: VecDeque<Instant>,
    counters: PcieCounters,
}

/// Counters of the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieCounters {
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Read requests sent.
    pub read_requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Pcie {
    /// Creates an idle bus.
    pub fn new(config: PcieConfig) -> Self {
        Self {
            config,
            to_memory: Pacer::new(config.rate),
            from_memory: Pacer::new(config.rate),
            completions: VecDeque::with_capacity(config.outstanding_reads.get()),
            counters: PcieCounters::default(),
        }
    }

    /// Writes to memory; returns when the last byte has arrived.
    pub fn write(&mut self, bytes: u64, now: Instant) -> Instant {
        self.counters.writes += 1;
        self.counters.bytes_written += bytes;
        self.to_memory.send(self.with_overhead(bytes), now).plus_nanos(self.config.latency)
    }

    /// Reads from memory; returns when the last byte has arrived.
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

    /// Issues a read request as soon as the limit allows; returns when its data has arrived.
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

    /// Returns when a write posted at `now` starts: after all earlier writes.
    pub fn write_begins(&self, now: Instant) -> Instant {
        self.to_memory.begins(now)
    }

    /// Returns the outstanding read requests at `now`, including queued ones up to the limit.
    pub fn outstanding(&self, now: Instant) -> usize {
        self.completions.iter().filter(|here| **here > now).count()
    }

    /// Returns the counters.
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
        /// By Little's law, the limit bounds the mean number of outstanding reads; here it is never exceeded.
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
                // The bus sends a request once fewer than `limit` are outstanding, and no later.
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
