//! The configuration of a path.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{Aqm, Bandwidth, Delay, EcnMode, Jitter, JitterOrder, Loss, ParseError, Probability};
use crate::{QueueLimit, Reorder, Trace};

/// The impairments of one direction of a path. The default has no delay, no loss, and no limit but
/// [`Limit::default`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairments {
    /// The propagation delay of each packet.
    pub delay: Delay,
    /// The variation of the delay.
    pub jitter: Option<Jitter>,
    /// Whether jitter may reorder packets.
    pub jitter_order: JitterOrder,
    /// Packet loss.
    pub loss: Option<Loss>,
    /// The probability that a packet is followed by a copy.
    pub duplicate: Probability,
    /// The probability that one bit behind the link header is flipped.
    pub corrupt: Probability,
    /// Reordering by holding packets back.
    pub reorder: Option<Reorder>,
    /// The bottleneck's rate; link headers count.
    pub rate: Option<Bandwidth>,
    /// The bottleneck's rate as a recorded trace; excludes `rate`.
    pub trace: Option<Trace>,
    /// The bottleneck's queue limit. Without a bottleneck, `queue`, `aqm` and `ecn` have no effect.
    pub queue: QueueLimit,
    /// Active queue management of the bottleneck's queue.
    pub aqm: Aqm,
    /// ECN marking by the bottleneck's queue.
    pub ecn: EcnMode,
    /// The maximum packet length behind the link header, in bytes. Longer IPv4 packets without DF are
    /// fragmented, others dropped; IPv6 packets of up to 1,280 bytes always pass (RFC 8200 section 5).
    pub mtu: Option<Mtu>,
    /// The maximum number of packets in flight.
    pub limit: Limit,
    /// The order of the impairments.
    pub order: Order,
}

impl Impairments {
    /// Checks the fields against each other.
    ///
    /// # Errors
    /// Two fields contradict each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.rate.is_some() && self.trace.is_some() {
            return Err(ConfigError::RateAndTrace);
        }
        let has_bottleneck = self.rate.is_some() || self.trace.is_some();
        if has_bottleneck && self.aqm == Aqm::TailDrop && self.ecn == EcnMode::Mark {
            return Err(ConfigError::MarkWithoutCoDel);
        }
        match Stage::ALL.into_iter().find(|stage| self.uses(*stage) && !self.order.names(*stage)) {
            Some(stage) => Err(ConfigError::OrderLeavesOut(stage)),
            None => Ok(()),
        }
    }

    fn uses(&self, stage: Stage) -> bool {
        match stage {
            Stage::Mtu => self.mtu.is_some(),
            Stage::Loss => self.loss.is_some(),
            Stage::Corrupt => self.corrupt > Probability::NEVER,
            Stage::Duplicate => self.duplicate > Probability::NEVER,
            Stage::Bottleneck => self.rate.is_some() || self.trace.is_some(),
            Stage::Delay => self.delay > Delay::ZERO || self.jitter.is_some(),
            Stage::Reorder => self.reorder.is_some(),
        }
    }
}

/// A contradiction between fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A rate and a trace are both set.
    #[error("rate and trace are both given: a path has one bottleneck, so one of them must be none")]
    RateAndTrace,
    /// ECN marking is on, but nothing triggers a mark.
    #[error("ecn is mark, but the queue is tail-drop: use codel, or a length such as mark:30p")]
    MarkWithoutCoDel,
    /// An impairment is set but missing in the order.
    #[error("order does not contain {0}, which is configured: add it")]
    OrderLeavesOut(Stage),
}

/// The impairments that an [`Order`] arranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Fragments or drops packets longer than the MTU.
    Mtu,
    /// Drops lost packets.
    Loss,
    /// Flips bits.
    Corrupt,
    /// Copies packets.
    Duplicate,
    /// The rate limit with its queue.
    Bottleneck,
    /// Delay and jitter.
    Delay,
    /// Holds packets back.
    Reorder,
}

impl Stage {
    /// All stages in the default order.
    pub const ALL: [Self; 7] =
        [Self::Mtu, Self::Loss, Self::Corrupt, Self::Duplicate, Self::Bottleneck, Self::Delay, Self::Reorder];

