//! The configuration of the bottleneck's queue: limit, AQM, ECN.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use crate::{Delay, ParseError};

/// The maximum length of a link's queue, not counting the packet in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueLimit {
    /// In packets: `100p`.
    Packets(NonZeroU32),
    /// In bytes of frames: `1000B`, `64kB`, `64KiB`.
    Bytes(NonZeroU64),
}

const BYTES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

/// 1 TiB.
const MAX_BYTES: u64 = 1 << 40;

impl Default for QueueLimit {
    /// 1000 packets, as Linux's default `txqueuelen`.
    fn default() -> Self {
        Self::Packets(NonZeroU32::MIN.saturating_add(999))
    }
}

impl QueueLimit {
    fn parse(text: &str) -> Option<Self> {
        if let Some(packets) = text.strip_suffix('p') {
            return decimal_digits(packets).and_then(|packets| packets.parse().ok()).map(Self::Packets);
        }
        let (number, scale) =
            BYTES.into_iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
        let bytes = decimal_digits(number)?.parse::<u64>().ok()?.checked_mul(scale)?;
        NonZeroU64::new(bytes).filter(|bytes| bytes.get() <= MAX_BYTES).map(Self::Bytes)
    }

    /// Returns true if a queue of this size is within the limit.
    pub(crate) fn allows(self, packets: usize, bytes: u64) -> bool {
        match self {
            Self::Packets(limit) => packets as u64 <= u64::from(limit.get()),
            Self::Bytes(limit) => bytes <= limit.get(),
        }
    }
}

/// Returns the text if it has digits only: the standard library's integer parsers accept a `+`.
fn decimal_digits(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)
}

impl FromStr for QueueLimit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let allowed = "packets, such as 100p, or bytes with B, kB, KiB, MB, MiB, GB or GiB, such as 64kB; \
                       at least 1, at most 4294967295p or 1024GiB";
        Self::parse(text).ok_or_else(|| ParseError::new(text, "length of a queue", allowed))
    }
}

impl fmt::Display for QueueLimit {
    /// Formats in the largest unit of which the limit is a multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(bytes) => {
                let fits = |(_, scale): &(&str, u64)| bytes.get().is_multiple_of(*scale);
                let (unit, scale) = BYTES.into_iter().find(fits).unwrap_or(("B", 1));
                write!(f, "{}{unit}", bytes.get() / scale)
            }
        }
    }
}

/// Active queue management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aqm {
    /// None: packets that find the queue full are dropped. `tail-drop`.
    #[default]
    TailDrop,
    /// CoDel (RFC 8289): drops while the queueing delay has exceeded a target for an interval. `codel` or
    /// `codel:TARGET,INTERVAL`.
    CoDel(CoDel),
}

/// The parameters of CoDel (RFC 8289 sections 4.2 and 4.3): 0 < `target` ≤ `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoDel {
    target: Delay,
    interval: Delay,
}

impl CoDel {
    /// Creates parameters; `None` if `target` is 0 or longer than `interval`.
    pub fn new(target: Delay, interval: Delay) -> Option<Self> {
        (target > Delay::ZERO && target <= interval).then_some(Self { target, interval })
    }

    /// Returns the acceptable standing queueing delay.
    pub const fn target(self) -> Delay {
        self.target
    }

    /// Returns how long the delay must exceed the target before the first drop: about a round-trip time.
    pub const fn interval(self) -> Delay {
        self.interval
    }
}

impl Default for CoDel {
    /// 5 ms and 100 ms (RFC 8289 sections 4.2 and 4.3).
    fn default() -> Self {
        let ms = |millis| Delay::new(Duration::from_millis(millis)).unwrap_or_default();
        Self { target: ms(5), interval: ms(100) }
    }
}

impl Aqm {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "tail-drop" => Some(Self::TailDrop),
            "codel" => Some(Self::CoDel(CoDel::default())),
            _ => {
                let (target, interval) = text.strip_prefix("codel:")?.split_once(',')?;
                CoDel::new(target.parse().ok()?, interval.parse().ok()?).map(Self::CoDel)
            }
        }
    }
}

impl FromStr for Aqm {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let allowed = "tail-drop, codel, or codel:TARGET,INTERVAL such as codel:5ms,100ms, where the target is \
                       more than 0 and at most the interval";
        Self::parse(text).ok_or_else(|| ParseError::new(text, "queue management", allowed))
    }
}

