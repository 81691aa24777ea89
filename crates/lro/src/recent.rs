//! The flows that began to hold segments most recently: a burst is merged here, without access to the large
//! table.

use std::mem;

use crate::flow::FlowKey;
use crate::run::{PooledRun, Run};

/// The place of a flow in [`Recent`]; valid until that flow is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nth(u8);

impl Nth {
    /// No flow.
    pub(crate) const NONE: Self = Self(NIL);
}

/// No entry: the end of a chain.
const NIL: u8 = u8::MAX;
/// Number of chains: their heads fit in the L1 cache.
const CHAINS: usize = 256;

/// Up to [`Recent::MOST`] flows in the order in which they began to hold segments, found by hash, with
/// chaining. Removing a flow leaves a gap.
pub(crate) struct Recent<B> {
    /// First entry of each chain.
    heads: Box<[u8; CHAINS]>,
    entries: Box<[Entry<B>]>,
    /// The first entry in use.
    first: usize,
    /// The first unused entry after those in use.
    end: usize,
    held: usize,
}

#[repr(C, align(64))]
struct Entry<B> {
    run: Option<PooledRun<B>>,
    hash: u32,
    /// Next in the same chain.
    next: u8,
    flow: FlowKey,
}

impl<B> Recent<B> {
    /// Most flows.
    pub(crate) const MOST: usize = 64;

    pub(crate) fn new() -> Self {
        let entries = (0..Self::MOST)
            .map(|_| Entry { run: None, hash: 0, next: NIL, flow: FlowKey::default() })
            .collect();
        Self { heads: Box::new([NIL; CHAINS]), entries, first: 0, end: 0, held: 0 }
    }

