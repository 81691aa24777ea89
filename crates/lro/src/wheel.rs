//! A timing wheel: one timer per connection, set and moved in constant time.

use nichrome_wire::Instant;

use crate::table::Index;

const SLOTS: usize = 4096;
const NIL: u32 = u32::MAX;

/// Timers for the slots of a table. A timer never fires before its deadline and at most one [tick](Self::TICK) after;
/// one set further ahead than the wheel's turn (4.2 ms) fires at that turn, and the owner sets it again.
pub(crate) struct TimingWheel {
    heads: Box<[u32; SLOTS]>,
    occupied: [u64; SLOTS / 64],
    timers: Box<[Timer]>,
    /// No timer is due before this tick.
    cursor: u64,
    /// A lower bound of the earliest timer's tick.
    earliest: u64,
    set: usize,
}

#[derive(Clone, Copy)]
struct Timer {
    previous: u32,
    next: u32,
    /// When it fires, in ticks; `UNSET` where it is not set.
    tick: u64,
}

const UNSET: u64 = u64::MAX;

impl TimingWheel {
    /// Nanoseconds between two places of the wheel.
    pub(crate) const TICK: u64 = 1024;

    /// Timers for `capacity` connections.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            heads: Box::new([NIL; SLOTS]),
            occupied: [0; SLOTS / 64],
            timers: vec![Timer { previous: NIL, next: NIL, tick: UNSET }; capacity].into(),
            cursor: 0,
            earliest: UNSET,
            set: 0,
        }
    }

    /// When [`TimingWheel::expire`] is wanted next; may be early.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        (self.set > 0).then(|| Instant::from_nanos(self.earliest.saturating_mul(Self::TICK)))
    }

    /// Sees to it that the timer fires at or before `deadline`'s tick; one that is to fire earlier stays as it is.
    #[inline]
    pub(crate) fn set(&mut self, index: Index, deadline: Instant, now: Instant) {
        if self.set == 0 {
            self.cursor = now.as_nanos() / Self::TICK;
            self.earliest = UNSET;
        } else {
            // Nothing is due before the earliest timer, so the wheel may turn up to there.
            self.cursor = self.cursor.max(self.earliest.min(now.as_nanos() / Self::TICK));
        }
        let horizon = self.cursor.saturating_add(SLOTS as u64 - 1);
        let tick = deadline.as_nanos().div_ceil(Self::TICK).clamp(self.cursor, horizon);
        if self.timers[index.0 as usize].tick > tick {
            self.cancel(index);
            self.link(index, tick);
        }
    }

    /// Reads the timers of these slots, so that the cache misses of a batch overlap.
    pub(crate) fn look_ahead(&self, slots: &[u32]) {
        let timers = slots.iter().filter_map(|slot| self.timers.get(*slot as usize));
        std::hint::black_box(timers.fold(0, |sum, timer| sum ^ timer.tick));
    }

    /// Stops the timer, if it is set.
    #[inline]
    pub(crate) fn cancel(&mut self, index: Index) {
        let timer = self.timers[index.0 as usize];
        if timer.tick == UNSET {
            return;
        }
        match self.timers.get_mut(timer.previous as usize) {
            Some(previous) => previous.next = timer.next,
            None => {
                let slot = timer.tick as usize % SLOTS;
                self.heads[slot] = timer.next;
                if timer.next == NIL {
                    self.occupied[slot / 64] &= !(1 << (slot % 64));
                }
            }
        }
        if let Some(next) = self.timers.get_mut(timer.next as usize) {
            next.previous = timer.previous;
        }
        self.timers[index.0 as usize].tick = UNSET;
        self.set -= 1;
    }

    fn link(&mut self, index: Index, tick: u64) {
        let slot = tick as usize % SLOTS;
        let next = self.heads[slot];
        if let Some(next) = self.timers.get_mut(next as usize) {
            next.previous = index.0;
        }
        self.timers[index.0 as usize] = Timer { previous: NIL, next, tick };
        self.heads[slot] = index.0;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.set += 1;
        self.earliest = self.earliest.min(tick);
    }

    /// Takes one timer that is due at `now`; call until `None`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Index> {
        if self.set == 0 {
            return None;
        }
        let tick = self.earliest_occupied();
        self.cursor = tick.min(now.as_nanos() / Self::TICK);
        self.earliest = tick;
        if tick.saturating_mul(Self::TICK) > now.as_nanos() {
            return None;
        }
        let index = Index(self.heads[tick as usize % SLOTS]);
        self.cancel(index);
        Some(index)
    }

    /// The first tick from the cursor on that has a timer; there is one.
    fn earliest_occupied(&self) -> u64 {
        let start = self.cursor as usize % SLOTS;
        let first = self.occupied[start / 64] & u64::MAX << (start % 64);
        if first != 0 {
            return self.cursor + (first.trailing_zeros() as usize - start % 64) as u64;
        }
        let words = self.occupied.len();
        for ahead in 1..=words {
            let word = self.occupied[(start / 64 + ahead) % words];
            if word != 0 {
                let distance = ahead * 64 + word.trailing_zeros() as usize - start % 64;
                return self.cursor + distance as u64;
            }
        }
        self.cursor
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_deadline_beyond_one_turn_fires_at_the_turn() {
        let mut wheel = TimingWheel::new(1);
        wheel.set(Index(0), Instant::from_nanos(1 << 40), Instant::ZERO);
        let due = wheel.next_timeout().unwrap();
        assert_eq!(due, Instant::from_nanos(4095 * TimingWheel::TICK));
        assert_eq!(wheel.expire(due), Some(Index(0)));
        assert_eq!(wheel.next_timeout(), None);
    }

    proptest! {
        /// Every timer fires once, not before its deadline and at most a tick after, whatever is set and cancelled.
        #[test]
        fn fires_within_a_tick_of_the_deadline(
            steps in proptest::collection::vec((0u32..20, 0u64..4_000_000, 0u64..300_000, any::<bool>()), 1..200),
        ) {
            let mut wheel = TimingWheel::new(20);
            let mut deadlines = [None::<u64>; 20];
            let mut now = 0u64;
            for (n, ahead, pass, cancel) in steps {
                if cancel {
                    wheel.cancel(Index(n));
                    deadlines[n as usize] = None;
                } else {
                    let deadline = now + ahead;
                    wheel.set(Index(n), Instant::from_nanos(deadline), Instant::from_nanos(now));
                    let old = deadlines[n as usize];
                    deadlines[n as usize] = Some(old.map_or(deadline, |old| old.min(deadline)));
                }
                let end = now + pass;
                while let Some(due) = wheel.next_timeout().filter(|due| due.as_nanos() <= end) {
                    now = now.max(due.as_nanos());
                    while let Some(Index(fired)) = wheel.expire(due) {
                        let deadline = deadlines[fired as usize].take();
                        prop_assert!(deadline.is_some_and(|d| d <= now && now < d + 2 * TimingWheel::TICK));
                    }
                }
                now = end;
                for deadline in deadlines.into_iter().flatten() {
                    prop_assert!(deadline + TimingWheel::TICK > now, "a timer of {deadline} is late at {now}");
                }
            }
        }
    }
}
