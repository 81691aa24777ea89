//! The ConnectionTable (lro-npu IV.A): connections found by hash, with chaining, in memory reserved at start.

use std::{mem, slice};

use nichrome_wire::Instant;
use prefetch_index::prefetch_index;

use crate::flow::{FlowKey, KeyHasher};

/// No slot: the end of a chain.
const NIL: u32 = u32::MAX;

/// Number of counts in a [`ConnectionTable`], one byte each.
const COUNTS: usize = 4096;

/// The place of a connection in a [`ConnectionTable`]; valid until that connection is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index(pub(crate) u32);

/// Up to `capacity` connections, each with a descriptor `D`. Colliding connections are chained. Free slots
/// are on a stack, so that taking and releasing a descriptor allocates nothing.
pub(crate) struct ConnectionTable<D> {
    hasher: KeyHasher,
    /// Number of connections for each value of the hash's lowest bits, in the L1 cache: a 0 shows that a
    /// connection is absent, without reading a chain. A count that has reached 255 stays.
    counts: Box<[u8; COUNTS]>,
    /// First slot of each chain; a power of two.
    buckets: Box<[u32]>,
    slots: Box<[Slot<D>]>,
    /// The free slots; the last one is taken next.
    free: Vec<u32>,
    /// The clock hand: where the next search for a victim begins.
    hand: usize,
}

/// Cache-line aligned, so that a slot spans as few lines as possible.
#[repr(align(64))]
struct Slot<D> {
    flow: FlowKey,
    /// Next slot of the bucket's chain.
    next: u32,
    hash: u32,
    /// Used since the clock hand last passed (second chance).
    referenced: bool,
    descriptor: Option<D>,
}

impl<D> ConnectionTable<D> {
    /// Creates a table of at most `capacity` connections (1 to 2³¹) in about `chains` chains, hashed with a
    /// key derived from `seed`.
    pub(crate) fn new(capacity: usize, chains: usize, seed: u64) -> Self {
        let capacity = capacity.clamp(1, 1 << 31);
        let slots = (0..capacity)
            .map(|_| Slot {
                flow: FlowKey::default(),
                next: NIL,
                hash: 0,
                referenced: false,
                descriptor: None,
            })
            .collect();
        Self {
            hasher: KeyHasher::new(seed),
            counts: Box::new([0; COUNTS]),
            buckets: vec![NIL; chains.next_power_of_two()].into(),
            slots,
            free: (0..capacity as u32).rev().collect(),
            hand: 0,
        }
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if adding a connection needs an eviction first.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the hash of a flow, for [`ConnectionTable::find`] and [`ConnectionTable::insert`].
    #[inline]
    pub(crate) fn hash(&self, flow: &FlowKey) -> u32 {
        self.hasher.hash(flow)
    }

    /// As [`ConnectionTable::hash`], for a flow over IPv4.
    #[inline(always)]
    pub(crate) fn hash_ipv4(&self, flow: &FlowKey) -> u32 {
        self.hasher.hash_ipv4(flow)
    }

    /// Returns the hash and the flow of a connection.
    pub(crate) fn key(&self, index: Index) -> Option<(u32, FlowKey)> {
        let slot = self.slots.get(index.0 as usize).filter(|slot| slot.descriptor.is_some())?;
        Some((slot.hash, slot.flow))
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline(always)]
    fn count_mut(&mut self, hash: u32) -> &mut u8 {
        &mut self.counts[hash as usize % COUNTS]
    }

    /// Returns true if there is certainly no connection with this hash; may return false for an absent one,
    /// too.
    #[inline(always)]
    pub(crate) fn is_absent(&self, hash: u32) -> bool {
        self.counts[hash as usize % COUNTS] == 0
    }

    /// Finds the connection of a flow.
    #[inline]
    pub(crate) fn find(&self, hash: u32, flow: &FlowKey) -> Option<Index> {
        if self.is_absent(hash) {
            return None;
        }
        let mut at = self.buckets[self.bucket(hash)];
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.hash == hash && slot.flow == *flow {
                return Some(Index(at));
            }
            at = slot.next;
        }
        None
    }

