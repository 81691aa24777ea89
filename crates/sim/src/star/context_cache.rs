//! A card's cache of connection contexts.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

const NONE: u32 = u32::MAX;

/// Replacement policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replacement {
    /// Least recently used.
    Lru,
    /// Uniformly random.
    Random,
}

/// The cached contexts. All operations take constant time. If all contexts fit, all are cached from the
/// start.
#[derive(Clone, Debug)]
pub(super) struct ContextCache {
    capacity: usize,
    replacement: Replacement,
    random: Pcg64Mcg,
    /// The cached contexts by place.
    places: Vec<Place>,
    /// The place of each context; empty if all fit.
    place_of: Vec<u32>,
    /// The most and least recently used places.
    newest: u32,
    oldest: u32,
}

/// A cached context with its neighbours in LRU order.
#[derive(Clone, Copy, Debug)]
struct Place {
    context: u32,
    newer: u32,
    older: u32,
}

impl ContextCache {
    /// Creates a cache of capacity at least 1 for contexts 0 to `contexts` - 1.
    pub(super) fn new(capacity: usize, contexts: usize, replacement: Replacement, seed: u64) -> Self {
        let misses = contexts > capacity;
        Self {
            capacity: capacity.max(1),
            replacement,
            random: Pcg64Mcg::seed_from_u64(seed),
            places: Vec::new(),
            place_of: if misses { vec![NONE; contexts] } else { Vec::new() },
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Returns true on a hit, which counts as a use.
    #[inline]
    pub(super) fn uses(&mut self, context: u32) -> bool {
        if self.place_of.is_empty() {
            return true;
        }
        let place = self.place_of[context as usize];
        if place == NONE {
            return false;
        }
        if self.replacement == Replacement::Lru && self.newest != place {
            self.unlink(place);
            self.link_newest(place);
        }
        true
    }

    /// Inserts a missing context; returns the evicted one.
    pub(super) fn insert(&mut self, context: u32) -> Option<u32> {
        if self.place_of.is_empty() {
            return None;
        }
        let (place, evicted) = if self.places.len() < self.capacity {
            self.places.push(Place { context, newer: NONE, older: NONE });
            (self.places.len() as u32 - 1, None)
        } else {
            let place = self.victim();
            self.unlink(place);
            let evicted = std::mem::replace(&mut self.places[place as usize].context, context);
            self.place_of[evicted as usize] = NONE;
            (place, Some(evicted))
        };
        self.place_of[context as usize] = place;
        self.link_newest(place);
        evicted
    }

    fn victim(&mut self) -> u32 {
        match self.replacement {
            Replacement::Lru => self.oldest,
            Replacement::Random => {
                ((u128::from(self.random.next_u64()) * self.places.len() as u128) >> 64) as u32
            }
        }
    }

    fn unlink(&mut self, place: u32) {
        let Place { newer, older, .. } = self.places[place as usize];
        match self.places.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.places.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        let this = &mut self.places[place as usize];
        (this.newer, this.older) = (NONE, older);
        match self.places.get_mut(older as usize) {
            Some(older) => older.newer = place,
            None => self.oldest = place,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_assert_ne, proptest};

    use super::*;

    /// Uses contexts in order; returns the number of misses.
    fn misses(cache: &mut ContextCache, contexts: impl IntoIterator<Item = u32>) -> usize {
        let mut misses = 0;
        for context in contexts {
            if !cache.uses(context) {
                cache.insert(context);
                misses += 1;
            }
        }
        misses
    }

    #[test]
    fn what_fits_never_misses() {
        for replacement in [Replacement::Lru, Replacement::Random] {
            let mut cache = ContextCache::new(300, 300, replacement, 1);
            assert_eq!(misses(&mut cache, (0..300).cycle().take(3000)), 0);
        }
    }

    #[test]
    fn one_more_than_fits_in_turn_always_misses_with_lru_and_sometimes_with_random() {
        let turns = || (0..301).cycle().take(301 * 100);
        assert_eq!(misses(&mut ContextCache::new(300, 301, Replacement::Lru, 1), turns()), 30_100);
        let random = misses(&mut ContextCache::new(300, 301, Replacement::Random, 1), turns());
        assert!((301..6000).contains(&random), "{random}");
    }

    /// With uniform accesses, the hit rate is the cached share of the contexts, with either replacement
    /// policy.
    #[test]
    fn uniform_accesses_hit_with_the_part_that_is_on_chip() {
        for replacement in [Replacement::Lru, Replacement::Random] {
            let mut random = Pcg64Mcg::seed_from_u64(7);
            let mut cache = ContextCache::new(250, 1000, replacement, 1);
            let missed = misses(&mut cache, (0..100_000).map(|_| (random.next_u64() % 1000) as u32));
            assert!((74_000..76_500).contains(&missed), "{replacement:?}: {missed}");
        }
    }

    proptest! {
        /// Equals a list with the most recently used context in front.
        #[test]
        fn lru_is_a_list_in_the_order_of_use(
            capacity in 1..8usize,
            contexts in prop::collection::vec(0..16u32, 1..300),
        ) {
            let mut cache = ContextCache::new(capacity, 16, Replacement::Lru, 1);
            let mut list = VecDeque::new();
            for context in contexts {
                let place = list.iter().position(|other| *other == context);
                prop_assert_eq!(cache.uses(context), place.is_some());
                match place {
                    Some(place) => { list.remove(place); }
                    None => {
                        let evicted = if list.len() == capacity { list.pop_back() } else { None };
                        prop_assert_eq!(cache.insert(context), evicted);
                    }
                }
                list.push_front(context);
            }
        }

        /// Whichever context is evicted, the cache keeps its capacity and contains the context inserted last.
        #[test]
        fn a_cache_keeps_its_capacity(
            capacity in 1..8usize,
            seed in any::<u64>(),
            contexts in prop::collection::vec(0..16u32, 1..300),
        ) {
            let mut cache = ContextCache::new(capacity, 16, Replacement::Random, seed);
            let mut there = Vec::new();
            for context in contexts {
                prop_assert_eq!(cache.uses(context), there.contains(&context));
                if !there.contains(&context) {
                    there.push(context);
                    let evicted = cache.insert(context);
                    prop_assert_ne!(evicted, Some(context));
                    there.retain(|other| Some(*other) != evicted);
                }
                prop_assert!(there.len() <= capacity && there.contains(&context));
            }
        }
    }
}
