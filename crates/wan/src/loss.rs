//! Packet loss models.

use std::fmt;
use std::str::FromStr;

use crate::{ParseError, Probability};

/// A packet loss model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Independent losses: `1%`.
    Independent(Probability),
    /// Bursts: `gilbert:P,R[,LOSS_GOOD,LOSS_BAD]`.
    GilbertElliott(GilbertElliott),
    /// The listed packets: `packets:3,7,10-12`.
    Packets(PacketList),
}

/// A two-state channel (Gilbert 1960, Elliott 1963) that starts in the good state. Each packet first may
/// change the state, then may be lost. In the long run the share `p / (p + r)` of packets meets the bad
/// state, in runs of `1 / r` packets on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilbertElliott {
    /// Transition probability from good to bad.
    pub p: Probability,
    /// Transition probability from bad to good.
    pub r: Probability,
    /// Loss probability in the good state; default 0 (Gilbert's model).
    pub loss_good: Probability,
    /// Loss probability in the bad state; default 1.
    pub loss_bad: Probability,
}

const ALLOWED: &str = "a probability such as 1%, gilbert:P,R or gilbert:P,R,LOSS_GOOD,LOSS_BAD with four \
                       probabilities, or packets:3,7,10-12, counted from 1";

impl FromStr for Loss {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let loss = match text.split_once(':') {
            None => text.parse().ok().map(Self::Independent),
            Some(("gilbert", parameters)) => gilbert(parameters).map(Self::GilbertElliott),
            Some(("packets", numbers)) => PacketList::parse(numbers).map(Self::Packets),
            Some(_) => None,
        };
        loss.ok_or_else(|| ParseError::new(text, "loss", ALLOWED))
    }
}

fn gilbert(text: &str) -> Option<GilbertElliott> {
    let numbers: Result<Vec<Probability>, _> = text.split(',').map(str::parse).collect();
    match *numbers.ok()? {
        [p, r] => Some(GilbertElliott { p, r, loss_good: Probability::NEVER, loss_bad: Probability::ALWAYS }),
        [p, r, loss_good, loss_bad] => Some(GilbertElliott { p, r, loss_good, loss_bad }),
        _ => None,
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Independent(probability) => probability.fmt(f),
            Self::GilbertElliott(GilbertElliott { p, r, loss_good, loss_bad }) => {
                write!(f, "gilbert:{p},{r},{loss_good},{loss_bad}")
            }
            Self::Packets(list) => write!(f, "packets:{list}"),
        }
    }
}

/// Packet numbers, counted from 1, as ascending, disjoint and non-adjacent ranges; not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketList(Box<[(u64, u64)]>);

impl PacketList {
    /// Creates a list from ranges of first and last number, in any order. `None` if there is no range, a 0,
    /// or a range that ends before it starts.
    pub fn new(runs: &[(u64, u64)]) -> Option<Self> {
        if runs.is_empty() || runs.iter().any(|(first, last)| *first == 0 || last < first) {
            return None;
        }
        let mut runs = runs.to_vec();
        runs.sort_unstable();
        runs.dedup_by(|next, previous| {
            let touches = next.0 <= previous.1.saturating_add(1);
            if touches {
                previous.1 = previous.1.max(next.1);
            }
            touches
        });
        Some(Self(runs.into()))
    }

    fn parse(text: &str) -> Option<Self> {
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        let run = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((number(first)?, number(last)?))
        };
        Self::new(&text.split(',').map(run).collect::<Option<Vec<_>>>()?)
    }

    /// Returns the first and last number of each range, ascending.
    pub fn runs(&self) -> &[(u64, u64)] {
        &self.0
    }
}

impl fmt::Display for PacketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (first, last)) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{first}")?;
            if first < last {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percent(percent: u64) -> Probability {
        format!("{percent}%").parse().unwrap()
    }

    #[test]
    fn the_three_kinds_are_read() {
        assert_eq!("1%".parse(), Ok(Loss::Independent(percent(1))));
        let gilbert = GilbertElliott {
            p: percent(1),
            r: percent(25),
            loss_good: Probability::NEVER,
            loss_bad: Probability::ALWAYS,
        };
        assert_eq!("gilbert:1%,0.25".parse(), Ok(Loss::GilbertElliott(gilbert)));
        let elliott = GilbertElliott { loss_good: percent(2), loss_bad: percent(50), ..gilbert };
        assert_eq!("gilbert:1%,25%,2%,50%".parse(), Ok(Loss::GilbertElliott(elliott)));
        let list = PacketList::new(&[(3, 3), (7, 7), (10, 12)]).unwrap();
        assert_eq!("packets:3,7,10-12".parse(), Ok(Loss::Packets(list)));
    }

    #[test]
    fn packet_lists_are_put_in_order() {
        let list = "packets:12,10-11,3,3,7-8,8-9".parse::<Loss>().unwrap();
        assert_eq!(list.to_string(), "packets:3,7-12");
    }

    #[test]
    fn other_texts_are_refused_with_the_format() {
        let texts = [
            "",
            "2",
            "-1%",
            "gilbert:",
            "gilbert:1%",
            "gilbert:1%,2%,3%",
            "gilbert:1%,101%",
            "packets:",
            "packets:0",
            "packets:5-3",
            "packets:1,,2",
            "packets:-1",
            "packets:+1",
            "packets:1-2-3",
            "burst:1%",
        ];
        for text in texts {
            let error = text.parse::<Loss>().unwrap_err().to_string();
            assert!(error.contains("gilbert:P,R"), "{error}");
        }
    }

    fn probability() -> impl Strategy<Value = Probability> {
        (0.0..=1.0f64).prop_map(|fraction| Probability::new(fraction).unwrap())
    }

    fn loss() -> impl Strategy<Value = Loss> {
        let run = (1u64..1000, 0u64..5).prop_map(|(first, more)| (first, first + more));
        prop_oneof![
            probability().prop_map(Loss::Independent),
            [probability(), probability(), probability(), probability()].prop_map(
                |[p, r, loss_good, loss_bad]| {
                    Loss::GilbertElliott(GilbertElliott { p, r, loss_good, loss_bad })
                }
            ),
            proptest::collection::vec(run, 1..10)
                .prop_map(|runs| Loss::Packets(PacketList::new(&runs).unwrap())),
        ]
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_value(loss in loss()) {
            prop_assert_eq!(loss.to_string().parse(), Ok(loss));
        }
    }
}
