//! Acknowledgements (IBA 9.7.5.2).

use super::number::Msn;

/// An acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Number of requests completed by the responder.
    pub msn: Msn,
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Decodes the header; `None` if the syndrome is reserved.
    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let msn = Msn::new(u32::from_be_bytes(bytes));
        Some(Self { syndrome: Syndrome::from_code(bytes[0])?, msn })
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = self.msn.value().to_be_bytes();
        bytes[0] = self.syndrome.code();
        bytes
    }
}

/// The responder's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// ACK: all packets up to this one were received.
    Ack(Credit),
    /// RNR NAK: receiver not ready; the requester retries after the timer.
    RnrNak(RnrTimer),
    /// NAK: the request failed.
    Nak(NakCode),
}

impl Syndrome {
    const RNR_NAK: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// Decodes the syndrome; `None` if reserved. Ignores the top bit.
    #[inline]
    const fn from_code(code: u8) -> Option<Self> {
        let value = code & 0x1F;
        match code & 0x60 {
            0 => Some(Self::Ack(Credit(value))),
            Self::RNR_NAK => Some(Self::RnrNak(RnrTimer(value))),
            Self::NAK => match NakCode::from_code(value) {
                Some(nak) => Some(Self::Nak(nak)),
                None => None,
            },
            _ => None,
        }
    }

    #[inline]
    const fn code(self) -> u8 {
        match self {
            Self::Ack(credit) => credit.0,
            Self::RnrNak(timer) => Self::RNR_NAK | timer.0,
            Self::Nak(nak) => Self::NAK | nak as u8,
        }
    }
}

/// The reason of a NAK (IBA table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A packet before this one is missing.
    PsnSequence = 0,
    /// The request is malformed or not supported.
    InvalidRequest = 1,
    /// Wrong key, bounds or rights of the memory.
    RemoteAccess = 2,
    /// The responder failed locally.
    RemoteOperation = 3,
    /// For reliable datagrams only.
    InvalidRdRequest = 4,
}

impl NakCode {
    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::PsnSequence),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccess),
            3 => Some(Self::RemoteOperation),
            4 => Some(Self::InvalidRdRequest),
            _ => None,
        }
    }
}

/// Returns 1, 2, 3, 4, 6, 8, 12, 16, …: powers of two and the midpoints between them, from code 1 on.
const fn doubling_every_other(code: u8) -> u32 {
    match code {
        0 | 1 => code as u32,
        code if code.is_multiple_of(2) => 1 << (code / 2),
        code => 3 << (code / 2 - 1),
    }
}

/// Number of posted receives: an end-to-end flow control credit (IBA 9.7.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credit(u8);

impl Credit {
    /// No flow control: the value that Linux sends, and that queue pairs with a shared receive queue send.
    pub const UNLIMITED: Self = Self(31);

    const MAX_CODE: u8 = 30;

    /// Returns the largest credit of at most `receives`, up to 32,768.
    pub fn for_receives(receives: u32) -> Self {
        let code = (0..=Self::MAX_CODE).rev().find(|&code| doubling_every_other(code) <= receives);
        Self(code.unwrap_or(0))
    }

    /// Returns the number of posted receives; `None` without flow control.
    pub const fn receives(self) -> Option<u32> {
        if self.0 > Self::MAX_CODE { None } else { Some(doubling_every_other(self.0)) }
    }
}

/// The minimum delay before retrying after an RNR NAK (IBA table 45).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Creates a timer from its code; `None` from 32 on.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Returns the code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the delay in nanoseconds: 10 µs for code 1, 491.52 ms for 31, 655.36 ms for 0.
    pub const fn nanos(self) -> u64 {
        let units = if self.0 == 0 { 65_536 } else { doubling_every_other(self.0) };
        units as u64 * 10_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_the_standard() {
        let micros = |code| RnrTimer::new(code).unwrap().nanos() / 1000;
        let first: Vec<u64> = (0..8).map(micros).collect();
        assert_eq!(first, [655_360, 10, 20, 30, 40, 60, 80, 120]);
        assert_eq!((micros(12), micros(25), micros(30), micros(31)), (640, 61_440, 327_680, 491_520));
        assert_eq!(RnrTimer::new(32), None);
    }

    #[test]
    fn credits_are_those_of_the_standard() {
        let credits: Vec<_> = (0..=31).map(|code| Credit(code).receives()).collect();
        assert_eq!(credits[..9], [0, 1, 2, 3, 4, 6, 8, 12, 16].map(Some));
        assert_eq!(credits[29..], [Some(24_576), Some(32_768), None]);
        for (receives, credit) in [(0, 0), (5, 4), (11, 8), (12, 12), (u32::MAX, 32_768)] {
            assert_eq!(Credit::for_receives(receives).receives(), Some(credit));
        }
    }

    #[test]
    fn every_syndrome_is_read_back_and_reserved_ones_are_refused() {
        for code in 0..=0x7F {
            match Syndrome::from_code(code) {
                Some(syndrome) => assert_eq!(syndrome.code(), code),
                None => assert!((0x40..0x60).contains(&code) || code > 0x64),
            }
        }
        assert_eq!(Syndrome::from_code(0x60), Some(Syndrome::Nak(NakCode::PsnSequence)));
        assert_eq!(Syndrome::from_code(0x9F), Some(Syndrome::Ack(Credit::UNLIMITED)));
    }

    #[test]
    fn an_rnr_timer_keeps_its_code() {
        assert!((0..32).all(|code| RnrTimer::new(code).map(RnrTimer::code) == Some(code)));
        assert_eq!(RnrTimer::new(32), None);
    }
}
