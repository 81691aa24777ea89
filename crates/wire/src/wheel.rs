//! A timing wheel: one timer per connection, set and moved in constant time.

use std::fmt;
use std::mem;

use crate::Instant;

const SLOTS: usize = 4096;
const NIL: u32 = u32::MAX;

/// Timers for the rows of a table. A timer fires at its deadline or up to one tick of `TICK` nanoseconds
/// later. A timer beyond the wheel's range of 4096 ticks fires at the end of the range, and the owner sets it
/// again.
pub struct TimingWheel<const TICK: u64> {
    /// First timer of each slot.
    heads: Box<[u32; SLOTS]>,
    occupied: [u64; SLOTS / 64],
    /// One timer for each connection.
    timers: Vec<Timer>,
    /// All timers are due from this tick on, within one turn of the wheel.
    cursor: u64,
    /// A lower bound of the earliest timer's tick.
    earliest: u64,
    set: usize,
}

impl<const TICK: u64> fmt::Debug for TimingWheel<TICK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimingWheel")
            .field("set", &self.set)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

/// A connection's timer. Armed ones are chained by slot.
#[derive(Clone, Copy)]
struct Timer {
    /// The tick of expiry, modulo the slots; `NIL` if not armed.
    slot: u32,
    previous: u32,
    next: u32,
}

impl Timer {
    const UNARMED: Self = Self { slot: NIL, previous: NIL, next: NIL };
}

impl<const TICK: u64> TimingWheel<TICK> {
    /// Creates timers for the connections 0 to `capacity` − 1.
    pub fn new(capacity: usize) -> Self {
        let mut wheel = Self {
            heads: Box::new([NIL; SLOTS]),
            occupied: [0; SLOTS / 64],
            timers: Vec::new(),
            cursor: 0,
            earliest: u64::MAX,
            set: 0,
        };
        wheel.grow(capacity);
        wheel
    }

    /// Extends the timers to the connections 0 to `capacity` − 1.
    pub fn grow(&mut self, capacity: usize) {
        self.timers.resize(capacity.max(self.timers.len()), Timer::UNARMED);
    }