    /// Returns the number of flows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Returns true if another flow can be added.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.end < Self::MOST
    }

    #[inline]
    fn chain(hash: u32) -> usize {
        hash as usize % CHAINS
    }

    /// Finds the first flow with this hash, without comparing the key.
    #[inline(always)]
    pub(crate) fn likely(&self, hash: u32) -> Option<Nth> {
        let mut at = self.heads[Self::chain(hash)];
        while let Some(entry) = self.entries.get(usize::from(at)) {
            if entry.hash == hash {
                return Some(Nth(at));
            }
            at = entry.next;
        }
        None
    }

    /// Finds a flow.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u32, flow: &FlowKey) -> Option<Nth> {
        let mut at = self.heads[Self::chain(hash)];
        while let Some(entry) = self.entries.get(usize::from(at)) {
            if entry.hash == hash && entry.flow == *flow {
                return Some(Nth(at));
            }
            at = entry.next;
        }
        None
    }

    /// Returns the next place, or the first one after the last. There may be a gap at the returned place.
    #[inline(always)]
    pub(crate) fn after(&self, nth: Nth) -> Nth {
        let next = usize::from(nth.0) + 1;
        Nth(if next < self.end { next } else { self.first } as u8)
    }

    /// Returns a flow's run.
    #[inline(always)]
    pub(crate) fn get(&self, nth: Nth) -> Option<&Run<B>> {
        self.entries.get(usize::from(nth.0))?.run.as_deref()
    }

    /// Returns a flow's hash and key.
    pub(crate) fn key(&self, nth: Nth) -> Option<(u32, FlowKey)> {
        self.entries.get(usize::from(nth.0)).map(|entry| (entry.hash, entry.flow))
    }

    /// Returns a flow's key.
    #[inline(always)]
    pub(crate) fn flow(&self, nth: Nth) -> Option<&FlowKey> {
        self.entries.get(usize::from(nth.0)).map(|entry| &entry.flow)
    }

    /// Returns a flow's run.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, nth: Nth) -> Option<&mut Run<B>> {
        self.entries.get_mut(usize::from(nth.0))?.run.as_deref_mut()
    }

    /// Adds a flow that is not present; `None` if there is no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, hash: u32, flow: FlowKey, run: PooledRun<B>) -> Option<Nth> {
        let entry = self.entries.get_mut(self.end)?;
        let nth = self.end as u8;
        let head = &mut self.heads[Self::chain(hash)];
        // Field by field: a whole entry would be built on the stack first.
        entry.flow = flow;
        entry.hash = hash;
        entry.next = *head;
        // The place holds None: forgetting it saves a test and a drop.
        mem::forget(entry.run.replace(run));
        *head = nth;
        self.end += 1;
        self.held += 1;
        Some(Nth(nth))
    }

    /// Removes a flow.
    #[inline]
    pub(crate) fn remove(&mut self, nth: Nth) -> Option<PooledRun<B>> {
        let entry = self.entries.get_mut(usize::from(nth.0))?;
        let run = entry.run.take()?;
        let (chain, next) = (Self::chain(entry.hash), entry.next);
        self.unchain(chain, nth.0, next);
        self.held -= 1;
        if self.held == 0 {
            (self.first, self.end) = (0, 0);
        } else {
            self.skip_gaps();
        }
        Some(run)
    }

    /// Unlinks entry `gone` from a chain, in which `after` follows it.
    fn unchain(&mut self, chain: usize, gone: u8, after: u8) {
        if self.heads[chain] == gone {
            self.heads[chain] = after;
            return;
        }
        let mut at = self.heads[chain];
        while let Some(entry) = self.entries.get_mut(usize::from(at)) {
            if entry.next == gone {
                entry.next = after;
                return;
            }
            at = entry.next;
        }
    }

    /// Skips gaps at both ends. At least one flow must be present.
    fn skip_gaps(&mut self) {
        let is_gap = |at: usize| self.entries.get(at).is_some_and(|entry| entry.run.is_none());
        while is_gap(self.first) {
            self.first += 1;
        }
        while self.end > 0 && is_gap(self.end - 1) {
            self.end -= 1;
        }
    }

    /// Returns the flow that began first, and its run.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<(Nth, &Run<B>)> {
        let nth = Nth(self.first as u8);
        Some((nth, self.get(nth)?))
    }

    /// Removes all flows, the oldest first.
    #[inline(always)]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u32, FlowKey, PooledRun<B>)> {
        *self.heads = [NIL; CHAINS];
        let (first, end) = (self.first, self.end);
        (self.first, self.end, self.held) = (0, 0, 0);
        let entries = self.entries.get_mut(first..end).unwrap_or_default();
        entries.iter_mut().filter_map(|entry| Some((entry.hash, entry.flow, entry.run.take()?)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recycle::Recycler;

    fn flow(n: u16) -> FlowKey {
        FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), n, 80)
    }

    /// Few hashes, so that flows share chains and some the whole hash.
    fn hash(n: u16) -> u32 {
        u32::from(n % 7) << 8 | u32::from(n % 3)
    }

    /// Runs that are in use.
    fn runs() -> impl FnMut() -> PooledRun<Vec<u8>> {
        let mut pool = Recycler::new((0..1000).map(|_| Run::with_room(2)));
        move || pool.take().unwrap()
    }

    proptest! {
        /// With any mix of additions, removals and drains, finds the flows that are present, and drains them
        /// in the order in which they were added.
        #[test]
        fn agrees_with_a_list(steps in proptest::collection::vec((0u16..40, 0u8..20), 0..300)) {
            let (mut recent, mut run) = (Recent::new(), runs());
            let mut model: Vec<u16> = Vec::new();
            for (n, action) in steps {
                let found = recent.find(hash(n), &flow(n));
                prop_assert_eq!(found.is_some(), model.contains(&n));
                match found {
                    _ if action == 0 => {
                        let drained: Vec<FlowKey> = recent.drain().map(|(_, flow, _)| flow).collect();
                        prop_assert_eq!(drained, model.drain(..).map(flow).collect::<Vec<_>>());
                    }
                    Some(nth) => {
                        prop_assert!(recent.remove(nth).is_some());
                        model.retain(|present| *present != n);
                    }
                    None if recent.has_room() => {
                        prop_assert!(recent.push(hash(n), flow(n), run()).is_some());
                        model.push(n);
                    }
                    None => prop_assert!(recent.push(hash(n), flow(n), run()).is_none()),
                }
                prop_assert_eq!(recent.len(), model.len());
                let oldest = model.first().and_then(|n| recent.find(hash(*n), &flow(*n)));
                prop_assert_eq!(recent.oldest().map(|(nth, _)| nth), oldest);
                prop_assert!(model.iter().all(|n| recent.likely(hash(*n)).is_some()));
                for (n, next) in model.iter().zip(model.iter().cycle().skip(1)) {
                    let next_of = |nth: &Nth| Some(recent.after(*nth));
                    let after = std::iter::successors(recent.find(hash(*n), &flow(*n)), next_of).skip(1);
                    let first = after.take(256).find(|nth| recent.get(*nth).is_some());
                    prop_assert_eq!(first, recent.find(hash(*next), &flow(*next)));
                }
            }
        }
    }
}
