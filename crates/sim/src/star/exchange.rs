//! StaR's data, as its stateful side sees it: every packet that it sends is answered by one from the stateless card (RDP by
//! RA, GD by SDP), and what is not answered is sent again by itself.

use super::window::Window;

/// Packets that may be under way at most.
pub(super) const MOST: u32 = u128::BITS;

/// One direction of data. Bit n of each set is the packet n behind the first unanswered one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    /// Packets of all messages posted.
    posted: u32,
    /// The first that was never sent.
    next: u32,
    first_unanswered: u32,
    answered: u128,
    /// Those that are to be sent again, and those that were.
    again: u128,
    repeated: u128,
    window: Window,
}

impl Exchange {
    pub(super) fn new(window: Window) -> Self {
        Self { posted: 0, next: 0, first_unanswered: 0, answered: 0, again: 0, repeated: 0, window }
    }

    /// A message of so many packets is to be moved.
    pub(super) fn post(&mut self, packets: u32) {
        self.posted += packets;
    }

    /// Whether a packet may be sent now.
    pub(super) fn can_send(&self) -> bool {
        let most = self.window.packets().min(MOST);
        self.again != 0 || (self.next < self.posted && self.next - self.first_unanswered < most)
    }

    /// The packet to be sent now, and whether it was sent before.
    pub(super) fn send(&mut self) -> Option<(u32, bool)> {
        if !self.can_send() {
            return None;
        }
        if self.again != 0 {
            let nth = self.again.trailing_zeros();
            self.again &= !(1 << nth);
            self.repeated |= 1 << nth;
            return Some((self.first_unanswered + nth, true));
        }
        self.next += 1;
        Some((self.next - 1, false))
    }

    /// A packet is answered; says whether it was not before. Packets stay in order on their way there and back, so that
    /// those sent before it are lost, unless they were sent again since.
    pub(super) fn answer(&mut self, sequence: u32, marked: bool) -> bool {
        let Some(nth) = sequence.checked_sub(self.first_unanswered) else { return false };
        if sequence >= self.next || self.answered & 1 << nth != 0 {
            return false;
        }
        let this = 1u128 << nth;
        let lost = (this - 1) & !self.answered & !self.repeated & !self.again;
        if lost != 0 {
            self.again |= lost;
            self.window.lost(self.first_unanswered, self.next);
        }
        self.answered |= this;
        self.again &= !this;
        let through = self.answered.trailing_ones();
        self.first_unanswered += through;
        for set in [&mut self.answered, &mut self.again, &mut self.repeated] {
            *set = set.checked_shr(through).unwrap_or(0);
        }
        self.window.answered(marked, self.first_unanswered, self.next);
        true
    }

    /// Nothing was heard for too long: all that is not answered is sent again.
    pub(super) fn time_out(&mut self) {
        let under_way = self.next - self.first_unanswered;
        let sent = u128::MAX.checked_shr(MOST - under_way).unwrap_or(0);
        self.again = sent & !self.answered;
        self.window.lost(self.first_unanswered, self.next);
    }

    /// Whether something was sent that is not answered.
    pub(super) fn is_under_way(&self) -> bool {
        self.first_unanswered < self.next
    }

    /// Whether all that was posted is answered.
    pub(super) fn is_done(&self) -> bool {
        self.first_unanswered == self.posted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::window::Congestion;
    use super::*;

    fn sent(exchange: &mut Exchange) -> Vec<(u32, bool)> {
        std::iter::from_fn(|| exchange.send()).collect()
    }

    #[test]
    fn only_what_was_lost_is_sent_again() {
        let mut exchange = Exchange::new(Window::new(9, Congestion::None));
        exchange.post(5);
        assert_eq!(sent(&mut exchange).len(), 5);
        assert!(exchange.answer(0, false) && exchange.answer(3, false));
        assert_eq!(sent(&mut exchange), [(1, true), (2, true)]);
        assert!(exchange.answer(4, false), "behind those that were sent again, which are still on their way");
        assert_eq!(sent(&mut exchange), []);
        assert!(exchange.answer(2, false) && !exchange.answer(2, false));
        exchange.time_out();
        assert_eq!(sent(&mut exchange), [(1, true)]);
        assert!(exchange.answer(1, false) && exchange.is_done() && !exchange.is_under_way());
    }

    #[test]
    fn what_is_answered_late_is_not_sent_again() {
        let mut exchange = Exchange::new(Window::new(9, Congestion::None));
        exchange.post(3);
        assert_eq!(sent(&mut exchange).len(), 3);
        exchange.time_out();
        assert!(exchange.answer(1, false));
        assert_eq!(sent(&mut exchange), [(0, true), (2, true)]);
    }

    #[test]
    fn a_full_window_of_the_most_packets_is_repeated_and_answered() {
        let mut exchange = Exchange::new(Window::new(1000, Congestion::None));
        exchange.post(2 * MOST);
        assert_eq!(sent(&mut exchange).len(), MOST as usize);
        exchange.time_out();
        assert_eq!(sent(&mut exchange).len(), MOST as usize);
        assert!((0..MOST).all(|sequence| exchange.answer(sequence, false)));
        assert_eq!(sent(&mut exchange).len(), MOST as usize);
    }

    proptest! {
        /// Whatever is lost there or back, each packet is answered once, and none is sent beyond the window.
        #[test]
        fn every_packet_is_answered_once(
            packets in 1..300u32,
            window in 1..200u32,
            lost in prop::collection::vec(0..4u8, 0..600),
        ) {
            let mut exchange = Exchange::new(Window::new(window, Congestion::Dctcp));
            let mut lost = lost.into_iter().map(|lost| lost == 0).chain(std::iter::repeat(false));
            let mut on_their_way = VecDeque::new();
            let mut answered = vec![false; packets as usize];
            exchange.post(packets);
            while !exchange.is_done() {
                while let Some((sequence, _)) = exchange.send() {
                    prop_assert!(sequence - exchange.first_unanswered < window.min(MOST));
                    if lost.next() != Some(true) {
                        on_their_way.push_back(sequence);
                    }
                }
                match on_their_way.pop_front() {
                    Some(sequence) if exchange.answer(sequence, false) => {
                        prop_assert!(!std::mem::replace(&mut answered[sequence as usize], true));
                    }
                    Some(_) => {}
                    None => exchange.time_out(),
                }
            }
            prop_assert!(answered.iter().all(|answered| *answered));
        }
    }
}