impl fmt::Display for Aqm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TailDrop => f.write_str("tail-drop"),
            Self::CoDel(CoDel { target, interval }) => write!(f, "codel:{target},{interval}"),
        }
    }
}

/// When the queue marks ECN-capable packets (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnMode {
    /// Never. `off`.
    #[default]
    Off,
    /// Where CoDel would drop. `mark`.
    Mark,
    /// Where CoDel would drop, and when a packet finds a longer queue than this, as in data centers (RFC 8257
    /// section 3.1). `mark:30p`.
    MarkAbove(QueueLimit),
}

impl FromStr for EcnMode {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mode = match text.split_once(':') {
            None if text == "off" => Some(Self::Off),
            None if text == "mark" => Some(Self::Mark),
            Some(("mark", limit)) => limit.parse().ok().map(Self::MarkAbove),
            _ => None,
        };
        let allowed = "off, mark, or mark: with the length of the queue above which packets are marked, such \
                       as mark:30p or mark:64kB";
        mode.ok_or_else(|| ParseError::new(text, "ECN mode", allowed))
    }
}

impl fmt::Display for EcnMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Mark => f.write_str("mark"),
            Self::MarkAbove(limit) => write!(f, "mark:{limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(bytes: u64) -> QueueLimit {
        QueueLimit::Bytes(bytes.try_into().unwrap())
    }

    #[test]
    fn a_queue_is_limited_in_packets_or_bytes() {
        assert_eq!("100p".parse(), Ok(QueueLimit::Packets(100.try_into().unwrap())));
        assert_eq!("1000B".parse(), Ok(bytes(1000)));
        assert_eq!("64kB".parse(), Ok(bytes(64_000)));
        assert_eq!("64KiB".parse(), Ok(bytes(65_536)));
        assert_eq!((bytes(64_000).to_string(), bytes(65_536).to_string()), ("64kB".into(), "64KiB".into()));
        assert_eq!(QueueLimit::default().to_string(), "1000p");
    }

    #[test]
    fn wrong_text_is_refused_with_the_allowed_forms() {
        for text in
            ["", "100", "0p", "0B", "-1p", "+1p", "1.5kB", "p", "B", "64KB", "1025GiB", "4294967296p", "9 p"]
        {
            let error = text.parse::<QueueLimit>().unwrap_err().to_string();
            assert!(error.contains("100p"), "{error}");
        }
        for text in
            ["", "red", "codel:", "codel:5ms", "codel:0,100ms", "codel:100ms,5ms", "codel:5ms,100ms,1ms"]
        {
            let error = text.parse::<Aqm>().unwrap_err().to_string();
            assert!(error.contains("codel:5ms,100ms"), "{error}");
        }
        for text in ["", "on", "mark:", "mark:0p", "off:1p"] {
            let error = text.parse::<EcnMode>().unwrap_err().to_string();
            assert!(error.contains("mark:30p"), "{error}");
        }
    }

    fn limit() -> impl Strategy<Value = QueueLimit> {
        prop_oneof![
            (1..=u32::MAX).prop_map(|packets| QueueLimit::Packets(packets.try_into().unwrap())),
            (1..=MAX_BYTES).prop_map(bytes),
            (1..=1024u64, 0..4u32).prop_map(|(number, power)| bytes(number << (10 * power))),
        ]
    }

    fn aqm() -> impl Strategy<Value = Aqm> {
        let codel = (1..1_000_000_000u64, 0..1_000_000_000u64).prop_map(|(target, more)| {
            let delay = |nanos| Delay::new(Duration::from_nanos(nanos)).unwrap();
            Aqm::CoDel(CoDel::new(delay(target), delay(target + more)).unwrap())
        });
        prop_oneof![Just(Aqm::TailDrop), Just(Aqm::CoDel(CoDel::default())), codel]
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(limit in limit(), aqm in aqm()) {
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
            prop_assert_eq!(aqm.to_string().parse(), Ok(aqm));
            for ecn in [EcnMode::Off, EcnMode::Mark, EcnMode::MarkAbove(limit)] {
                prop_assert_eq!(ecn.to_string().parse(), Ok(ecn));
            }
        }
    }
}