    /// Returns when to call [`TimingWheel::expire`] next; may be early.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        (self.set > 0).then(|| Instant::from_nanos(self.earliest.saturating_mul(TICK)))
    }

    /// Returns when a timer for `deadline` fires.
    pub fn due(deadline: Instant) -> Instant {
        Instant::from_nanos(deadline.as_nanos().div_ceil(TICK).saturating_mul(TICK))
    }

    /// Arms the timer for `deadline`'s tick; a timer that fires earlier is unchanged. A connection beyond the
    /// capacity has none.
    #[inline(always)]
    pub fn set(&mut self, index: u32, deadline: Instant, now: Instant) {
        let (tick, now) = (deadline.as_nanos().div_ceil(TICK), now.as_nanos() / TICK);
        let Some(timer) = self.timers.get(index as usize) else { return };
        if timer.slot != NIL {
            if self.tick(timer.slot) <= tick {
                return;
            }
            self.cancel(index);
        }
        if self.set == 0 {
            (self.cursor, self.earliest) = (now, u64::MAX);
        } else {
            // Nothing is due before the earliest timer, so the cursor may advance to it.
            self.cursor = self.cursor.max(self.earliest.min(now));
        }
        self.link(index, tick.clamp(self.cursor, self.cursor.saturating_add(SLOTS as u64 - 1)));
    }

    /// Returns the tick in which the timers of a slot fire.
    #[inline]
    fn tick(&self, slot: u32) -> u64 {
        self.cursor + (u64::from(slot).wrapping_sub(self.cursor) % SLOTS as u64)
    }

    /// Prefetches the timers of these connections, so that the cache misses of a batch overlap. Skipped if
    /// none is armed.
    pub fn prefetch(&self, connections: &[u32]) {
        if self.set == 0 {
            return;
        }
        let timers = connections.iter().filter_map(|connection| self.timers.get(*connection as usize));
        std::hint::black_box(timers.fold(0, |sum, timer| sum ^ timer.slot));
    }

    /// Iterates over the connections whose timers fire next, in order.
    pub fn upcoming(&self) -> impl Iterator<Item = u32> {
        let (mut tick, mut at) = (self.cursor, NIL);
        (0..self.set).map_while(move |_| {
            if at == NIL {
                tick = self.first_occupied(tick);
                at = self.heads[tick as usize % SLOTS];
                tick += 1;
            }
            let connection = at;
            at = self.timers.get(connection as usize)?.next;
            Some(connection)
        })
    }

    /// Disarms the timer, if armed.
    #[inline]
    pub fn cancel(&mut self, index: u32) {
        let Some(timer) = self.timers.get_mut(index as usize).filter(|timer| timer.slot != NIL) else {
            return;
        };
        let Timer { slot, previous, next } = mem::replace(timer, Timer::UNARMED);
        self.set -= 1;
        match self.timers.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => {
                let slot = slot as usize;
                self.heads[slot] = next;
                if next == NIL {
                    self.occupied[slot / 64] &= !(1 << (slot % 64));
                }
            }
        }
        if let Some(next) = self.timers.get_mut(next as usize) {
            next.previous = previous;
        }
    }

    /// Arms a timer that is not armed.
    #[inline]
    fn link(&mut self, index: u32, tick: u64) {
        let slot = tick as usize % SLOTS;
        let next = mem::replace(&mut self.heads[slot], index);
        if let Some(next) = self.timers.get_mut(next as usize) {
            next.previous = index;
        }
        self.timers[index as usize] = Timer { slot: slot as u32, previous: NIL, next };
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.set += 1;
        self.earliest = self.earliest.min(tick);
    }

    /// Removes and returns one connection whose timer is due at `now`; call until `None`.
    #[inline]
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        if self.set == 0 {
            return None;
        }
        let tick = self.first_occupied(self.cursor);
        self.cursor = tick.min(now.as_nanos() / TICK);
        self.earliest = tick;
        if tick.saturating_mul(TICK) > now.as_nanos() {
            return None;
        }
        let first = self.heads[tick as usize % SLOTS];
        self.cancel(first);
        Some(first)
    }

    /// Returns the first tick from `tick` on with a timer; at least one must be armed.
    #[inline]
    fn first_occupied(&self, tick: u64) -> u64 {
        let start = tick as usize % SLOTS;
        let first = self.occupied[start / 64] >> (start % 64);
        if first != 0 {
            return tick + u64::from(first.trailing_zeros());
        }
        self.first_occupied_after(tick)
    }

    /// As [`TimingWheel::first_occupied`], for the words of the map after the tick's.
    fn first_occupied_after(&self, tick: u64) -> u64 {
        let start = tick as usize % SLOTS;
        let words = self.occupied.len();
        for ahead in 1..=words {
            let word = self.occupied[(start / 64 + ahead) % words];
            if word != 0 {
                let distance = ahead * 64 + word.trailing_zeros() as usize - start % 64;
                return tick + distance as u64;
            }
        }
        tick
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1024;

    #[test]
    fn a_deadline_beyond_one_turn_fires_at_the_turn() {
        let mut wheel = TimingWheel::<TICK>::new(1);
        wheel.set(0, Instant::from_nanos(1 << 40), Instant::ZERO);
        let due = wheel.next_timeout().unwrap();
        assert_eq!(due, Instant::from_nanos(4095 * TICK));
        assert_eq!(wheel.expire(due), Some(0));
        assert_eq!(wheel.next_timeout(), None);
    }

    #[test]
    fn timers_that_are_added_later_are_timers_too() {
        let mut wheel = TimingWheel::<TICK>::new(0);
        for count in [1, 3, 3, 10u32] {
            wheel.grow(count as usize);
            (0..count).for_each(|n| wheel.set(n, Instant::from_nanos(5 * TICK), Instant::ZERO));
        }
        let mut fired: Vec<u32> =
            std::iter::from_fn(|| wheel.expire(Instant::from_nanos(5 * TICK))).collect();
        fired.sort_unstable();
        assert_eq!(fired, (0..10).collect::<Vec<_>>());
        assert_eq!(wheel.next_timeout(), None);
    }

    #[test]
    fn timers_that_are_still_free_survive_growth() {
        let mut wheel = TimingWheel::<TICK>::new(2);
        wheel.grow(4);
        wheel.grow(4);
        (0..4).for_each(|n| wheel.set(n, Instant::from_nanos(TICK), Instant::ZERO));
        let mut fired: Vec<u32> = std::iter::from_fn(|| wheel.expire(Instant::from_nanos(TICK))).collect();
        fired.sort_unstable();
        assert_eq!(fired, [0, 1, 2, 3]);
    }

    #[test]
    fn a_timer_that_is_due_fires_although_another_was_set_since() {
        let mut wheel = TimingWheel::<TICK>::new(2);
        let late = Instant::from_nanos(5 * TICK);
        wheel.set(0, Instant::from_nanos(TICK), Instant::ZERO);
        wheel.set(1, Instant::from_nanos(10 * TICK), late);
        assert_eq!((wheel.expire(late), wheel.expire(late)), (Some(0), None));
    }

    #[test]
    fn upcoming_timers_are_listed_in_order_across_the_end_of_the_wheel() {
        let mut wheel = TimingWheel::<TICK>::new(4);
        let start = Instant::from_nanos((SLOTS as u64 - 2) * TICK);
        let after = |ticks: u64| start + std::time::Duration::from_nanos(ticks * TICK);
        for (n, ticks) in [(0, 500), (1, 1), (2, 3), (3, 1)] {
            wheel.set(n, after(ticks), start);
        }
        let mut upcoming: Vec<u32> = wheel.upcoming().collect();
        upcoming[..2].sort_unstable();
        assert_eq!(upcoming, [1, 3, 2, 0]);
        wheel.prefetch(&[0, 1, 2, 3, 4]);
        assert_eq!(wheel.upcoming().count(), 4);
    }

    proptest! {
        /// Every timer fires once, not before its deadline and at most a tick after, whatever is set and
        /// cancelled.
        #[test]
        fn fires_within_a_tick_of_the_deadline(
            steps in proptest::collection::vec((0u32..20, 0u64..4_000_000, 0u64..300_000, any::<bool>()), 1..200),
        ) {
            let mut wheel = TimingWheel::<TICK>::new(20);
            let mut deadlines = [None::<u64>; 20];
            let mut now = 0u64;
            for (n, ahead, pass, cancel) in steps {
                if cancel {
                    wheel.cancel(n);
                    deadlines[n as usize] = None;
                } else {
                    let deadline = now + ahead;
                    wheel.set(n, Instant::from_nanos(deadline), Instant::from_nanos(now));
                    let old = deadlines[n as usize];
                    deadlines[n as usize] = Some(old.map_or(deadline, |old| old.min(deadline)));
                }
                let end = now + pass;
                while let Some(due) = wheel.next_timeout().filter(|due| due.as_nanos() <= end) {
                    now = now.max(due.as_nanos());
                    while let Some(fired) = wheel.expire(due) {
                        let deadline = deadlines[fired as usize].take();
                        prop_assert!(deadline.is_some_and(|d| d <= now && now < d + 2 * TICK));
                    }
                }
                now = end;
                for deadline in deadlines.into_iter().flatten() {
                    prop_assert!(deadline + TICK > now, "a timer of {deadline} is late at {now}");
                }
            }
        }
    }
}
