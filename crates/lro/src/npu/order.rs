//! The order in which connections take turns: connections whose segments alternate mostly keep it, from burst to burst, so that the next one
//! is found without its hash.

use std::iter;

use crate::table::Index;

/// Which connection came after each one the last time.
pub(super) struct Order {
    /// By connection.
    successors: Box<[Index]>,
    /// The connection that came last.
    last: Index,
    /// The one that came after it the last time.
    next: Index,
    /// How often a connection came in this burst, and how often it was the foreseen one.
    came: usize,
    foreseen: usize,
}

impl Order {
    /// No connection.
    const NONE: Index = Index(u32::MAX);

    pub(super) fn new(connections: usize) -> Self {
        let successors = vec![Self::NONE; connections].into();
        Self { successors, last: Self::NONE, next: Self::NONE, came: 0, foreseen: 0 }
    }

    /// Returns the connection that probably comes next; there may be none at this place.
    #[inline(always)]
    pub(super) fn next(&self) -> Index {
        self.next
    }

    /// Returns the connections that probably come next.
    #[inline(always)]
    pub(super) fn upcoming(&self) -> impl Iterator<Item = Index> {
        iter::successors(Some(self.next), |index| self.after(*index))
    }

    #[inline(always)]
    fn after(&self, index: Index) -> Option<Index> {
        self.successors.get(index.0 as usize).copied()
    }

    /// Records that segments of a connection came.
    #[inline(always)]
    pub(super) fn note(&mut self, index: Index) {
        self.came += 1;
        self.foreseen += usize::from(index == self.next);
        if let Some(place) = self.successors.get_mut(self.last.0 as usize) {
            *place = index;
        }
        self.last = index;
        self.next = self.after(index).unwrap_or(Self::NONE);
    }

    /// Begins a burst. Returns true if most of the last one's `connections` came in the order that was foreseen.
    #[inline]
    pub(super) fn begin_burst(&mut self, connections: usize) -> bool {
        let holds = self.foreseen > 0 && 2 * self.foreseen >= self.came.max(connections);
        (self.came, self.foreseen) = (0, 0);
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the connections of a burst; returns whether they came as foreseen.
    fn burst(order: &mut Order, connections: &[u32]) -> bool {
        connections.iter().for_each(|index| order.note(Index(*index)));
        order.begin_burst(connections.len())
    }

    #[test]
    fn a_round_is_foreseen_once_it_was_seen_and_a_new_one_from_the_second_time_on() {
        let mut order = Order::new(8);
        assert!(!burst(&mut order, &[]));
        assert!(!burst(&mut order, &[3, 1, 2]));
        assert!(burst(&mut order, &[3, 1, 2]));
        assert_eq!(order.upcoming().take(4).collect::<Vec<_>>(), [3, 1, 2, 3].map(Index));
        assert!(!burst(&mut order, &[1, 3, 2, 5]));
        assert!(burst(&mut order, &[1, 3, 2, 5]));
        assert!(!order.begin_burst(0), "nothing came");
    }

    #[test]
    fn connections_beside_those_with_a_descriptor_are_not_foreseen() {
        let mut order = Order::new(8);
        burst(&mut order, &[1, 2]);
        [1, 2].iter().for_each(|index| order.note(Index(*index)));
        assert!(!order.begin_burst(5));
    }
}
