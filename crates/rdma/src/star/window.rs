//! DCTCP (RFC 8257), counted in packets: what the stateful side computes for both directions (section 3.1 of the paper,
//! "Congestion control").

use nichrome_wire::SeqNumber;

use crate::config::SendWindow;

/// How much the last window counts in the estimate of congestion (RFC 8257 section 4.2).
const GAIN: f64 = 1.0 / 16.0;

/// Neither marks nor losses take the window below this.
const FLOOR: f64 = 2.0;

/// A congestion window in packets.
#[derive(Clone, Debug)]
pub(super) struct Dctcp {
    size: f64,
    threshold: f64,
    /// The estimate of the share of marked packets.
    alpha: f64,
    /// The share is measured over the packets before this one.
    window_end: SeqNumber,
    answered: u32,
    marked: u32,
    /// The window was made smaller for what was sent before this one.
    reduced_until: Option<SeqNumber>,
}

impl Dctcp {
    /// Before anything was sent; the first packet has the number `first`.
    pub(super) fn new(config: &SendWindow, first: SeqNumber) -> Self {
        Self {
            size: f64::from(config.initial),
            threshold: f64::from(config.max),
            alpha: 1.0,
            window_end: first,
            answered: 0,
            marked: 0,
            reduced_until: None,
        }
    }

    /// Packets that may be outstanding.
    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.size as u32
    }

    /// The estimate of the share of marked packets, 0 to 1.
    #[cfg(test)]
    fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The packet `sequence` was answered, when `next` was to be sent next; whether it had met congestion.
    pub(super) fn answered(
        &mut self,
        sequence: SeqNumber,
        next: SeqNumber,
        congestion: Congestion,
        config: &SendWindow,
    ) {
        self.answered += 1;
        if congestion == Congestion::Marked {
            self.marked += 1;
            let share = self.alpha / 2.0;
            self.reduce(sequence, next, 1.0 - share);
        } else {
            self.grow(config);
        }
        if !sequence.before(self.window_end) {
            let share = f64::from(self.marked) / f64::from(self.answered);
            self.alpha = self.alpha * (1.0 - GAIN) + share * GAIN;
            (self.answered, self.marked, self.window_end) = (0, 0, next);
        }
    }

    fn grow(&mut self, config: &SendWindow) {
        let step = if self.size < self.threshold { 1.0 } else { 1.0 / self.size };
        self.size = (self.size + step).min(f64::from(config.max));
    }

    /// The packet `sequence` was lost, when `next` was to be sent next.
    pub(super) fn lost(&mut self, sequence: SeqNumber, next: SeqNumber) {
        self.reduce(sequence, next, 0.5);
    }

    /// Once for all packets of a window (RFC 8257 section 3.3).
    fn reduce(&mut self, sequence: SeqNumber, next: SeqNumber, factor: f64) {
        if self.reduced_until.is_some_and(|until| sequence.before(until)) {
            return;
        }
        self.reduced_until = Some(next);
        self.size = (self.size * factor).max(FLOOR.min(self.size));
        self.threshold = self.size;
    }

    /// No answer came at all.
    pub(super) fn timed_out(&mut self) {
        self.threshold = (self.size / 2.0).max(FLOOR.min(self.size));
        (self.size, self.reduced_until) = (FLOOR.min(self.size), None);
    }
}

/// What a packet met on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    None,
    Marked,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round trip of a full window, of which the first `marked` packets met congestion.
    fn round(window: &mut Dctcp, next: &mut SeqNumber, marked: u32, config: &SendWindow) {
        let first = *next;
        let packets = window.size();
        *next += packets;
        for nth in 0..packets {
            let congestion = if nth < marked { Congestion::Marked } else { Congestion::None };
            window.answered(first + nth, *next, congestion, config);
        }
    }

    #[test]
    fn the_window_shrinks_by_half_of_alpha_once_in_a_round_trip() {
        let config = SendWindow { initial: 64, max: 64, read: 8 };
        let mut next = SeqNumber(u32::MAX - 100);
        let mut window = Dctcp::new(&config, next);
        // Nothing is known: the first mark counts in full.
        window.threshold = 0.0;
        round(&mut window, &mut next, 1, &config);
        assert_eq!(window.size(), 32 + 1);
        round(&mut window, &mut next, 33, &config);
        let expected = 33.9 * (1.0 - window.alpha() / 2.0);
        assert!((window.size - expected).abs() < 1.5, "{} and {expected}", window.size);
    }

    #[test]
    fn alpha_becomes_the_share_of_marked_packets() {
        let config = SendWindow { initial: 40, max: 40, read: 8 };
        let mut next = SeqNumber(7);
        let mut window = Dctcp::new(&config, next);
        for _ in 0..300 {
            let quarter = window.size() / 4;
            window.size = 40.0;
            round(&mut window, &mut next, quarter.max(10), &config);
        }
        assert!((window.alpha() - 0.25).abs() < 0.02, "{}", window.alpha());
        for _ in 0..300 {
            round(&mut window, &mut next, 0, &config);
        }
        assert!(window.alpha() < 0.01 && window.size() == 40, "{window:?}");
    }

    #[test]
    fn losses_halve_it_and_silence_takes_it_to_the_floor() {
        let config = SendWindow { initial: 40, max: 64, read: 8 };
        let mut window = Dctcp::new(&config, SeqNumber(0));
        window.lost(SeqNumber(3), SeqNumber(40));
        window.lost(SeqNumber(39), SeqNumber(60));
        assert_eq!(window.size(), 20);
        window.timed_out();
        assert_eq!(window.size(), 2);
    }
}
