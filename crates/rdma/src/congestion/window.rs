//! A congestion window that halves on loss.

use nichrome_wire::{Instant, SeqNumber};

use super::controller::{Acknowledged, Controller, SendWindow};
use super::reduction::Reduction;

/// A congestion window in packets with slow start and congestion avoidance (RFC 5681 section 3.1). Requires
/// no support of the peer.
#[derive(Clone, Debug)]
pub(crate) struct LossWindow {
    size: u32,
    threshold: u32,
    max: u32,
    /// Packets acknowledged since the last growth in congestion avoidance.
    credit: u32,
    /// Losses of packets before it do not halve the window again.
    reduction: Reduction,
}

/// Minimum window in packets, unless the maximum is smaller.
const FLOOR: u32 = 2;

impl LossWindow {
    pub(crate) fn new(config: &SendWindow) -> Self {
        let SendWindow { initial: size, max, .. } = *config;
        Self { size, threshold: max, max, credit: 0, reduction: Reduction::default() }
    }

    fn floor(&self) -> u32 {
        FLOOR.min(self.max)
    }
}

impl Controller for LossWindow {
    #[inline]
    fn window(&self) -> u32 {
        self.size
    }

    #[inline]
    fn acknowledged(&mut self, ack: &Acknowledged) {
        self.reduction.acknowledged(ack.sequence);
        if self.size >= self.max {
            return;
        }
        if self.size < self.threshold {
            self.size = (self.size + ack.packets).min(self.threshold).min(self.max);
            return;
        }
        self.credit += ack.packets;
        if self.credit >= self.size {
            self.credit -= self.size;
            self.size += 1;
        }
    }

    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber) {
        if self.reduction.covers(sequence) {
            return;
        }
        self.reduction.record(next);
        self.threshold = (self.size / 2).max(self.floor());
        (self.size, self.credit) = (self.threshold, 0);
    }

    fn timed_out(&mut self) {
        self.threshold = (self.size / 2).max(self.floor());
        (self.size, self.credit) = (self.floor(), 0);
        self.reduction.forget();
    }

    fn notified(&mut self, unacknowledged: SeqNumber, next: SeqNumber, _: Instant) {
        if !self.reduction.covers_all(next) {
            self.lost(unacknowledged, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Mark;

    #[test]
    fn grows_fast_then_slowly_and_halves_on_loss() {
        let mut window = LossWindow::new(&SendWindow { initial: 8, max: 64, read: 8 });
        let acknowledge = |window: &mut LossWindow, packets| {
            let (sequence, next, mark, now) = (SeqNumber(0), SeqNumber(0), Mark::Unmarked, Instant::ZERO);
            window.acknowledged(&Acknowledged { sequence, packets, next, mark, now });
        };
        acknowledge(&mut window, 8);
        assert_eq!(window.window(), 16);
        window.lost(SeqNumber(5), SeqNumber(20));
        window.lost(SeqNumber(19), SeqNumber(30));
        assert_eq!(window.window(), 8, "halved once per window");
        acknowledge(&mut window, 7);
        assert_eq!(window.window(), 8);
        acknowledge(&mut window, 1);
        assert_eq!(window.window(), 9);
        window.timed_out();
        assert_eq!(window.window(), FLOOR);
        (0..10_000).for_each(|_| acknowledge(&mut window, 1));
        assert_eq!(window.window(), 64);
    }

    /// A peer sends CNPs for a while: the marked packets may all be acknowledged before the last CNP arrives.
    #[test]
    fn notifications_without_a_new_packet_halve_the_window_once() {
        let mut window = LossWindow::new(&SendWindow { initial: 64, max: 64, read: 8 });
        let mut notify = |next| {
            window.notified(SeqNumber(next), SeqNumber(next), Instant::ZERO);
            window.window()
        };
        assert_eq!([100, 100, 100].map(&mut notify), [32, 32, 32]);
        assert_eq!([101, 101].map(&mut notify), [16, 16]);
    }

    #[test]
    fn a_maximum_below_the_floor_is_not_exceeded() {
        let mut window = LossWindow::new(&SendWindow { initial: 1, max: 1, read: 1 });
        window.lost(SeqNumber(0), SeqNumber(1));
        assert_eq!(window.window(), 1);
        window.timed_out();
        assert_eq!(window.window(), 1);
    }

    /// The packet numbers of RoCE wrap around after 2²⁴ packets, which takes seconds.
    #[test]
    fn losses_halve_the_window_however_long_the_last_one_is_ago() {
        let mut window = LossWindow::new(&SendWindow { initial: 64, max: 64, read: 8 });
        window.lost(SeqNumber(0), SeqNumber(64 << 8));
        for sent in 1..=512 {
            let (sequence, next) = (SeqNumber(sent << 22), SeqNumber((sent << 22) + 1));
            let (mark, now) = (Mark::Unmarked, Instant::ZERO);
            window.acknowledged(&Acknowledged { sequence, packets: 64, next, mark, now });
        }
        assert_eq!(window.window(), 64);
        let lost = SeqNumber((1 << 31) + (65 << 8));
        window.lost(lost, lost + (64 << 8));
        assert_eq!(window.window(), 32);
    }
}
