//! The event queue: what happens next, in the order of (time, sequence).
//!
//! A hierarchical timing wheel with a slot for each value of six bits of the time: level 0 tells single nanoseconds apart,
//! level 10 the highest bits. An event waits at the level of the highest bit in which its time differs from now, and moves
//! down when the clock comes near, at most once per level. All that wait at a lower level come before all that wait
//! at a higher one, and the events of a slot are in the order in which they were scheduled. So an operation takes constant
//! time however many are pending, where a binary heap's takes as many cache misses as it has levels.

use nichrome_wire::Instant;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = (u64::BITS as usize).div_ceil(BITS as usize);
const NONE: u32 = u32::MAX;

/// Events of type `E`, each with its time. Those of equal time come in the order in which they were scheduled.
#[derive(Debug)]
pub struct EventQueue<E> {
    now: u64,
    levels: Vec<Level>,
    nodes: Vec<Node<E>>,
    free: u32,
    pending: usize,
}

/// 64 lists, and a bit for each that is not empty.
#[derive(Clone, Debug)]
struct Level {
    occupied: u64,
    slots: [List; SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

#[derive(Debug)]
struct Node<E> {
    time: u64,
    next: u32,
    /// `None` while the node is on the free list.
    event: Option<E>,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> EventQueue<E> {
    /// An empty queue at time 0.
    pub fn new() -> Self {
        let level = Level { occupied: 0, slots: [List::EMPTY; SLOTS] };
        Self { now: 0, levels: vec![level; LEVELS], nodes: Vec::new(), free: NONE, pending: 0 }
    }

    /// The time of the event that was taken last, or that [`EventQueue::pop_until`] was told.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// How many events are pending.
    #[inline]
    pub fn len(&self) -> usize {
        self.pending
    }

    /// Whether nothing is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Schedules `event` at `time`; a time that has passed counts as now.
    #[inline]
    pub fn schedule(&mut self, time: Instant, event: E) {
        let time = time.as_nanos().max(self.now);
        let node = self.node(time, event);
        self.pending += 1;
        self.append(node, time);
    }

    /// Schedules `event` `nanos` nanoseconds from now.
    #[inline]
    pub fn schedule_in(&mut self, nanos: u64, event: E) {
        self.schedule(self.now().plus_nanos(nanos), event);
    }

    /// Takes the next event; the clock moves to its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.pop_until(Instant::MAX)
    }

    /// Takes the next event if it is due at or before `limit`; otherwise the clock moves to `limit`.
    pub fn pop_until(&mut self, limit: Instant) -> Option<(Instant, E)> {
        let limit = limit.as_nanos();
        while self.pending > 0 {
            let Some((level, slot)) = self.next_slot() else { break };
            let start = self.slot_start(level, slot);
            if start > limit {
                break;
            }
            if level == 0 {
                self.now = start;
                return self.take_first(slot);
            }
            self.move_down(level, slot, start);
        }
        if limit != u64::MAX {
            self.now = self.now.max(limit);
        }
        None
    }

    /// The first slot with events: lower levels come first, and within a level lower slots.
    #[inline]
    fn next_slot(&self) -> Option<(usize, usize)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// The earliest time that belongs to a slot: the higher bits are those of now.
    #[inline]
    fn slot_start(&self, level: usize, slot: usize) -> u64 {
        let shift = BITS * level as u32;
        let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        (self.now & above) | ((slot as u64) << shift)
    }

    /// Sets the clock to the start of a slot and hands its events to the lower levels, in order.
    fn move_down(&mut self, level: usize, slot: usize, start: u64) {
        self.now = start;
        let list = std::mem::replace(&mut self.levels[level].slots[slot], List::EMPTY);
        self.levels[level].occupied &= !(1 << slot);
        let mut node = list.first;
        while node != NONE {
            let Node { time, next, .. } = self.nodes[node as usize];
            self.append(node, time);
            node = next;
        }
    }

    #[inline]
    fn take_first(&mut self, slot: usize) -> Option<(Instant, E)> {
        let level = &mut self.levels[0];
        let taken = level.slots[slot].first;
        let node = &mut self.nodes[taken as usize];
        let event = node.event.take()?;
        level.slots[slot].first = node.next;
        if node.next == NONE {
            level.slots[slot] = List::EMPTY;
            level.occupied &= !(1 << slot);
        }
        node.next = self.free;
        self.free = taken;
        self.pending -= 1;
        Some((Instant::from_nanos(self.now), event))
    }

    #[inline]
    fn append(&mut self, node: u32, time: u64) {
        let (level, slot) = place(self.now, time);
        self.nodes[node as usize].next = NONE;
        let level = &mut self.levels[level];
        let list = &mut level.slots[slot];
        if list.last == NONE {
            list.first = node;
            level.occupied |= 1 << slot;
        } else {
            self.nodes[list.last as usize].next = node;
        }
        list.last = node;
    }

    #[inline]
    fn node(&mut self, time: u64, event: E) -> u32 {
        if self.free == NONE {
            self.nodes.push(Node { time, next: NONE, event: Some(event) });
            return (self.nodes.len() - 1) as u32;
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.time = time;
        node.event = Some(event);
        index
    }
}

/// Where an event at `time` waits when it is `now`: the level of the highest bits that differ, and their value.
#[inline]
fn place(now: u64, time: u64) -> (usize, usize) {
    let level = (now ^ time).checked_ilog2().unwrap_or(0) / BITS;
    let slot = (time >> (BITS * level)) as usize & (SLOTS - 1);
    (level as usize, slot)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn events_come_in_the_order_of_time_then_of_scheduling() {
        let mut queue = EventQueue::new();
        for (time, event) in [(500, 'd'), (3, 'b'), (500, 'e'), (0, 'a'), (499, 'c'), (u64::MAX, 'f')] {
            queue.schedule(at(time), event);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcdef");
    }

    #[test]
    fn a_time_that_has_passed_is_now() {
        let mut queue = EventQueue::new();
        queue.schedule(at(100), 1);
        assert_eq!(queue.pop(), Some((at(100), 1)));
        queue.schedule(at(7), 2);
        assert_eq!(queue.pop(), Some((at(100), 2)));
    }

    #[test]
    fn nothing_is_taken_beyond_the_limit() {
        let mut queue = EventQueue::new();
        queue.schedule(at(1_000_000), ());
        assert_eq!(queue.pop_until(at(999_999)), None);
        assert_eq!(queue.now(), at(999_999));
        assert_eq!(queue.pop_until(at(1_000_000)), Some((at(1_000_000), ())));
        assert!(queue.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Schedule(u64),
        Pop,
        PopUntil(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let delay = prop_oneof![0..4_u64, 0..300_u64, 0..100_000_u64, 0..u64::MAX];
        prop_oneof![
            3 => delay.clone().prop_map(Operation::Schedule),
            2 => Just(Operation::Pop),
            1 => delay.prop_map(Operation::PopUntil),
        ]
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_binary_heap(operations in prop::collection::vec(operation(), 0..400)) {
            let mut queue = EventQueue::new();
            let mut heap = BinaryHeap::new();
            for (sequence, operation) in operations.into_iter().enumerate() {
                let now = queue.now().as_nanos();
                let limit = match operation {
                    Operation::Schedule(delay) => {
                        let time = now.saturating_add(delay);
                        queue.schedule(at(time), sequence);
                        heap.push(Reverse((time, sequence)));
                        continue;
                    }
                    Operation::Pop => u64::MAX,
                    Operation::PopUntil(delay) => now.saturating_add(delay),
                };
                let due = heap.peek().is_some_and(|Reverse((time, _))| *time <= limit);
                let expected = due.then(|| heap.pop()).flatten().map(|Reverse((time, event))| (at(time), event));
                prop_assert_eq!(queue.pop_until(at(limit)), expected);
            }
            prop_assert_eq!(queue.len(), heap.len());
        }
    }
}
