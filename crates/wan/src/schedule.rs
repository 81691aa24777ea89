//! A priority queue of packets by departure time.
//!
//! Items in the order of their times, as with a fixed delay, wait in a FIFO. Others go to a [`Calendar`] by
//! day; a day's items move to a heap when the day comes: a heap of one day fits the fastest cache, a heap of
//! all packets in flight would not. Items due today, or beyond the calendar's range, go to the heap directly.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use nichrome_wire::Instant;

use crate::calendar::Calendar;

/// Items ordered by departure time, then by arrival. Memory grows to the maximum number of items and stays.
pub(crate) struct Schedule<T> {
    queue: VecDeque<(Due, T)>,
    /// All out-of-order items due before the calendar's first day, and possibly later ones.
    heap: BinaryHeap<Reverse<(Due, u32)>>,
    calendar: Calendar,
    /// The items that numbers in heap and calendar refer to.
    slots: Vec<Option<(Due, T)>>,
    free: Vec<u32>,
    arrivals: u64,
}

/// Departure time, then arrival number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    arrival: u64,
}

impl<T> Schedule<T> {
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            heap: BinaryHeap::new(),
            calendar: Calendar::new(),
            slots: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.heap.is_empty()
    }

    /// Adds an item that leaves at `at`. Neither `at` nor the time of any held item is before `now`.
    #[inline]
    pub(crate) fn push(&mut self, item: T, at: Instant, now: Instant) {
        let due = Due { at, arrival: self.arrivals };
        self.arrivals += 1;
        if self.queue.back().is_none_or(|(last, _)| last.at <= at) {
            self.queue.push_back((due, item));
        } else {
            self.push_out_of_order(item, due, now);
        }
    }

    fn push_out_of_order(&mut self, item: T, due: Due, now: Instant) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        self.slots[slot as usize] = Some((due, item));
        if self.calendar.put(slot, due.at, now) {
            self.refill_heap();
        } else {
            self.heap.push(Reverse((due, slot)));
        }
    }

    /// Moves calendar days to the heap until the heap's minimum is the minimum of all out-of-order items.
    #[inline]
    fn refill_heap(&mut self) {
        while let Some(day) = self.calendar.first() {
            if self.heap.peek().is_some_and(|Reverse((due, _))| due.at < day.start()) {
                return;
            }
            let Self { heap, calendar, slots, .. } = self;
            let due = |slot: u32| slots.get(slot as usize)?.as_ref().map(|(due, _)| *due);
            calendar.take_first(|slot| heap.extend(due(slot).map(|due| Reverse((due, slot)))));
        }
    }

    /// Returns the departure time of the next item.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        let queued = self.queue.front().map(|(due, _)| due.at);
        let heaped = self.heap.peek().map(|Reverse((due, _))| due.at);
        match (queued, heaped) {
            (Some(queued), Some(heaped)) => Some(queued.min(heaped)),
            (queued, heaped) => queued.or(heaped),
        }
    }

    /// Removes the next item, regardless of the time.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let queued = self.queue.front().map(|(due, _)| *due);
        let heaped = self.heap.peek().map(|Reverse((due, _))| *due);
        if heaped.is_none_or(|heaped| queued.is_some_and(|queued| queued < heaped)) {
            return self.queue.pop_front().map(|(_, item)| item);
        }
        let Reverse((_, slot)) = self.heap.pop()?;
        self.refill_heap();
        self.free.push(slot);
        self.slots[slot as usize].take().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Equals a stable sort by departure time, at whatever times items are taken.
        #[test]
        fn items_leave_by_time_and_then_by_arrival(
            (scale, steps) in (0u32..40).prop_flat_map(|bits| {
                (Just(1u64 << bits), proptest::collection::vec((0u64..50, 0u8..3), 1..300))
            }),
        ) {
            let (mut schedule, mut now) = (Schedule::new(), 0);
            let mut expected: Vec<(u64, usize)> = Vec::new();
            for (nth, (ahead, takes)) in steps.into_iter().enumerate() {
                let at = now + ahead * scale;
                schedule.push(nth, Instant::from_nanos(at), Instant::from_nanos(now));
                expected.push((at, nth));
                for _ in 0..takes {
                    expected.sort_unstable();
                    prop_assert_eq!(schedule.next(), expected.first().map(|(at, _)| Instant::from_nanos(*at)));
                    now = expected.first().map_or(now, |(at, _)| *at);
                    let first = (!expected.is_empty()).then(|| expected.remove(0).1);
                    prop_assert_eq!(schedule.pop(), first);
                }
                prop_assert_eq!(schedule.is_empty(), expected.is_empty());
            }
        }
    }
}
