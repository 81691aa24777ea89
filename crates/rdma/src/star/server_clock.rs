//! The server's clock as its client knows it, by which the client lets RDPs and GDs expire.
//!
//! The client keeps bounds of the difference between the two clocks. An answer's stamp was taken between the
//! departure of the request and the arrival of the answer; so the bounds are a round trip apart. They widen
//! with time, as clocks drift.

use nichrome_wire::Instant;
use nichrome_wire::star::Stamp;

/// Assumed maximum age of set-up's stamp, in microseconds. If it is older, packets expire in flight, and the
/// refusals set the clock.
const SET_UP: u32 = 10_000;

/// Clocks drift by less than 2⁻¹⁰, 977 ppm.
const DRIFT_SHIFT: u32 = 10;

/// Maximum microseconds until a packet expires, and so the time in which it can be replayed.
pub(crate) const LONGEST: u32 = 1_000_000;

/// Returns the stamp of a clock at `now`.
#[inline]
pub(crate) fn stamp_of(now: Instant) -> Stamp {
    Stamp((now.as_nanos() / 1000) as u32)
}

/// When a packet expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiration {
    /// The server accepts the packet until its clock shows this.
    pub(crate) stamp: Stamp,
    /// The client's time from which the server certainly no longer accepts the packet.
    pub(crate) certain: Instant,
}

/// Bounds of the difference between the server's clock and the client's, in microseconds modulo 2³².
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    /// The server's clock is ahead by no less than this.
    ahead: u32,
    /// The server's clock is ahead by no more than `ahead + width`.
    width: u32,
    at: Instant,
}

impl ServerClock {
    /// Creates the clock from the stamp that set-up delivered at `now`.
    pub(crate) fn set_up(stamp: Stamp, now: Instant) -> Self {
        Self { ahead: stamp.0.wrapping_sub(stamp_of(now).0).wrapping_sub(1), width: SET_UP, at: now }
    }

    /// Updates the bounds by the stamp of an answer, received at `now`, to a packet sent at `sent`, if they
    /// are closer then.
    #[inline]
    pub(crate) fn answered(&mut self, stamp: Stamp, sent: Instant, now: Instant) {
        let width = (now.nanos_since(sent) / 1000 + 3) as u32;
        if width <= self.width.saturating_add(self.drift(now).saturating_mul(2)) {
            *self = Self { ahead: stamp.0.wrapping_sub(stamp_of(now).0).wrapping_sub(1), width, at: now };
        }
    }

    /// Returns when a packet expires that is built at `now` and may be in flight for `lifetime` microseconds:
    /// at most [`LONGEST`] after the lower bound of the server's clock. After a long idle period the server
    /// may refuse the packet as expired, which sets the clock. If the packet were valid for longer and was
    /// lost, the completion of its operation would be delayed as long.
    #[inline]
    pub(crate) fn expiration(&self, lifetime: u32, now: Instant) -> Expiration {
        let drift = self.drift(now);
        let least = stamp_of(now).0.wrapping_add(self.ahead).wrapping_sub(drift);
        let longest =
            lifetime.saturating_add(self.width).saturating_add(drift.saturating_mul(2)).min(LONGEST);
        let more = longest.saturating_add(longest >> DRIFT_SHIFT).saturating_add(3);
        Expiration {
            stamp: Stamp(least.wrapping_add(longest)),
            certain: now.plus_nanos(1000 * u64::from(more)),
        }
    }

    fn drift(&self, now: Instant) -> u32 {
        let micros = (now.nanos_since(self.at) / 1000) >> DRIFT_SHIFT;
        u32::try_from(micros).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    #[test]
    fn set_up_leaves_time_for_the_stamp_to_arrive() {
        // The server was at 5 s when it wrote its stamp, which took 1 ms.
        let clock = ServerClock::set_up(Stamp(5_000_000), us(701_000));
        let expiration = clock.expiration(200, us(701_000));
        assert!(expiration.stamp.0 > 5_001_200 && expiration.stamp.0 < 5_011_300);
        assert!(expiration.certain >= us(711_200));
    }

    #[test]
    fn a_packet_after_a_long_idle_period_expires_within_a_second() {
        const HOUR: u64 = 3_600_000_000;
        for idle in [HOUR, 24 * HOUR, 30 * 24 * HOUR] {
            let mut clock = ServerClock::set_up(Stamp(0), us(0));
            let now = us(idle);
            let Expiration { stamp, certain } = clock.expiration(200, now);
            assert!(certain < now.plus_nanos(1_100_000_000), "{idle}");
            // The server refuses it, and shows its clock.
            let server = stamp_of(now);
            assert!(stamp.0.wrapping_sub(server.0) > LONGEST, "{idle}");
            let answered = now.plus_nanos(100_000);
            clock.answered(server, now, answered);
            let next = clock.expiration(200, answered);
            assert!(next.stamp.0.wrapping_sub(server.0) < 1000, "{idle}");
        }
    }

    proptest! {
        /// Whatever the clocks, their drift and the delays of the packets with stamps, the server accepts a
        /// packet during its lifetime, and no packet that the client considers expired.
        #[test]
        fn the_server_agrees(
            ahead in any::<u32>(),
            ppm in -900i64..900,
            exchanges in proptest::collection::vec((0u64..5_000_000, 0u64..3_000, 0u64..3_000), 1..40),
            lifetime in 0u32..100_000,
        ) {
            let server = |at: Instant| {
                let ns = i128::from(at.as_nanos());
                Stamp(((ns + ns * i128::from(ppm) / 1_000_000) / 1000) as u32).0.wrapping_add(ahead)
            };
            let mut now = us(10);
            let mut clock = ServerClock::set_up(Stamp(server(now)), now);
            for (idle, there, back) in exchanges {
                now = now.plus_nanos(idle * 777);
                let sent = now;
                let read = sent.plus_nanos(there * 999);
                now = read.plus_nanos(back * 999);
                clock.answered(Stamp(server(read)), sent, now);
                now = now.plus_nanos(idle);
                let Expiration { stamp, certain } = clock.expiration(lifetime, now);
                let takes = |at| (server(at).wrapping_sub(stamp.0) as i32) <= 0;
                prop_assert!(takes(now.plus_nanos(u64::from(lifetime) * 990)));
                prop_assert!(!takes(certain));
            }
        }
    }
}
