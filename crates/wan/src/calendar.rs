//! A calendar queue for the next 268 ms (2¹⁴ buckets of 2¹⁴ ns), unordered within a bucket.

use nichrome_wire::Instant;

/// Number of buckets, called days.
const DAYS: u64 = 1 << 14;
/// Length of a day: 2¹⁴ ns, about 16 µs; 16 packets at one million packets per second.
const DAY_BITS: u32 = 14;
/// End of a list.
const NIL: u32 = u32::MAX;

/// A linked list of entries per day. An entry is a number chosen by the owner.
pub(crate) struct Calendar {
    /// The last entry of each day. Allocated on first use: only jitter needs it.
    heads: Vec<u32>,
    /// By entry: the previous entry of the same day.
    previous: Vec<u32>,
    occupied: [u64; DAYS as usize / 64],
    /// All entries are due after this day.
    today: Day,
    /// The first day with entries.
    first: Option<Day>,
}

/// Number of days since [`Instant::ZERO`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day(u64);

impl Day {
    #[inline]
    fn of(at: Instant) -> Self {
        Self(at.as_nanos() >> DAY_BITS)
    }

    #[inline]
    pub(crate) fn start(self) -> Instant {
        Instant::from_nanos(self.0 << DAY_BITS)
    }

    #[inline]
    fn slot(self) -> usize {
        (self.0 % DAYS) as usize
    }
}

impl Calendar {
    pub(crate) const fn new() -> Self {
        Self {
            heads: Vec::new(),
            previous: Vec::new(),
            occupied: [0; DAYS as usize / 64],
            today: Day(0),
            first: None,
        }
    }

    /// Returns the first day with entries.
    #[inline]
    pub(crate) fn first(&self) -> Option<Day> {
        self.first
    }

    /// Adds `entry`, due at `at`. Returns false if that day is over, today, or beyond the calendar. No entry
    /// may be due before `now`.
    #[inline]
    pub(crate) fn put(&mut self, entry: u32, at: Instant, now: Instant) -> bool {
        let day = Day::of(at);
        self.today = self.today.max(Day(Day::of(now).0.saturating_sub(1)));
        if day <= self.today || day.0 - self.today.0 >= DAYS {
            return false;
        }
        if self.heads.is_empty() {
            self.heads = vec![NIL; DAYS as usize];
        }
        if self.previous.len() <= entry as usize {
            self.previous.resize(entry as usize + 1, NIL);
        }
        self.previous[entry as usize] = std::mem::replace(&mut self.heads[day.slot()], entry);
        self.occupied[day.slot() / 64] |= 1 << (day.slot() % 64);
        self.first = Some(self.first.map_or(day, |first| first.min(day)));
        true
    }

    /// Removes the entries of the first day, unordered, and makes it today.
    pub(crate) fn take_first(&mut self, mut take: impl FnMut(u32)) {
        let Some(day) = self.first else { return };
        let mut entry = std::mem::replace(&mut self.heads[day.slot()], NIL);
        while let Some(previous) = self.previous.get(entry as usize) {
            take(entry);
            entry = *previous;
        }
        self.occupied[day.slot() / 64] &= !(1 << (day.slot() % 64));
        self.today = day;
        self.first = self.next_occupied();
    }

    /// Returns the first day after today with entries.
    fn next_occupied(&self) -> Option<Day> {
        let next = Day(self.today.0 + 1);
        let (word, bit) = (next.slot() / 64, next.slot() % 64);
        let words = self.occupied.len();
        // The first word is visited twice: its high bits are the nearest days, its low bits the farthest.
        let masked = |ahead: usize| match ahead {
            0 => self.occupied[word] & u64::MAX << bit,
            _ => self.occupied[(word + ahead) % words],
        };
        let ahead = (0..=words).find(|ahead| masked(*ahead) != 0)?;
        let distance = ahead * 64 + masked(ahead).trailing_zeros() as usize - bit;
        Some(Day(next.0 + distance as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 1 << DAY_BITS;

    #[test]
    fn times_in_the_past_or_too_far_ahead_are_refused() {
        let mut calendar = Calendar::new();
        let at = |day: u64| Instant::from_nanos(day * DAY);
        assert!(!calendar.put(0, at(9), at(10)));
        assert!(calendar.put(0, at(10), at(10)));
        assert!(!calendar.put(1, at(9 + DAYS), at(10)));
        assert!(calendar.put(1, at(8 + DAYS), at(10)));
        calendar.take_first(|entry| assert_eq!(entry, 0));
        assert!(!calendar.put(0, at(10), at(10)));
        assert!(calendar.first().is_some_and(|day| day.start() == at(8 + DAYS)));
    }

    proptest! {
        /// Days come in order, each with all of its entries.
        #[test]
        fn every_entry_comes_on_its_day(
            steps in proptest::collection::vec((0..2 * DAYS * DAY, 0..DAY * 40, 0..3u8), 1..200),
        ) {
            let (mut calendar, mut now) = (Calendar::new(), 0);
            let mut dues: Vec<Option<u64>> = Vec::new();
            for (ahead, pass, takes) in steps {
                let entry = dues.len() as u32;
                let is_put = calendar.put(entry, Instant::from_nanos(now + ahead), Instant::from_nanos(now));
                dues.push(is_put.then_some(now + ahead));
                for _ in 0..takes {
                    let expected = dues.iter().flatten().map(|due| due / DAY).min();
                    prop_assert_eq!(calendar.first().map(|day| day.0), expected);
                    let mut taken = Vec::new();
                    calendar.take_first(|entry| taken.push(entry));
                    for entry in taken {
                        prop_assert_eq!(dues[entry as usize].take().map(|due| due / DAY), expected);
                    }
                    let is_over = |due: &u64| Some(due / DAY) == expected;
                    prop_assert!(!dues.iter().flatten().any(is_over));
                    now = now.max(expected.unwrap_or(0) * DAY);
                }
                // Time advances no further than to the earliest entry.
                now = dues.iter().flatten().min().map_or(now + pass, |first| (now + pass).min(*first));
            }
        }
    }
}
