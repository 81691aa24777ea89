//! How long a client's packets live: two round trips and their variation, and longer after some expired on their way.

use nichrome_wire::Instant;

use super::server_clock::LONGEST;

/// Shortest lifetime, in microseconds.
const SHORTEST: u64 = 200;

/// Most doublings.
const MOST: u32 = 12;

/// Answers in time after which the lifetime is halved again.
const CALM: u32 = 1 << 14;

/// The lifetime of the packets of one type on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lifetime {
    doublings: u32,
    /// When the last doubling took place.
    doubled: Instant,
    /// Answers in time since the last change.
    in_time: u32,
}

impl Lifetime {
    /// Microseconds, where round trips rarely take more than `nanos`.
    #[inline]
    pub(super) fn micros(&self, nanos: u64) -> u32 {
        ((nanos / 1000).max(SHORTEST) << self.doublings).min(u64::from(LONGEST) / 2) as u32
    }

    /// Records that a packet arrived in time.
    #[inline]
    pub(super) fn met(&mut self) {
        self.in_time += 1;
        if self.in_time >= CALM {
            (self.doublings, self.in_time) = (self.doublings.saturating_sub(1), 0);
        }
    }

    /// Records at `now` that a packet expired that left at `sent`: doubles the lifetime, once for all that left before.
    pub(super) fn missed(&mut self, sent: Instant, now: Instant) {
        if sent >= self.doubled {
            *self = Self { doublings: (self.doublings + 1).min(MOST), doubled: now, in_time: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_once_in_a_round_trip_and_returns() {
        let mut lifetime = Lifetime::default();
        assert_eq!((lifetime.micros(1000), lifetime.micros(300_000)), (200, 300));
        let at = Instant::from_nanos;
        lifetime.missed(at(0), at(50));
        lifetime.missed(at(49), at(60));
        assert_eq!(lifetime.micros(300_000), 600);
        lifetime.missed(at(50), at(100));
        assert_eq!(lifetime.micros(300_000), 1200);
        (0..2 * CALM).for_each(|_| lifetime.met());
        assert_eq!(lifetime.micros(300_000), 300);
        (0..100).for_each(|nth| lifetime.missed(at(1000 + nth), at(1000 + nth)));
        assert_eq!(lifetime.micros(300_000_000), LONGEST / 2);
    }
}
