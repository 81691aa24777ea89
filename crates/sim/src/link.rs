//! A link: a queue, a rate and a delay.
//!
//! Analytic: the arrival time is known when a packet is sent, so that a hop is one event.

use std::collections::VecDeque;

use nichrome_wan::QueueLimit;
use nichrome_wire::{Ecn, Instant};
use thiserror::Error;

use crate::{Pacer, Packet, Rate};

/// Overhead of an Ethernet frame on the wire in bytes: preamble and start of frame 8, frame check sequence 4,
/// gap 12 (IEEE 802.3).
pub const ETHERNET_OVERHEAD: u32 = 24;

/// The configuration of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The rate.
    pub rate: Rate,
    /// The propagation delay, in nanoseconds.
    pub delay: u64,
    /// The queue limit, without the packet in transmission.
    pub queue: QueueLimit,
    /// Queue length above which packets are marked (RFC 8257 section 3.1); `None`: never.
    pub ecn_threshold: Option<QueueLimit>,
    /// Overhead per packet in bytes, such as [`ETHERNET_OVERHEAD`].
    pub overhead: u32,
}

impl LinkConfig {
    /// An Ethernet link with a queue of 1000 packets and without marking.
    pub fn ethernet(rate: Rate, delay: u64) -> Self {
        Self { rate, delay, queue: QueueLimit::default(), ecn_threshold: None, overhead: ETHERNET_OVERHEAD }
    }
}

/// A unidirectional FIFO link.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    pacer: Pacer,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    counters: LinkCounters,
}

/// A queued packet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    begins: Instant,
    len: u32,
}

/// The schedule of an accepted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When transmission begins.
    pub begins: Instant,
    /// When transmission ends.
    pub ends: Instant,
    /// When the last bit arrives: `ends` plus the delay.
    pub arrives: Instant,
    /// True if the packet is to be marked CE, provided that it is ECN-capable.
    pub marked: bool,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets accepted.
    pub packets: u64,
    /// Bytes of these, without overhead.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets above the marking threshold, ECN-capable or not.
    pub marked: u64,
}

impl LinkCounters {
    /// Returns the counters with their names.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        let Self { packets, bytes, dropped, marked } = *self;
        [("packets", packets), ("bytes", bytes), ("dropped", dropped), ("marked", marked)]
    }
}

impl Link {
    /// Creates an idle link.
    pub fn new(config: LinkConfig) -> Self {
        let pacer = Pacer::new(config.rate);
        Self { config, pacer, waiting: VecDeque::new(), waiting_bytes: 0, counters: LinkCounters::default() }
    }

    /// Sends a packet of `len` bytes; `now` must not decrease.
    ///
    /// # Errors
    /// The queue is full: the packet is dropped.
    pub fn send(&mut self, len: usize, now: Instant) -> Result<Sent, QueueFull> {
        self.remove_started(now);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let begins = self.pacer.begins(now);
        let waits = begins > now;
        if waits && exceeds(self.config.queue, self.waiting.len() + 1, self.waiting_bytes + u64::from(len)) {
            self.counters.dropped += 1;
            return Err(QueueFull);
        }
        let marked = self
            .config
            .ecn_threshold
            .is_some_and(|most| exceeds(most, self.waiting.len(), self.waiting_bytes));
        if waits {
            self.waiting.push_back(Waiting { begins, len });
            self.waiting_bytes += u64::from(len);
        }
        self.counters.packets += 1;
        self.counters.bytes += u64::from(len);
        self.counters.marked += u64::from(marked);
        let ends = self.pacer.send(u64::from(len) + u64::from(self.config.overhead), now);
        Ok(Sent { begins, ends, arrives: ends.plus_nanos(self.config.delay), marked })
    }

    /// Sends a packet, and marks it CE if it is above the threshold and ECN-capable.
    ///
    /// # Errors
    /// The queue is full: the packet is dropped.
    pub fn carry(&mut self, packet: &mut Packet, now: Instant) -> Result<Sent, QueueFull> {
        let sent = self.send(packet.wire_len(), now)?;
        if sent.marked && nichrome_wan::Packet::ecn(packet) != Ecn::NotEct {
            nichrome_wan::Packet::mark_ce(packet);
        }
        Ok(sent)
    }