    /// Returns the name in an [`Order`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mtu => "mtu",
            Self::Loss => "loss",
            Self::Corrupt => "corrupt",
            Self::Duplicate => "duplicate",
            Self::Bottleneck => "rate",
            Self::Delay => "delay",
            Self::Reorder => "reorder",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The order in which packets pass the impairments, each at most once: `loss,rate,delay`. All impairments
/// that are set must be named.
///
/// The default is `mtu,loss,corrupt,duplicate,rate,delay,reorder`. The MTU applies at the entry of the path.
/// Loss, corruption and duplication precede the bottleneck, so that their rates refer to sent packets
/// regardless of queue drops. The bottleneck precedes the propagation delay, as the queue of a real access
/// link does: packets queue before they travel, and the receiver sees their spacing. Reordering is last: a
/// later stage that keeps order would delay the other packets along with those held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order(Vec<Stage>);

impl Order {
    /// Creates an order; `None` if a stage is repeated.
    pub fn new(stages: &[Stage]) -> Option<Self> {
        let is_new = |(at, stage): (usize, &Stage)| !stages[..at].contains(stage);
        stages.iter().enumerate().all(is_new).then(|| Self(stages.to_vec()))
    }

    /// Returns the named stages in order.
    pub fn stages(&self) -> &[Stage] {
        &self.0
    }

    fn names(&self, stage: Stage) -> bool {
        self.0.contains(&stage)
    }

    /// Returns the position of `stage`. Unnamed stages come last and do nothing.
    pub(crate) fn place(&self, stage: Stage) -> usize {
        let of = |stages: &[Stage]| stages.iter().position(|other| *other == stage);
        of(&self.0).or_else(|| Some(Stage::ALL.len() + of(&Stage::ALL)?)).unwrap_or(usize::MAX)
    }
}

impl Default for Order {
    fn default() -> Self {
        Self(Stage::ALL.to_vec())
    }
}

impl FromStr for Order {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let stage = |name: &str| Stage::ALL.into_iter().find(|stage| stage.name() == name);
        let stages: Option<Vec<_>> = text.split(',').map(stage).collect();
        let allowed = "some of mtu, loss, corrupt, duplicate, rate, delay and reorder, each at most once, with \
                       commas between them";
        stages.and_then(|stages| Self::new(&stages)).ok_or_else(|| ParseError::new(text, "order", allowed))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|stage| stage.name()).collect::<Vec<_>>().join(","))
    }
}

/// The maximum packet length without the link header, in bytes: 68 (RFC 791 section 3.2) to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u16);

impl Mtu {
    /// Creates an MTU; `None` below 68.
    pub const fn new(bytes: u16) -> Option<Self> {
        if bytes < 68 { None } else { Some(Self(bytes)) }
    }

    /// Returns bytes.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl FromStr for Mtu {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bytes = text.parse().ok().filter(|_| !text.starts_with('+'));
        let allowed = "68 to 65535 bytes, such as 1500";
        bytes.and_then(Self::new).ok_or_else(|| ParseError::new(text, "MTU", allowed))
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The maximum number of packets in flight: 1 to 16,777,216. Bounds the memory of a path: about 100 bytes
/// plus the packet for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u32);

impl Limit {
    /// The maximum.
    pub const MAX: Self = Self(1 << 24);

    /// Creates a limit; `None` outside 1 to [`Limit::MAX`].
    pub const fn new(packets: u32) -> Option<Self> {
        if packets == 0 || packets > Self::MAX.0 { None } else { Some(Self(packets)) }
    }

    /// Returns the number of packets.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Limit {
    /// 1,048,576: more than one second of full-sized frames at 10 Gbit/s.
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl FromStr for Limit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let packets = text.parse().ok().filter(|_| !text.starts_with('+'));
        let allowed = "1 to 16777216";
        packets.and_then(Self::new).ok_or_else(|| ParseError::new(text, "number of packets", allowed))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_default_does_nothing_and_is_valid() {
        let nothing = Impairments::default();
        assert_eq!(nothing.validate(), Ok(()));
        assert!(Stage::ALL.into_iter().all(|stage| !nothing.uses(stage)));
        assert_eq!(nothing.order.to_string(), "mtu,loss,corrupt,duplicate,rate,delay,reorder");
    }

