//! Transmission times of a link, by a rate or a trace.

use nichrome_wire::Instant;

use crate::{Bandwidth, Packet, Trace};

/// A link that sends one packet at a time.
pub(super) enum Link {
    /// Zero transmission time.
    Unlimited,
    /// A constant rate.
    Rate(Pacer),
    /// The opportunities of a trace.
    Trace(Player),
}

impl Link {
    /// Returns when a link that is idle at `at` can start to send.
    pub(super) fn next_start(&mut self, at: Instant) -> Instant {
        match self {
            Self::Unlimited | Self::Rate(_) => at,
            Self::Trace(player) => player.next_start(at),
        }
    }

    /// Returns when a link that completed a packet at `done` can start to send the next queued one.
    pub(super) fn next_start_after(&mut self, done: Instant) -> Instant {
        match self {
            Self::Unlimited | Self::Rate(_) => done,
            Self::Trace(player) => player.next_start_after(done),
        }
    }

    /// Returns when transmission of a packet ends that starts at `start`, a time from [`Link::next_start`] or
    /// [`Link::next_start_after`].
    pub(super) fn send(&mut self, packet: &impl Packet, start: Instant) -> Instant {
        match self {
            Self::Unlimited => start,
            Self::Rate(pacer) => pacer.send(packet.wire_len() as u64, start),
            Self::Trace(player) => player.send(packet.network_len() as u64, start),
        }
    }

    /// Returns true for zero transmission time.
    pub(super) fn is_unlimited(&self) -> bool {
        matches!(self, Self::Unlimited)
    }
}

/// Sends at a constant rate. Fractions of a nanosecond carry over between back-to-back packets, so that
/// rounding errors do not accumulate.
pub(super) struct Pacer {
    pub(super) rate: Bandwidth,
    busy_until: Instant,
    /// Fraction of a nanosecond, in units of `1 / rate`.
    remainder: u64,
}

impl Pacer {
    pub(super) fn new(rate: Bandwidth) -> Self {
        Self { rate, busy_until: Instant::ZERO, remainder: 0 }
    }

    fn send(&mut self, bytes: u64, start: Instant) -> Instant {
        let carried = if start == self.busy_until { self.remainder } else { 0 };
        let parts = bytes.saturating_mul(8 * 1_000_000_000).saturating_add(carried);
        let rate = self.rate.bits_per_second();
        self.busy_until = start.plus_nanos(parts / rate);
        self.remainder = parts % rate;
        self.busy_until
    }
}

/// Plays a trace as Mahimahi does: an unused opportunity is lost, the rest of a partly used one serves later
/// packets, and a packet may need several.
pub(super) struct Player {
    pub(super) trace: Trace,
    /// Start of the trace: when the first packet arrived.
    start: Option<Instant>,
    /// The next opportunity, counted over all repetitions.
    next: u64,
    /// Unused bytes of the current opportunity.
    left: u64,
}

impl Player {
    pub(super) fn new(trace: Trace) -> Self {
        Self { trace, start: None, next: 0, left: 0 }
    }

    /// Skips the opportunities up to `at`.
    fn next_start(&mut self, at: Instant) -> Instant {
        let start = *self.start.get_or_insert(at);
        self.left = 0;
        self.next = self.next.max(self.trace.first_after(start, at));
        self.trace.time(start, self.next)
    }

    fn next_start_after(&mut self, done: Instant) -> Instant {
        let start = *self.start.get_or_insert(done);
        if self.left > 0 {
            return done;
        }
        let next = self.trace.time(start, self.next);
        if next >= done { next } else { self.next_start(done) }
    }

    fn send(&mut self, bytes: u64, begin: Instant) -> Instant {
        let start = *self.start.get_or_insert(begin);
        if self.left == 0 {
            self.next += 1;
            self.left = Trace::OPPORTUNITY;
        }
        if bytes <= self.left {
            self.left -= bytes;
            return begin;
        }
        let missing = bytes - self.left;
        let more = missing.div_ceil(Trace::OPPORTUNITY);
        self.next = self.next.saturating_add(more);
        self.left = more * Trace::OPPORTUNITY - missing;
        self.trace.time(start, self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The total time of back-to-back packets is exactly the time of their bits.
        #[test]
        fn a_busy_link_is_exact(
            rate in 1000..=1_000_000_000_000u64,
            packets in proptest::collection::vec(0..=65_535u64, 1..200),
        ) {
            let mut pacer = Pacer::new(Bandwidth::new(rate).unwrap());
            let mut sent = Instant::from_nanos(5);
            let mut bits = 0u128;
            for bytes in packets {
                sent = pacer.send(bytes, sent);
                bits += u128::from(bytes) * 8;
                prop_assert_eq!(u128::from(sent.as_nanos()), 5 + bits * 1_000_000_000 / u128::from(rate));
            }
        }
    }

    #[test]
    fn an_idle_link_drops_the_fraction_left_over() {
        let mut pacer = Pacer::new("3kbit".parse().unwrap());
        assert_eq!(pacer.send(1, Instant::ZERO), Instant::from_nanos(2_666_666));
        assert_eq!(pacer.send(1, Instant::from_nanos(3_000_000)), Instant::from_nanos(5_666_666));
    }

    #[test]
    fn packets_share_opportunities_and_need_several() {
        let ms = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut player = Player::new("10\n20\n20\n50".parse().unwrap());
        assert_eq!(player.next_start(ms(0)), ms(10));
        // Two packets use one opportunity; the second one continues in the next opportunity.
        assert_eq!(player.send(1000, ms(10)), ms(10));
        assert_eq!(player.next_start_after(ms(10)), ms(10));
        assert_eq!(player.send(1000, ms(10)), ms(20));
        // The rest of the opportunity at 20 ms, the second one, and the one at 50 ms.
        assert_eq!(player.next_start_after(ms(20)), ms(20));
        assert_eq!(player.send(1000 + 1500 + 1500, ms(20)), ms(50));
        // All opportunities are used: the next period begins at 50 ms.
        assert_eq!(player.next_start_after(ms(50)), ms(60));
        // Idle: the rest of the opportunity is lost.
        assert_eq!(player.send(100, ms(60)), ms(60));
        assert_eq!(player.next_start(ms(60)), ms(70));
        assert_eq!(player.send(1500 + 1500 + 100, ms(70)), ms(100));
    }
}
