//! What a router does where a path narrows: senders are told how long their packets may be (RFC 1191, RFC 8201). The
//! answer comes at once, as from a router at the beginning of the path, whatever is asked of the way back.
//!
//! IPv4 packets without DF are not answered: the path cuts them to fragments (RFC 791 section 2.3).

use nichrome_wan::Mtu;
use nichrome_wire::{Instant, packet_too_big};

/// Nanoseconds between answers, on average, and how many may come at once: Linux's `icmp_msgs_per_sec` and
/// `icmp_msgs_burst`.
const INTERVAL: u64 = 1_000_000;
const BURST: u64 = 50;

/// Answers packets that are too long.
pub(super) struct TooBig {
    mtu: Option<Mtu>,
    /// When all of a burst may be sent again; never more than that ahead of the time (a token bucket, as a time).
    full_at: Instant,
}

impl TooBig {
    /// For a path on which packets may be as long as `mtu`.
    pub(super) const fn new(mtu: Option<Mtu>) -> Self {
        Self { mtu, full_at: Instant::ZERO }
    }

    /// From now on, they may be as long as `mtu`.
    pub(super) const fn set_mtu(&mut self, mtu: Option<Mtu>) {
        self.mtu = mtu;
    }

    /// The frame that tells the sender of `frame`; `None` where it is not to be told, or there were too many.
    pub(super) fn answer(&mut self, frame: &[u8], now: Instant) -> Option<Vec<u8>> {
        let full_at = self.full_at.max(now).plus_nanos(INTERVAL);
        if full_at.nanos_since(now) > BURST * INTERVAL {
            return None;
        }
        let answer = packet_too_big(frame, self.mtu?.get())?;
        self.full_at = full_at;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;

    fn answered(too_big: &mut TooBig, frames: usize, now: u64) -> usize {
        let frame = TcpFrame { payload: vec![0; 1460], ..TcpFrame::default() }.build();
        (0..frames).filter(|_| too_big.answer(&frame, Instant::from_nanos(now)).is_some()).count()
    }

    #[test]
    fn answers_are_bounded_and_go_on() {
        let mut too_big = TooBig::new(Mtu::new(1400));
        assert_eq!(answered(&mut too_big, 100, 0), 50);
        assert_eq!(answered(&mut too_big, 100, 10 * INTERVAL), 10);
        assert_eq!(answered(&mut too_big, 100, 1000 * INTERVAL), 50);
    }

    #[test]
    fn without_an_mtu_nobody_is_told() {
        let mut too_big = TooBig::new(None);
        assert_eq!(answered(&mut too_big, 1, 0), 0);
        too_big.set_mtu(Mtu::new(1500));
        assert_eq!(answered(&mut too_big, 1, 0), 0);
        too_big.set_mtu(Mtu::new(1499));
        assert_eq!(answered(&mut too_big, 1, 0), 1);
    }
}
