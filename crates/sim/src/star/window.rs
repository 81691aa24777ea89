//! How much a sender may have under way: a fixed number of packets, or DCTCP's window (RFC 8257).

/// Parts of a packet that are told apart.
const PACKET: u32 = 256;
/// Parts of the fraction of marked packets.
const WHOLE: u32 = 1024;
/// RFC 8257 section 3.3: the weight of a new fraction is 1/16.
const WEIGHT: u32 = 16;

/// What limits senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    /// Nothing but the largest window.
    None,
    /// DCTCP, beginning at the largest window, as cards begin at the rate of their line.
    Dctcp,
}

/// A sender's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    congestion: Congestion,
    /// In parts of packets.
    size: u32,
    most: u32,
    /// The moving average of the fraction of marked packets, in parts.
    alpha: u32,
    /// Packets that were answered in this window, and those of them that were marked.
    answered: u32,
    marked: u32,
    /// The window is over with the answer to this packet.
    end: u32,
    /// A loss before this packet has been answered with half the window.
    halved_until: u32,
}

impl Window {
    /// Of at most `most` packets, at least 1. RFC 8257 section 3.3: the fraction begins at 1.
    pub(super) fn new(most: u32, congestion: Congestion) -> Self {
        let most = most.max(1) * PACKET;
        Self { congestion, size: most, most, alpha: WHOLE, answered: 0, marked: 0, end: 0, halved_until: 0 }
    }

    /// Packets that may be under way, at least 1.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.size / PACKET
    }

    /// A packet was answered; `first` is the first that is not, `next` the first that was not sent.
    #[inline]
    pub(super) fn answered(&mut self, marked: bool, first: u32, next: u32) {
        if self.congestion == Congestion::None {
            return;
        }
        self.answered += 1;
        self.marked += u32::from(marked);
        self.size = (self.size + PACKET * PACKET / self.size).min(self.most);
        if first > self.end {
            self.end_window(next);
        }
    }

    fn end_window(&mut self, next: u32) {
        let fraction = self.marked * WHOLE / self.answered.max(1);
        self.alpha = self.alpha - self.alpha / WEIGHT + fraction / WEIGHT;
        if self.marked > 0 {
            let less = (u64::from(self.size) * u64::from(self.alpha) / u64::from(2 * WHOLE)) as u32;
            self.size = (self.size - less).max(PACKET);
        }
        (self.answered, self.marked, self.end) = (0, 0, next);
    }

    /// A packet was lost, `first` or one after it; those of one window count once (RFC 8257 section 3.5).
    pub(super) fn lost(&mut self, first: u32, next: u32) {
        if self.congestion == Congestion::Dctcp && first >= self.halved_until {
            self.size = (self.size / 2).max(PACKET);
            self.halved_until = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(window: &mut Window, count: u32, is_marked: impl Fn(u32) -> bool) {
        let mut sequence = window.end;
        for _ in 0..count {
            let packets = window.packets();
            for _ in 0..packets {
                window.answered(is_marked(sequence), sequence + 1, sequence + packets);
                sequence += 1;
            }
        }
    }

    #[test]
    fn a_fixed_window_stays() {
        let mut window = Window::new(7, Congestion::None);
        windows(&mut window, 5, |_| true);
        window.lost(9, 20);
        assert_eq!(window.packets(), 7);
    }

    #[test]
    fn the_more_is_marked_the_smaller_the_window() {
        let sizes = [2, 8, 32].map(|nth| {
            let mut window = Window::new(100, Congestion::Dctcp);
            windows(&mut window, 60, |sequence| sequence % nth == 0);
            window.packets()
        });
        assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2] && sizes[2] < 100, "{sizes:?}");
        let mut window = Window::new(100, Congestion::Dctcp);
        windows(&mut window, 200, |_| true);
        assert!(window.packets() <= 2, "all marked: {} packets", window.packets());
        windows(&mut window, 200, |_| false);
        assert_eq!(window.packets(), 100, "none marked: as much as possible");
    }

    #[test]
    fn the_losses_of_a_window_halve_it_once_down_to_a_packet() {
        let mut window = Window::new(6, Congestion::Dctcp);
        let sizes = [(0, 6), (5, 8), (6, 8), (8, 9)].map(|(first, next)| {
            window.lost(first, next);
            window.packets()
        });
        assert_eq!(sizes, [3, 3, 1, 1]);
    }
}
