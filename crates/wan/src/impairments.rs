//! What a path does to its packets.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{Aqm, Bandwidth, Delay, EcnMode, Jitter, JitterOrder, Loss, ParseError, Probability};
use crate::{QueueLimit, Reorder, Trace};

/// What one direction of a path does to its packets. The default is nothing at all: no delay, no limit but
/// [`Limit::default`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairments {
    /// How long each packet takes, by itself.
    pub delay: Delay,
    /// By how much that varies.
    pub jitter: Option<Jitter>,
    /// Whether jitter may change the order of packets.
    pub jitter_order: JitterOrder,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// How likely a packet is followed by a copy of itself.
    pub duplicate: Probability,
    /// How likely one bit of a packet, behind its link header, is flipped.
    pub corrupt: Probability,
    /// Which packets are held back.
    pub reorder: Option<Reorder>,
    /// The bottleneck's rate, in bits of frames: link headers count.
    pub rate: Option<Bandwidth>,
    /// The bottleneck's rate where it varies; not together with `rate`.
    pub trace: Option<Trace>,
    /// How much may wait for the bottleneck; without one it means nothing, nor do `aqm` and `ecn`.
    pub queue: QueueLimit,
    /// How the bottleneck's queue keeps itself short.
    pub aqm: Aqm,
    /// When the bottleneck's queue marks packets.
    pub ecn: EcnMode,
    /// The longest packet that gets through, in bytes behind its link header; of IPv6, 1,280 bytes always do (RFC 8200
    /// section 5). IPv4 packets without DF are cut to fragments of that length.
    pub mtu: Option<Mtu>,
    /// How many packets may be on their way at once.
    pub limit: Limit,
    /// Which impairment comes first.
    pub order: Order,
}

impl Impairments {
    /// Checks what no field can check by itself.
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

/// Fields that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Both a rate and a trace.
    #[error("rate and trace are both given: a path has one bottleneck, so one of them must be none")]
    RateAndTrace,
    /// Nothing would be marked.
    #[error("ecn is mark, but the queue drops at its tail only: use codel, or a length such as mark:30p")]
    MarkWithoutCoDel,
    /// An impairment is asked for that is not in the order.
    #[error("order leaves out {0}, which is asked for: name it")]
    OrderLeavesOut(Stage),
}

/// The impairments that have a place in the [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// What is too long is cut to fragments or dropped.
    Mtu,
    /// What is lost is dropped.
    Loss,
    /// Bits are flipped.
    Corrupt,
    /// Copies are made.
    Duplicate,
    /// The rate limit with its queue.
    Bottleneck,
    /// Delay and jitter.
    Delay,
    /// Packets are held back.
    Reorder,
}

impl Stage {
    /// Every stage, in the default order.
    pub const ALL: [Self; 7] =
        [Self::Mtu, Self::Loss, Self::Corrupt, Self::Duplicate, Self::Bottleneck, Self::Delay, Self::Reorder];

    /// The name in an [`Order`].
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

/// In which order a packet meets the impairments, each at most once: `loss,rate,delay`. All that are asked for must
/// be named.
///
/// The default is `mtu,loss,corrupt,duplicate,rate,delay,reorder`. What cannot enter the path comes first. Loss,
/// corruption and duplication come before the bottleneck, so that their shares are of what was sent, whatever the
/// queue does. The bottleneck comes before the propagation delay, as the queue of a real access link does: what waits
/// in it waits before it travels, and its spacing is what the receiver sees. Reordering is last, because a delay that
/// keeps order would otherwise be held up by what was held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order(Vec<Stage>);

impl Order {
    /// This order; `None` where a stage is named twice.
    pub fn new(stages: &[Stage]) -> Option<Self> {
        let is_new = |(at, stage): (usize, &Stage)| !stages[..at].contains(stage);
        stages.iter().enumerate().all(is_new).then(|| Self(stages.to_vec()))
    }

    /// The stages that are named, the first first.
    pub fn stages(&self) -> &[Stage] {
        &self.0
    }

    fn names(&self, stage: Stage) -> bool {
        self.0.contains(&stage)
    }

    /// Where a packet meets `stage`; what is not named comes last, and does nothing.
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
        let allowed = "it is some of mtu, loss, corrupt, duplicate, rate, delay and reorder, each at most once, with \
                       commas between them";
        stages.and_then(|stages| Self::new(&stages)).ok_or_else(|| ParseError::new(text, "order", allowed))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|stage| stage.name()).collect::<Vec<_>>().join(","))
    }
}

/// Bytes of the longest packet, its link header not counted: 68 (RFC 791 section 3.2) to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u16);

impl Mtu {
    /// An MTU; `None` where it is less than 68.
    pub const fn new(bytes: u16) -> Option<Self> {
        if bytes < 68 { None } else { Some(Self(bytes)) }
    }

    /// Bytes.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl FromStr for Mtu {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bytes = text.parse().ok().filter(|_| !text.starts_with('+'));
        let allowed = "it is from 68 to 65535 bytes, such as 1500";
        bytes.and_then(Self::new).ok_or_else(|| ParseError::new(text, "MTU", allowed))
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many packets may be on their way at once: 1 to 16,777,216. It bounds the memory of a path, which is about
/// 100 bytes and the packet itself for each that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u32);

impl Limit {
    /// The most.
    pub const MAX: Self = Self(1 << 24);

    /// A limit; `None` where it is not from 1 to [`Limit::MAX`].
    pub const fn new(packets: u32) -> Option<Self> {
        if packets == 0 || packets > Self::MAX.0 { None } else { Some(Self(packets)) }
    }

    /// Packets.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Limit {
    /// 1,048,576: 10 Gbit/s of full-sized frames for more than a second.
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl FromStr for Limit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let packets = text.parse().ok().filter(|_| !text.starts_with('+'));
        let allowed = "it is from 1 to 16777216";
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
        assert_eq!(error.to_string(), "order leaves out rate, which is asked for: name it");
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
    fn what_an_order_leaves_out_comes_last() {
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
            assert!(text.parse::<Mtu>().unwrap_err().to_string().contains("from 68 to 65535"), "{text}");
        }
        for text in ["", "0", "16777217", "-1", "+5", "1p"] {
            assert!(text.parse::<Limit>().unwrap_err().to_string().contains("from 1 to 16777216"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_as_the_same(
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
}