    /// Finds the first connection with this hash, without comparing the key.
    #[inline]
    pub(crate) fn likely(&self, hash: u32) -> Option<Index> {
        if self.is_absent(hash) {
            return None;
        }
        let mut at = self.buckets[self.bucket(hash)];
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.hash == hash {
                return Some(Index(at));
            }
            at = slot.next;
        }
        None
    }

    /// As [`ConnectionTable::likely`], but tries the slot at `place` first: the head of the hash's chain when
    /// [`ConnectionTable::prefetch_slots`] read it.
    #[inline(always)]
    pub(crate) fn likely_at(&self, place: u32, hash: u32) -> Option<Index> {
        match self.slots.get(place as usize) {
            Some(slot) if slot.hash == hash => Some(Index(place)),
            _ => self.likely(hash),
        }
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, hash: u32) {
        prefetch_index(&*self.buckets, self.bucket(hash));
    }

    /// Writes the first slot of each hash's chain to `slots`, [`NIL`] if there is none or the hash is
    /// absent, and prefetches these slots. The caller has [prefetched](Self::prefetch_bucket) their buckets.
    #[inline(always)]
    pub(crate) fn prefetch_slots(&self, hashes: &[u32], slots: &mut [u32], is_absent: impl Fn(u32) -> bool) {
        for (slot, hash) in slots.iter_mut().zip(hashes) {
            *slot = if is_absent(*hash) { NIL } else { self.buckets[self.bucket(*hash)] };
            self.prefetch(*slot);
        }
    }

    /// Prefetches both cache lines of a slot.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: u32) {
        if let Some(slot) = self.slots.get(place as usize) {
            prefetch_index(slice::from_ref(&slot.hash), 0);
            prefetch_index(slice::from_ref(&slot.descriptor), 0);
        }
    }

    /// Adds a connection that is not in the table; returns the descriptor if the table is full.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: u32, flow: FlowKey, descriptor: D) -> Result<Index, D> {
        let bucket = self.bucket(hash);
        let Some(at) = self.free.pop() else { return Err(descriptor) };
        let Some(slot) = self.slots.get_mut(at as usize) else { return Err(descriptor) };
        // Field by field: a whole slot would be built on the stack first.
        slot.flow = flow;
        slot.hash = hash;
        slot.next = self.buckets[bucket];
        slot.referenced = true;
        // The place holds None: forgetting it saves a test and a drop.
        mem::forget(slot.descriptor.replace(descriptor));
        self.buckets[bucket] = at;
        let count = self.count_mut(hash);
        *count = count.saturating_add(1);
        Ok(Index(at))
    }

    /// Returns the flow of the connection at `index`.
    #[inline]
    pub(crate) fn flow(&self, index: Index) -> Option<&FlowKey> {
        self.slots.get(index.0 as usize).map(|slot| &slot.flow)
    }

    /// Returns the descriptor of a connection, and marks the connection as used.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut D> {
        let slot = self.slots.get_mut(index.0 as usize)?;
        slot.referenced = true;
        slot.descriptor.as_mut()
    }

    /// Returns the descriptor of a connection, without marking the connection as used.
    #[inline]
    pub(crate) fn peek(&self, index: Index) -> Option<&D> {
        self.slots.get(index.0 as usize)?.descriptor.as_ref()
    }

    /// Returns the indexes of all slots, in use or not.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = Index> + use<D> {
        (0..self.slots.len() as u32).map(Index)
    }

    /// Removes a connection and frees its slot.
    #[inline]
    pub(crate) fn remove(&mut self, index: Index) -> Option<D> {
        let slot = self.slots.get_mut(index.0 as usize)?;
        let descriptor = slot.descriptor.take()?;
        let (hash, after) = (slot.hash, slot.next);
        self.free.push(index.0);
        self.unchain(hash, index.0, after);
        let count = self.count_mut(hash);
        *count -= u8::from((1..u8::MAX).contains(count));
        Some(descriptor)
    }

    /// Unlinks slot `gone` from its bucket's chain, in which `after` follows it.
    fn unchain(&mut self, hash: u32, gone: u32, after: u32) {
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == gone {
            self.buckets[bucket] = after;
            return;
        }
        let mut at = self.buckets[bucket];
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.next == gone {
                slot.next = after;
                return;
            }
            at = slot.next;
        }
    }

    /// Returns a connection to evict: the first not used since the clock hand last passed, else the last of
    /// [`Self::PATIENCE`] used ones. Second chance approximates least recently used at no cost per packet.
    pub(crate) fn victim(&mut self) -> Option<Index> {
        let mut last = None;
        for _ in 0..self.slots.len().saturating_mul(2) {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if slot.descriptor.is_none() {
                continue;
            }
            let index = Index(at as u32);
            if !slot.referenced {
                return Some(index);
            }
            slot.referenced = false;
            let steps = last.map_or(1, |(_, steps)| steps + 1);
            last = Some((index, steps));
            if steps == Self::PATIENCE {
                break;
            }
        }
        last.map(|(index, _)| index)
    }

    /// Number of used connections that the clock hand passes before it takes one.
    const PATIENCE: usize = 64;
}

/// Slots in the order in which they began to hold segments: finds the oldest in constant time, and removes
/// any.
pub(crate) struct AgeList {
    links: Box<[Link]>,
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
    since: Instant,
}