    /// Returns the queued packets and bytes at `now`, which is not before the last packet.
    pub fn waiting(&self, now: Instant) -> (usize, u64) {
        let begun = self.waiting.iter().take_while(|packet| packet.begins <= now);
        let (packets, bytes) =
            begun.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + u64::from(packet.len)));
        (self.waiting.len() - packets, self.waiting_bytes - bytes)
    }

    /// Returns when transmission of a packet sent at `now` would begin.
    pub fn begins(&self, now: Instant) -> Instant {
        self.pacer.begins(now)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    fn remove_started(&mut self, now: Instant) {
        while let Some(first) = self.waiting.front().filter(|first| first.begins <= now) {
            self.waiting_bytes -= u64::from(first.len);
            self.waiting.pop_front();
        }
    }
}

/// Returns true if the queue length exceeds the limit.
fn exceeds(limit: QueueLimit, packets: usize, bytes: u64) -> bool {
    match limit {
        QueueLimit::Packets(most) => packets as u64 > u64::from(most.get()),
        QueueLimit::Bytes(most) => bytes > most.get(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn config(queue: &str) -> LinkConfig {
        let queue = queue.parse().unwrap();
        LinkConfig { rate: Rate::GIGABIT, delay: 5000, queue, ecn_threshold: None, overhead: 0 }
    }

    #[test]
    fn a_packet_arrives_after_its_bits_and_the_delay() {
        let mut link = Link::new(LinkConfig::ethernet(Rate::TEN_GIGABIT, 1000));
        let sent = link.send(1514, at(100)).unwrap();
        assert_eq!((sent.begins, sent.ends, sent.arrives), (at(100), at(1330), at(2330)));
    }

    #[test]
    fn what_is_being_sent_does_not_wait() {
        let mut link = Link::new(config("2p"));
        let begins: Vec<_> =
            (0..4).map(|_| link.send(125, at(0)).map(|sent| sent.begins.as_nanos())).collect();
        assert_eq!(begins, [Ok(0), Ok(1000), Ok(2000), Err(QueueFull)]);
        assert_eq!(link.waiting(at(999)), (2, 250));
        assert_eq!(link.waiting(at(1000)), (1, 125));
        assert!(link.send(125, at(1000)).is_ok());
        assert_eq!(link.counters(), LinkCounters { packets: 4, bytes: 500, dropped: 1, marked: 0 });
    }

    #[test]
    fn a_packet_behind_the_threshold_is_marked() {
        let mut link = Link::new(LinkConfig { ecn_threshold: Some("250B".parse().unwrap()), ..config("9p") });
        let marked: Vec<_> = (0..5).map(|_| link.send(125, at(0)).unwrap().marked).collect();
        assert_eq!(marked, [false, false, false, false, true]);
    }

    fn limit() -> impl Strategy<Value = QueueLimit> {
        prop_oneof![
            (1..20u32).prop_map(|packets| QueueLimit::Packets(packets.try_into().unwrap())),
            (1..20_000u64).prop_map(|bytes| QueueLimit::Bytes(bytes.try_into().unwrap())),
        ]
    }

    proptest! {
        /// Every packet arrives or is dropped; order is kept; the rate is never exceeded; the link is never
        /// idle while something waits; the queue keeps its limit.
        #[test]
        fn a_link_is_a_queue_before_a_rate(
            queue in limit(),
            rate in 1_000_000..100_000_000_000u64,
            overhead in 0..30u32,
            packets in prop::collection::vec((0..3000u64, 1..3000usize), 1..300),
        ) {
            let rate = Rate::new(rate).unwrap();
            let mut link = Link::new(LinkConfig { rate, delay: 700, queue, ecn_threshold: None, overhead });
            let (mut now, mut last, mut dropped, mut bytes) = (Instant::ZERO, None::<Sent>, 0, 0);
            let count = packets.len() as u64;
            for (gap, len) in packets {
                now = now.plus_nanos(gap);
                let Ok(sent) = link.send(len, now) else {
                    prop_assert!(last.is_some_and(|last| last.ends > now), "an idle link drops nothing");
                    dropped += 1;
                    continue;
                };
                let free = last.map_or(Instant::ZERO, |last| last.ends);
                prop_assert_eq!(sent.begins, now.max(free));
                prop_assert_eq!(sent.arrives.nanos_since(sent.ends), 700);
                let exact = rate.nanos(len as u64 + u64::from(overhead));
                prop_assert!((exact - 1..=exact).contains(&sent.ends.nanos_since(sent.begins)));
                let (waiting, waiting_bytes) = link.waiting(now);
                prop_assert!(!exceeds(queue, waiting, waiting_bytes));
                bytes += len as u64;
                last = Some(sent);
            }
            let counters = link.counters();
            prop_assert_eq!((counters.packets, counters.bytes, counters.dropped), (count - dropped, bytes, dropped));
            prop_assert_eq!(link.waiting(Instant::MAX), (0, 0));
        }
    }
}
