//! ICMP errors that report the path MTU to senders of longer packets (RFC 1191, RFC 8201).
//!
//! IPv4 packets without DF get no error: the path fragments them (RFC 791 section 2.3).

use nichrome_wire::{Instant, packet_too_big};

use crate::Mtu;

/// Mean nanoseconds between errors, and the maximum burst: Linux's `icmp_msgs_per_sec` and `icmp_msgs_burst`.
const INTERVAL: u64 = 1_000_000;
const BURST: u64 = 50;

/// Generates rate-limited ICMP errors for packets that exceed the MTU.
#[derive(Debug)]
pub struct TooBig {
    mtu: Option<Mtu>,
    /// When the token bucket is full again; a token bucket expressed as a time.
    full_at: Instant,
}

impl TooBig {
    /// Creates a generator for a path MTU.
    pub const fn new(mtu: Option<Mtu>) -> Self {
        Self { mtu, full_at: Instant::ZERO }
    }

    /// Changes the path MTU.
    pub const fn set_mtu(&mut self, mtu: Option<Mtu>) {
        self.mtu = mtu;
    }

    /// Returns the ICMP error for `frame`; `None` if none may be sent, or because of the rate limit.
    pub fn answer(&mut self, frame: &[u8], now: Instant) -> Option<Vec<u8>> {
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
    fn without_an_mtu_no_error_is_sent() {
        let mut too_big = TooBig::new(None);
        assert_eq!(answered(&mut too_big, 1, 0), 0);
        too_big.set_mtu(Mtu::new(1500));
        assert_eq!(answered(&mut too_big, 1, 0), 0);
        too_big.set_mtu(Mtu::new(1499));
        assert_eq!(answered(&mut too_big, 1, 0), 1);
    }
}