    #[test]
    fn contradictions_are_named() {
        let rate = Impairments { rate: "1mbit".parse().ok(), ..Impairments::default() };
        assert_eq!(rate.validate(), Ok(()));
        let both = Impairments { trace: "1".parse().ok(), ..rate.clone() };
        assert_eq!(both.validate(), Err(ConfigError::RateAndTrace));
        let mark = Impairments { ecn: EcnMode::Mark, ..rate.clone() };
        assert_eq!(mark.validate(), Err(ConfigError::MarkWithoutCoDel));
        let above = Impairments { ecn: "mark:30p".parse().unwrap(), ..rate.clone() };
        assert_eq!(above.validate(), Ok(()));
        let order = Impairments { order: "loss,delay".parse().unwrap(), ..rate };
        let error = order.validate().unwrap_err();
        assert_eq!(error.to_string(), "order does not contain rate, which is configured: add it");
    }

    #[test]
    fn an_order_names_each_stage_once() {
        assert_eq!("rate,loss".parse().ok(), Order::new(&[Stage::Bottleneck, Stage::Loss]));
        for text in ["", "loss,loss", "loss,", "jitter", "loss, rate"] {
            let error = text.parse::<Order>().unwrap_err().to_string();
            assert!(error.contains("mtu, loss"), "{error}");
        }
    }

    #[test]
    fn stages_missing_from_an_order_come_last() {
        let order: Order = "rate,loss".parse().unwrap();
        let mut stages = Stage::ALL;
        stages.sort_by_key(|stage| order.place(*stage));
        assert_eq!(
            stages.map(Stage::name),
            ["rate", "loss", "mtu", "corrupt", "duplicate", "delay", "reorder"]
        );
    }

    #[test]
    fn numbers_are_within_their_range() {
        for text in ["", "67", "65536", "-1", "+1500", "1500B"] {
            assert!(text.parse::<Mtu>().unwrap_err().to_string().contains("expected 68 to 65535"), "{text}");
        }
        for text in ["", "0", "16777217", "-1", "+5", "1p"] {
            assert!(text.parse::<Limit>().unwrap_err().to_string().contains("1 to 16777216"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(
            stages in Just(Stage::ALL.to_vec()).prop_shuffle(),
            named in 1..=7usize,
            mtu in 68..=u16::MAX,
            limit in 1..=1u32 << 24,
        ) {
            let order = Order::new(&stages[..named]).unwrap();
            prop_assert_eq!(order.to_string().parse(), Ok(order));
            prop_assert_eq!(mtu.to_string().parse(), Ok(Mtu::new(mtu).unwrap()));
            prop_assert_eq!(limit.to_string().parse(), Ok(Limit::new(limit).unwrap()));
        }
    }

    #[test]
    fn each_configured_stage_must_be_in_the_order() {
        let none = Impairments::default;
        let half = "50%".parse().unwrap();
        let cases = [
            (Stage::Mtu, Impairments { mtu: "1500".parse().ok(), ..none() }),
            (Stage::Loss, Impairments { loss: "1%".parse().ok(), ..none() }),
            (Stage::Corrupt, Impairments { corrupt: half, ..none() }),
            (Stage::Duplicate, Impairments { duplicate: half, ..none() }),
            (Stage::Bottleneck, Impairments { rate: "1mbit".parse().ok(), ..none() }),
            (Stage::Bottleneck, Impairments { trace: "1".parse().ok(), ..none() }),
            (Stage::Delay, Impairments { delay: "1ms".parse().unwrap(), ..none() }),
            (Stage::Delay, Impairments { jitter: "1ms".parse().ok(), ..none() }),
        ];
        for (stage, impairments) in cases {
            let others: Vec<Stage> = Stage::ALL.into_iter().filter(|other| *other != stage).collect();
            let order = Order::new(&others).unwrap();
            let refused = Impairments { order, ..impairments }.validate();
            assert_eq!(refused, Err(ConfigError::OrderLeavesOut(stage)));
        }
    }
}
