//! The event queue, ordered by (time, sequence).
//!
//! A hierarchical timing wheel with a slot for each value of six time bits: level 0 resolves nanoseconds,
//! level 10 holds the highest bits. An event waits at the level of the highest bit in which its time differs
//! from now, and moves down at most once per level as the clock approaches. All events of a lower level
//! precede those of a higher one, and a slot keeps events in scheduling order. So operations take constant
//! time for any number of pending events; a binary heap has a cache miss per level.
//!
//! Only a time and an index move down; events stay in place. A slot's entries are in chunks that are accessed
//! sequentially, since a list of single entries costs a cache miss each.

use nichrome_wire::Instant;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = (u64::BITS as usize).div_ceil(BITS as usize);
const NONE: u32 = u32::MAX;
/// Entries per chunk: a chunk is four cache lines long.
const CHUNK: usize = 15;

/// Scheduled events of type `E`. Events of equal time are returned in scheduling order.
#[derive(Debug)]
pub struct EventQueue<E> {
    now: u64,
    /// Bit set of the levels with entries.
    occupied: u16,
    levels: Vec<Level>,
    chunks: Vec<Chunk>,
    free_chunk: u32,
    events: Vec<Place<E>>,
    free_place: u32,
    pending: usize,
}

/// 64 lists of chunks, and the bit set of non-empty ones.
#[derive(Clone, Debug)]
struct Level {
    occupied: u64,
    slots: [List; SLOTS],
}

/// The first and last chunk.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// Entries in order; those before `begin` are taken. The header shares a cache line with the first entries.
#[derive(Clone, Debug)]
#[repr(C)]
struct Chunk {
    begin: u16,
    end: u16,
    next: u32,
    entries: [Entry; CHUNK],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    place: u32,
}

/// Storage of an event until its time.
#[derive(Debug)]
enum Place<E> {
    Taken(E),
    /// The next free place.
    Free(u32),
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

impl Chunk {
    const EMPTY: Self =
        Self { begin: 0, end: 0, next: NONE, entries: [Entry { time: 0, place: NONE }; CHUNK] };
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> EventQueue<E> {
    /// Creates an empty queue at time 0.
    pub fn new() -> Self {
        let level = Level { occupied: 0, slots: [List::EMPTY; SLOTS] };
        Self {
            now: 0,
            occupied: 0,
            levels: vec![level; LEVELS],
            chunks: Vec::new(),
            free_chunk: NONE,
            events: Vec::new(),
            free_place: NONE,
            pending: 0,
        }
    }

    /// Returns the time of the last event taken, or the limit of [`EventQueue::pop_until`].
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Returns the number of pending events.
    #[inline]
    pub fn len(&self) -> usize {
        self.pending
    }

    /// Returns true if no event is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Schedules `event` at `time`, or now if `time` has passed.
    #[inline]
    pub fn schedule(&mut self, time: Instant, event: E) {
        let time = time.as_nanos().max(self.now);
        let place = self.put(event);
        self.pending += 1;
        self.append(Entry { time, place });
    }

    /// Schedules `event` `nanos` nanoseconds from now.
    #[inline]
    pub fn schedule_in(&mut self, nanos: u64, event: E) {
        self.schedule(self.now().plus_nanos(nanos), event);
    }

    /// Returns the next event and moves the clock to its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.pop_until(Instant::MAX)
    }

    /// Returns the next event if it is due at or before `limit`; otherwise moves the clock to `limit`.
    pub fn pop_until(&mut self, limit: Instant) -> Option<(Instant, E)> {
        let limit = limit.as_nanos();
        while let Some((level, slot)) = self.next_slot() {
            let start = self.slot_start(level, slot);
            if start > limit {
                break;
            }
            if let Some(time) = self.first_alone(level, slot).filter(|time| *time <= limit) {
                self.now = time;
                return self.take_first(level, slot);
            }
            self.now = start;
            self.move_down(level, slot);
        }
        if limit != u64::MAX {
            self.now = self.now.max(limit);
        }
        None
    }

    /// Returns the first slot with entries: lowest level, then lowest slot.
    #[inline]
    fn next_slot(&self) -> Option<(usize, usize)> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros() as usize;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// Returns the earliest time of a slot, with the higher bits of now.
    #[inline]
    fn slot_start(&self, level: usize, slot: usize) -> u64 {
        let shift = BITS * level as u32;
        let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        (self.now & above) | ((slot as u64) << shift)
    }