impl AgeList {
    /// Creates a list for a table of `capacity` slots.
    pub(crate) fn new(capacity: usize) -> Self {
        let link = Link { older: NIL, newer: NIL, since: Instant::ZERO };
        Self { links: vec![link; capacity].into(), oldest: NIL, newest: NIL }
    }

    /// Returns the oldest slot, and when it was added.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<(Index, Instant)> {
        let link = self.links.get(self.oldest as usize)?;
        Some((Index(self.oldest), link.since))
    }

    /// Adds a slot that is not in the list.
    #[inline]
    pub(crate) fn push(&mut self, index: Index, since: Instant) {
        let older = self.newest;
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = index.0,
            None => self.oldest = index.0,
        }
        self.links[index.0 as usize] = Link { older, newer: NIL, since };
        self.newest = index.0;
    }

    /// Removes a slot that is in the list.
    #[inline]
    pub(crate) fn remove(&mut self, index: Index) {
        let Link { older, newer, .. } = self.links[index.0 as usize];
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn flow(n: u16) -> FlowKey {
        FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), n, 80)
    }

    proptest! {
        /// Any mix of insertions and removals gives what a `HashMap` of the same capacity gives.
        #[test]
        fn agrees_with_a_hash_map(steps in proptest::collection::vec((0u16..40, any::<bool>()), 0..300)) {
            let mut table = ConnectionTable::new(16, 8, 1);
            let mut model = HashMap::new();
            for (n, insert) in steps {
                let flow = flow(n);
                let hash = table.hash(&flow);
                let found = table.find(hash, &flow);
                prop_assert_eq!(found.is_some(), model.contains_key(&n));
                match found {
                    Some(index) if !insert => prop_assert_eq!(table.remove(index), model.remove(&n)),
                    None if insert && model.len() < 16 => {
                        prop_assert!(table.insert(hash, flow, n).is_ok());
                        model.insert(n, n);
                    }
                    None if insert => prop_assert_eq!(table.insert(hash, flow, n), Err(n)),
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.is_full(), model.len() == 16);
            }
            for (n, value) in &model {
                let index = table.find(table.hash(&flow(*n)), &flow(*n)).unwrap();
                prop_assert_eq!(table.get_mut(index), Some(&mut value.clone()));
            }
        }
    }

    #[test]
    fn a_connection_is_not_absent_however_many_share_its_count() {
        for connections in [1, 2, 254, 255, 256, 300] {
            let mut table = ConnectionTable::new(300, 64, 1);
            let hash = |n: u16| u32::from(n) * COUNTS as u32 + 5;
            let mut held: Vec<Index> =
                (0..connections).map(|n| table.insert(hash(n), flow(n), n).unwrap()).collect();
            assert!(table.is_absent(hash(0) + 1));
            while let Some(index) = held.pop() {
                assert_eq!(table.find(hash(0), &flow(0)), Some(Index(0)));
                assert!(!table.is_absent(hash(300)), "they share the count");
                table.remove(index);
            }
            assert_eq!(table.find(hash(0), &flow(0)), None);
            assert_eq!(table.is_absent(hash(0)), connections < 255, "{connections}");
        }
    }

    #[test]
    fn the_victim_is_one_that_was_not_used() {
        let mut table = ConnectionTable::new(4, 4, 1);
        let indexes: Vec<Index> =
            (0..4).map(|n| table.insert(table.hash(&flow(n)), flow(n), n).unwrap()).collect();
        table.victim();
        for &used in &[indexes[0], indexes[1], indexes[3]] {
            table.get_mut(used);
        }
        assert_eq!(table.victim(), Some(indexes[2]));
    }

    #[test]
    fn where_all_were_used_the_victim_is_at_most_patience_away() {
        let mut table = ConnectionTable::new(100, 4, 1);
        let indexes: Vec<Index> =
            (0..100).map(|n| table.insert(table.hash(&flow(n)), flow(n), n).unwrap()).collect();
        let patience = ConnectionTable::<u16>::PATIENCE;
        assert_eq!(table.victim(), Some(indexes[patience - 1]));
        // The next ones after a whole turn of the hand, in which the first lost their mark.
        assert_eq!(table.victim(), Some(indexes[0]));
        assert_eq!(table.victim(), Some(indexes[1]));
    }

    #[test]
    fn the_age_list_gives_the_oldest_whatever_leaves() {
        let mut list = AgeList::new(4);
        for n in 0..4 {
            list.push(Index(n), Instant::from_nanos(n.into()));
        }
        list.remove(Index(0));
        list.remove(Index(2));
        assert_eq!(list.oldest(), Some((Index(1), Instant::from_nanos(1))));
        list.remove(Index(1));
        list.push(Index(2), Instant::from_nanos(9));
        list.remove(Index(3));
        assert_eq!(list.oldest(), Some((Index(2), Instant::from_nanos(9))));
        list.remove(Index(2));
        assert_eq!(list.oldest(), None);
    }
}
