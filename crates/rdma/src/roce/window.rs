//! How many packets a requester has outstanding.

use nichrome_wire::rdma::Psn;

use crate::config::SendWindow;

/// A congestion window in packets: doubles per round trip at first, then grows by one per round trip; loss halves it
/// (RFC 5681 section 3.1, counted in packets). It needs nothing of the peer.
#[derive(Clone, Debug)]
pub(crate) struct CongestionWindow {
    size: u32,
    threshold: u32,
    /// Acknowledged since the size last grew, above the threshold.
    credit: u32,
    /// The window was made smaller for something before this: news of more of it do not count.
    reacted: Option<Psn>,
}

/// Loss does not take the window below this.
const FLOOR: u32 = 2;

impl CongestionWindow {
    pub(crate) fn new(config: &SendWindow) -> Self {
        Self { size: config.initial, threshold: config.max, credit: 0, reacted: None }
    }

    /// Packets that may be outstanding.
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// So many packets were acknowledged.
    #[inline]
    pub(crate) fn acknowledged(&mut self, packets: u32, config: &SendWindow) {
        if self.size >= config.max {
            return;
        }
        if self.size < self.threshold {
            self.size = (self.size + packets).min(self.threshold).min(config.max);
            return;
        }
        self.credit += packets;
        if self.credit >= self.size {
            self.credit -= self.size;
            self.size += 1;
        }
    }

    /// The packet `psn` was lost or marked, and the peer said so, when `next` was to be sent next.
    pub(crate) fn lost(&mut self, psn: Psn, next: Psn) {
        if self.reacted.is_some_and(|reacted| psn.before(reacted)) {
            return;
        }
        self.reacted = Some(next);
        self.threshold = (self.size / 2).max(FLOOR);
        (self.size, self.credit) = (self.threshold, 0);
    }

    /// No answer came at all.
    pub(crate) fn timed_out(&mut self) {
        self.threshold = (self.size / 2).max(FLOOR);
        (self.size, self.credit, self.reacted) = (FLOOR, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_fast_then_slowly_and_halves_on_loss() {
        let config = SendWindow { initial: 8, max: 64, read: 8 };
        let mut window = CongestionWindow::new(&config);
        window.acknowledged(8, &config);
        assert_eq!(window.size(), 16);
        window.lost(Psn::new(5), Psn::new(20));
        window.lost(Psn::new(19), Psn::new(30));
        assert_eq!(window.size(), 8, "one loss or several within a window are one");
        window.acknowledged(7, &config);
        assert_eq!(window.size(), 8);
        window.acknowledged(1, &config);
        assert_eq!(window.size(), 9);
        window.timed_out();
        assert_eq!(window.size(), FLOOR);
        (0..10_000).for_each(|_| window.acknowledged(1, &config));
        assert_eq!(window.size(), 64);
    }
}
