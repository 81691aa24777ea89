//! The lifetime of a client's packets: two round trips and their variation, and longer after packets expired
//! in flight.
//!
//! A client that loses a packet waits until its copy has certainly expired, so a lifetime that is too long
//! costs as much as one that is too short. Packets that expire together after a calm period were delayed by a
//! host that did not run, so one such event changes nothing.

use nichrome_wire::Instant;

use super::server_clock::LONGEST;

/// Shortest lifetime, in microseconds.
const SHORTEST: u64 = 200;

/// Maximum number of doublings.
const MOST: u32 = 12;

/// Answers in time that make a period calm: after them the lifetime is halved.
const CALM: u32 = 1 << 11;

/// The lifetime of the packets of one type on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lifetime {
    doublings: u32,
    /// When the last doubling took place.
    doubled: Instant,
    /// Answers in time since the last change or miss.
    in_time: u32,
}

impl Lifetime {
    /// Returns the lifetime in microseconds, if round trips rarely take more than `nanos`.
    #[inline]
    pub(super) fn micros(&self, nanos: u64) -> u32 {
        ((nanos / 1000).max(SHORTEST) << self.doublings).min(u64::from(LONGEST) / 2) as u32
    }

    /// Records that a packet arrived in time.
    #[inline]
    pub(super) fn met(&mut self) {
        self.in_time = self.in_time.saturating_add(1);
        if self.in_time >= CALM && self.doublings > 0 {
            (self.doublings, self.in_time) = (self.doublings - 1, 0);
        }
    }

    /// Records at `now` that a packet sent at `sent` expired. Doubles the lifetime unless the period before
    /// was calm, and only once for all packets sent before `now`.
    pub(super) fn missed(&mut self, sent: Instant, now: Instant) {
        if sent >= self.doubled {
            let more = u32::from(self.in_time < CALM);
            *self = Self { doublings: (self.doublings + more).min(MOST), doubled: now, in_time: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn met(lifetime: &mut Lifetime, answers: u32) {
        (0..answers).for_each(|_| lifetime.met());
    }

    #[test]
    fn it_doubles_once_in_a_round_trip_and_returns() {
        let mut lifetime = Lifetime::default();
        assert_eq!((lifetime.micros(1000), lifetime.micros(300_000)), (200, 300));
        lifetime.missed(at(0), at(50));
        lifetime.missed(at(49), at(60));
        assert_eq!(lifetime.micros(300_000), 600);
        lifetime.missed(at(50), at(100));
        assert_eq!(lifetime.micros(300_000), 1200);
        met(&mut lifetime, 2 * CALM);
        assert_eq!(lifetime.micros(300_000), 300);
        met(&mut lifetime, CALM - 1);
        (0..100).for_each(|nth| lifetime.missed(at(1000 + nth), at(1000 + nth)));
        assert_eq!(lifetime.micros(300_000_000), LONGEST / 2);
    }

    #[test]
    fn an_expiry_after_a_calm_period_changes_the_lifetime_only_if_more_follow() {
        let mut lifetime = Lifetime::default();
        met(&mut lifetime, CALM);
        lifetime.missed(at(0), at(50));
        lifetime.missed(at(40), at(60));
        assert_eq!(lifetime.micros(300_000), 300);
        met(&mut lifetime, CALM - 1);
        lifetime.missed(at(50), at(100));
        assert_eq!(lifetime.micros(300_000), 600);
    }
}
