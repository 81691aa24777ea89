//! DCTCP (RFC 8257), counted in packets.

use nichrome_wire::{Instant, SeqNumber};

use super::controller::{Acknowledged, Controller, Mark, SendWindow};
use super::reduction::Reduction;

/// Gain g of the estimate alpha (RFC 8257 section 4.2).
const GAIN: f64 = 1.0 / 16.0;

/// Minimum window in packets.
const FLOOR: f64 = 2.0;

/// The window is halved if more than one of this many packets was lost; else a loss reduces it by one packet,
/// since it may have another cause than congestion, which routers mark.
const BURST: f64 = 8.0;

/// A congestion window in packets.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    size: f64,
    threshold: f64,
    max: f64,
    /// Estimate of the fraction of marked packets.
    alpha: f64,
    /// End of the observation window of `acknowledged` and `marked`.
    window_end: SeqNumber,
    acknowledged: u32,
    marked: u32,
    lost: u32,
    /// Marks and losses of packets before it do not reduce the window again.
    reduction: Reduction,
}

impl Dctcp {
    /// Creates the window of a connection whose first packet has sequence number `first`.
    pub(crate) fn new(config: &SendWindow, first: SeqNumber) -> Self {
        Self {
            size: f64::from(config.initial),
            threshold: f64::from(config.max),
            max: f64::from(config.max),
            alpha: 1.0,
            window_end: first,
            acknowledged: 0,
            marked: 0,
            lost: 0,
            reduction: Reduction::default(),
        }
    }

    fn grow(&mut self, packets: u32) {
        let packets = f64::from(packets);
        let step = if self.size < self.threshold { packets } else { packets / self.size };
        self.size = (self.size + step).min(self.max);
    }

    /// Reduces the window, at most once per window of packets (RFC 8257 section 3.3).
    fn reduce(&mut self, sequence: SeqNumber, next: SeqNumber, factor: f64) {
        if self.reduction.covers(sequence) {
            return;
        }
        self.reduction.record(next);
        self.size = (self.size * factor).max(FLOOR.min(self.size));
        self.threshold = self.size;
    }
}

impl Controller for Dctcp {
    #[inline]
    fn window(&self) -> u32 {
        self.size as u32
    }

    fn acknowledged(&mut self, ack: &Acknowledged) {
        let Acknowledged { sequence, packets, next, mark, .. } = *ack;
        self.reduction.acknowledged(sequence);
        self.acknowledged += packets;
        if mark == Mark::Marked {
            self.marked += packets;
            let share = self.alpha / 2.0;
            self.reduce(sequence, next, 1.0 - share);
        } else {
            self.grow(packets);
        }
        if !sequence.before(self.window_end) {
            let share = f64::from(self.marked) / f64::from(self.acknowledged);
            self.alpha = self.alpha * (1.0 - GAIN) + share * GAIN;
            (self.acknowledged, self.marked, self.lost, self.window_end) = (0, 0, 0, next);
        }
    }

    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber) {
        self.lost += 1;
        if f64::from(self.lost) * BURST > self.size {
            self.reduce(sequence, next, 0.5);
        } else {
            self.size = (self.size - 1.0).max(FLOOR.min(self.size));
            self.threshold = self.threshold.min(self.size);
        }
    }

    fn timed_out(&mut self) {
        self.threshold = (self.size / 2.0).max(FLOOR.min(self.size));
        self.size = FLOOR.min(self.size);
        self.reduction.forget();
    }

    fn notified(&mut self, unacknowledged: SeqNumber, next: SeqNumber, _: Instant) {
        let share = self.alpha / 2.0;
        if !self.reduction.covers_all(next) {
            self.reduce(unacknowledged, next, 1.0 - share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges a full window, of which the first `marked` packets are marked.
    fn round(window: &mut Dctcp, next: &mut SeqNumber, marked: u32) {
        let first = *next;
        let packets = window.window();
        *next += packets;
        for nth in 0..packets {
            let (sequence, mark, now) = (first + nth, Mark::from(nth < marked), Instant::ZERO);
            window.acknowledged(&Acknowledged { sequence, packets: 1, next: *next, mark, now });
        }
    }

    #[test]
    fn the_window_shrinks_by_half_of_alpha_once_in_a_round_trip() {
        let mut next = SeqNumber(u32::MAX - 100);
        let mut window = Dctcp::new(&SendWindow { initial: 64, max: 64, read: 8 }, next);
        // Alpha is 1 at first: the first mark halves the window.
        window.threshold = 0.0;
        round(&mut window, &mut next, 1);
        assert_eq!(window.window(), 32 + 1);
        round(&mut window, &mut next, 33);
        let expected = 33.9 * (1.0 - window.alpha / 2.0);
        assert!((window.size - expected).abs() < 1.5, "{} and {expected}", window.size);
    }

    #[test]
    fn alpha_converges_to_the_fraction_of_marked_packets() {
        let mut next = SeqNumber(7);
        let mut window = Dctcp::new(&SendWindow { initial: 40, max: 40, read: 8 }, next);
        for _ in 0..300 {
            let quarter = window.window() / 4;
            window.size = 40.0;
            round(&mut window, &mut next, quarter.max(10));
        }
        assert!((window.alpha - 0.25).abs() < 0.02, "{}", window.alpha);
        for _ in 0..300 {
            round(&mut window, &mut next, 0);
        }
        assert!(window.alpha < 0.01 && window.window() == 40, "{window:?}");
    }

    #[test]
    fn bursts_of_loss_halve_the_window_and_timeouts_reduce_it_to_the_minimum() {
        let mut window = Dctcp::new(&SendWindow { initial: 40, max: 64, read: 8 }, SeqNumber(0));
        (0..4).for_each(|nth| window.lost(SeqNumber(nth), SeqNumber(40)));
        assert_eq!(window.window(), 36);
        window.lost(SeqNumber(4), SeqNumber(40));
        window.lost(SeqNumber(39), SeqNumber(60));
        assert_eq!(window.window(), 18);
        window.timed_out();
        assert_eq!(window.window(), 2);
    }

    #[test]
    fn notifications_without_a_new_packet_reduce_the_window_once() {
        let mut window = Dctcp::new(&SendWindow { initial: 64, max: 64, read: 8 }, SeqNumber(0));
        (0..3).for_each(|_| window.notified(SeqNumber(64), SeqNumber(64), Instant::ZERO));
        assert_eq!(window.window(), 32);
        window.notified(SeqNumber(65), SeqNumber(65), Instant::ZERO);
        assert_eq!(window.window(), 16);
    }

    #[test]
    fn bursts_of_loss_halve_the_window_however_long_the_last_reduction_is_ago() {
        let mut window = Dctcp::new(&SendWindow { initial: 64, max: 64, read: 8 }, SeqNumber(0));
        window.notified(SeqNumber(0), SeqNumber(64), Instant::ZERO);
        for sent in 1..=512 {
            let (sequence, next) = (SeqNumber(sent << 22), SeqNumber((sent << 22) + 1));
            let (packets, mark, now) = (64, Mark::Unmarked, Instant::ZERO);
            window.acknowledged(&Acknowledged { sequence, packets, next, mark, now });
        }
        assert_eq!(window.window(), 64);
        let first = SeqNumber((1 << 31) + 65);
        (0..9).for_each(|nth| window.lost(first + nth, first + 64));
        assert_eq!(window.window(), 28);
    }
}
