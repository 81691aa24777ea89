//! The order in which connections take turns: connections whose segments alternate mostly keep it, from burst
//! to burst, so that the next one is found without its hash.

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
    /// Bursts until the order is observed again; 0 while it is.
    pause: u8,
}

impl Order {
    /// No connection.
    const NONE: Index = Index(u32::MAX);

    /// Bursts whose order is not observed after one that came in another order than foreseen. With one
    /// observed burst in three, each burst of a round of two, four or eight is observed in turn.
    const PAUSE: u8 = 2;

    pub(super) fn new(connections: usize) -> Self {
        let successors = vec![Self::NONE; connections].into();
        Self { successors, last: Self::NONE, next: Self::NONE, came: 0, foreseen: 0, pause: 0 }
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
        if self.pause > 0 {
            return;
        }
        self.came += 1;
        self.foreseen += usize::from(index == self.next);
        if let Some(place) = self.successors.get_mut(self.last.0 as usize) {
            *place = index;
        }
        self.last = index;
        self.next = self.after(index).unwrap_or(Self::NONE);
    }

    /// Begins a burst. Returns true if most of the last one's `connections` came in the order that was
    /// foreseen.
    #[inline]
    pub(super) fn begin_burst(&mut self, connections: usize) -> bool {
        let holds = self.foreseen > 0 && 2 * self.foreseen >= self.came.max(connections);
        if self.pause > 0 {
            self.pause -= 1;
        } else if !holds && self.came > 0 {
            self.pause = Self::PAUSE;
            (self.last, self.next) = (Self::NONE, Self::NONE);
        }
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

    /// Returns how many bursts of these come, again and again, until all do as foreseen.
    fn bursts_until_foreseen(bursts: &[&[u32]]) -> usize {
        let mut order = Order::new(256);
        let foreseen: Vec<bool> =
            bursts.iter().cycle().take(100).map(|burst_of| burst(&mut order, burst_of)).collect();
        foreseen.iter().rposition(|foreseen| !foreseen).map_or(0, |last| last + 1)
    }

    #[test]
    fn rounds_are_foreseen_after_a_while() {
        assert_eq!(bursts_until_foreseen(&[&[3, 1, 2]]), 3);
        let rounds: Vec<Vec<u32>> = (0..8).map(|nth| (nth * 32..nth * 32 + 32).collect()).collect();
        let rounds: Vec<&[u32]> = rounds.iter().map(Vec::as_slice).collect();
        for bursts in [1, 2, 3, 4, 8] {
            let until = bursts_until_foreseen(&rounds[..bursts]);
            assert!(until <= 6 * bursts, "{until} of rounds of {bursts}");
        }
    }

    #[test]
    fn a_new_order_is_foreseen_once_it_was_seen() {
        let mut order = Order::new(8);
        let bursts = |order: &mut Order, connections: &[u32]| [(); 8].map(|()| burst(order, connections));
        assert_eq!(bursts(&mut order, &[3, 1, 2])[3..], [true; 5]);
        assert_eq!(order.upcoming().take(4).collect::<Vec<_>>(), [3, 1, 2, 3].map(Index));
        let foreseen = bursts(&mut order, &[1, 3, 2, 5]);
        assert!(!foreseen[0] && foreseen[4..] == [true; 4], "{foreseen:?}");
        assert!(!order.begin_burst(0), "nothing came");
    }

    #[test]
    fn connections_beside_those_with_a_descriptor_are_not_foreseen() {
        let mut order = Order::new(8);
        (0..8).for_each(|_| _ = burst(&mut order, &[1, 2]));
        [1, 2].iter().for_each(|index| order.note(Index(*index)));
        assert!(!order.begin_burst(5));
    }
}
