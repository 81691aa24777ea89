//! The DMA load balancer of lro-npu V.B: a request queue per thread, served round robin.

use std::collections::VecDeque;

/// A queue of requests `T` per thread.
#[derive(Clone, Debug)]
pub(super) struct Balancer<T> {
    queues: Vec<VecDeque<T>>,
    /// The next queue.
    turn: usize,
}

impl<T> Balancer<T> {
    /// Creates `queues` queues.
    pub(super) fn new(queues: usize) -> Self {
        Self { queues: (0..queues).map(|_| VecDeque::new()).collect(), turn: 0 }
    }

    /// Appends a request to its thread's queue; out-of-range numbers select the last queue.
    pub(super) fn push(&mut self, queue: usize, request: T) {
        let last = self.queues.len().saturating_sub(1);
        if let Some(queue) = self.queues.get_mut(queue.min(last)) {
            queue.push_back(request);
        }
    }

    /// Returns the number of requests in all queues.
    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Takes the first request of the next non-empty queue.
    pub(super) fn choose(&mut self) -> Option<T> {
        for _ in 0..self.queues.len() {
            let queue = self.turn;
            self.turn = (queue + 1) % self.queues.len();
            if let Some(request) = self.queues[queue].pop_front() {
                return Some(request);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queues_take_turns_and_keep_their_order() {
        let mut balancer = Balancer::new(3);
        for (queue, request) in [(0, 'a'), (0, 'b'), (0, 'c'), (2, 'x'), (2, 'y')] {
            balancer.push(queue, request);
        }
        let order: String = std::iter::from_fn(|| balancer.choose()).collect();
        assert_eq!(order, "axbyc");
    }

    proptest! {
        /// A request behind `before` others in its own queue is chosen within `before + 1` rounds over all
        /// queues, however long the other queues are.
        #[test]
        fn nobody_starves(backlogs in prop::collection::vec(0..50usize, 2..16), before in 0..5usize) {
            let queues = backlogs.len();
            let mut balancer = Balancer::new(queues);
            for (queue, backlog) in backlogs.into_iter().enumerate().skip(1) {
                (0..backlog).for_each(|_| balancer.push(queue, false));
            }
            (0..before).for_each(|_| balancer.push(0, false));
            balancer.push(0, true);
            let chosen = std::iter::from_fn(|| balancer.choose()).position(|is_mine| is_mine);
            prop_assert!(chosen.is_some_and(|turns| turns < (before + 1) * queues));
        }
    }
}
