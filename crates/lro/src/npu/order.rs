//! The order in which connections take turns. Connections whose segments alternate mostly keep their order
//! from burst to burst, so the engine finds the next one without computing a hash.

use std::iter;

use crate::table::Index;

/// Predicts the next connection: the one that followed the last connection the time before.
pub(super) struct Order {
    /// The successor of each connection.
    successors: Box<[Index]>,
    /// The connection that came last.
    last: Index,
    /// The connection that followed `last` the last time.
    next: Index,
    /// How many times segments of a connection came in this burst, and how many of these were predicted.
    observed: usize,
    predicted: usize,
    /// Number of bursts until the order is observed again; 0 while it is observed.
    pause: u8,
}

impl Order {
    /// No connection.
    const NONE: Index = Index(u32::MAX);

    /// Number of bursts whose order is not observed, after a burst in another order than predicted. The
    /// engine then observes one burst in three, so that it observes every burst in turn if the connections
    /// take two, four or eight bursts for a round.
    const PAUSE: u8 = 2;

    pub(super) fn new(connections: usize) -> Self {
        let successors = vec![Self::NONE; connections].into();
        Self { successors, last: Self::NONE, next: Self::NONE, observed: 0, predicted: 0, pause: 0 }
    }

    /// Returns the place of the connection that probably comes next; there may be no connection there.
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
        self.observed += 1;
        self.predicted += usize::from(index == self.next);
        if let Some(place) = self.successors.get_mut(self.last.0 as usize) {
            *place = index;
        }
        self.last = index;
        self.next = self.after(index).unwrap_or(Self::NONE);
    }

    /// Begins a burst. Returns true if most of the last burst's `connections` came in the predicted order.
    #[inline]
    pub(super) fn begin_burst(&mut self, connections: usize) -> bool {
        let holds = self.predicted > 0 && 2 * self.predicted >= self.observed.max(connections);
        if self.pause > 0 {
            self.pause -= 1;
        } else if !holds && self.observed > 0 {
            self.pause = Self::PAUSE;
            (self.last, self.next) = (Self::NONE, Self::NONE);
        }
        (self.observed, self.predicted) = (0, 0);
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the connections of a burst; returns true if they came as predicted.
    fn burst(order: &mut Order, connections: &[u32]) -> bool {
        connections.iter().for_each(|index| order.note(Index(*index)));
        order.begin_burst(connections.len())
    }

    /// Repeats these bursts, 100 in total. Returns the number of bursts after which all came as predicted.
    fn bursts_until_predicted(bursts: &[&[u32]]) -> usize {
        let mut order = Order::new(256);
        let predicted: Vec<bool> =
            bursts.iter().cycle().take(100).map(|burst_of| burst(&mut order, burst_of)).collect();
        predicted.iter().rposition(|predicted| !predicted).map_or(0, |last| last + 1)
    }

    #[test]
    fn rounds_are_predicted_after_a_while() {
        assert_eq!(bursts_until_predicted(&[&[3, 1, 2]]), 3);
        let rounds: Vec<Vec<u32>> = (0..8).map(|nth| (nth * 32..nth * 32 + 32).collect()).collect();
        let rounds: Vec<&[u32]> = rounds.iter().map(Vec::as_slice).collect();
        for bursts in [1, 2, 3, 4, 8] {
            let until = bursts_until_predicted(&rounds[..bursts]);
            assert!(until <= 6 * bursts, "{until} of rounds of {bursts}");
        }
    }

    #[test]
    fn a_new_order_is_predicted_once_it_was_seen() {
        let mut order = Order::new(8);
        let bursts = |order: &mut Order, connections: &[u32]| [(); 8].map(|()| burst(order, connections));
        assert_eq!(bursts(&mut order, &[3, 1, 2])[3..], [true; 5]);
        assert_eq!(order.upcoming().take(4).collect::<Vec<_>>(), [3, 1, 2, 3].map(Index));
        let predicted = bursts(&mut order, &[1, 3, 2, 5]);
        assert!(!predicted[0] && predicted[4..] == [true; 4], "{predicted:?}");
        assert!(!order.begin_burst(0), "nothing came");
    }

    #[test]
    fn connections_beside_those_with_a_descriptor_are_not_predicted() {
        let mut order = Order::new(8);
        (0..8).for_each(|_| _ = burst(&mut order, &[1, 2]));
        [1, 2].iter().for_each(|index| order.note(Index(*index)));
        assert!(!order.begin_burst(5));
    }
}