    /// Returns the time of a slot's first entry if no other entry of the slot is earlier: at level 0, where
    /// the times are equal; at a higher level only if the entry is alone, which saves moving it down.
    #[inline]
    fn first_alone(&self, level: usize, slot: usize) -> Option<u64> {
        let chunk = &self.chunks[self.levels[level].slots[slot].first as usize];
        let is_first = level == 0 || (chunk.end == 1 && chunk.next == NONE);
        is_first.then(|| chunk.entries[usize::from(chunk.begin)].time)
    }

    /// Moves the entries of a slot that begins now to the lower levels, in order.
    fn move_down(&mut self, level: usize, slot: usize) {
        let mut next = self.levels[level].slots[slot].first;
        self.vacate(level, slot);
        while next != NONE {
            let chunk = next;
            for nth in 0..usize::from(self.chunks[chunk as usize].end) {
                let entry = self.chunks[chunk as usize].entries[nth];
                self.append(entry);
            }
            next = self.release(chunk);
        }
    }

    /// Takes the first event of a slot.
    #[inline]
    fn take_first(&mut self, level: usize, slot: usize) -> Option<(Instant, E)> {
        let first = self.levels[level].slots[slot].first;
        let chunk = &mut self.chunks[first as usize];
        let place = chunk.entries[usize::from(chunk.begin)].place;
        chunk.begin += 1;
        if chunk.begin == chunk.end {
            match self.release(first) {
                NONE => self.vacate(level, slot),
                next => self.levels[level].slots[slot].first = next,
            }
        }
        self.pending -= 1;
        let free = Place::Free(self.free_place);
        let Place::Taken(event) = std::mem::replace(&mut self.events[place as usize], free) else {
            return None;
        };
        self.free_place = place;
        Some((Instant::from_nanos(self.now), event))
    }

    /// Marks a slot empty after its chunks are taken.
    #[inline]
    fn vacate(&mut self, level: usize, slot: usize) {
        let Level { occupied, slots } = &mut self.levels[level];
        slots[slot] = List::EMPTY;
        *occupied &= !(1 << slot);
        self.occupied &= !(u16::from(*occupied == 0) << level);
    }

    /// Appends an entry to its slot.
    #[inline]
    fn append(&mut self, entry: Entry) {
        let (level, slot) = slot_of(self.now, entry.time);
        let mut last = self.levels[level].slots[slot].last;
        if last == NONE || usize::from(self.chunks[last as usize].end) == CHUNK {
            last = self.extend(level, slot);
        }
        let chunk = &mut self.chunks[last as usize];
        chunk.entries[usize::from(chunk.end)] = entry;
        chunk.end += 1;
    }

    /// Appends an empty chunk to a slot.
    fn extend(&mut self, level: usize, slot: usize) -> u32 {
        let added = self.empty_chunk();
        self.occupied |= 1 << level;
        let Level { occupied, slots } = &mut self.levels[level];
        *occupied |= 1 << slot;
        let list = &mut slots[slot];
        match list.last {
            NONE => list.first = added,
            last => self.chunks[last as usize].next = added,
        }
        list.last = added;
        added
    }

    #[inline]
    fn empty_chunk(&mut self) -> u32 {
        if self.free_chunk == NONE {
            self.chunks.push(Chunk::EMPTY);
            return (self.chunks.len() - 1) as u32;
        }
        let index = self.free_chunk;
        let chunk = &mut self.chunks[index as usize];
        self.free_chunk = chunk.next;
        (chunk.begin, chunk.end, chunk.next) = (0, 0, NONE);
        index
    }

    /// Frees a chunk; returns the one behind it.
    #[inline]
    fn release(&mut self, index: u32) -> u32 {
        let chunk = &mut self.chunks[index as usize];
        let next = std::mem::replace(&mut chunk.next, self.free_chunk);
        self.free_chunk = index;
        next
    }

    /// Stores an event; returns its index.
    #[inline]
    fn put(&mut self, event: E) -> u32 {
        let place = self.free_place;
        match self.events.get_mut(place as usize) {
            Some(free) => {
                if let Place::Free(next) = std::mem::replace(free, Place::Taken(event)) {
                    self.free_place = next;
                }
                place
            }
            None => {
                self.events.push(Place::Taken(event));
                (self.events.len() - 1) as u32
            }
        }
    }
}

/// Returns the slot for an event at `time`: the level of the highest bits that differ from `now`, and their
/// value.
#[inline]
fn slot_of(now: u64, time: u64) -> (usize, usize) {
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
