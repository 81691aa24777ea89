//! Drops packets by a loss model.

use nichrome_wire::Instant;

use super::impair::{Impair, Passage};
use crate::exits::{Exits, Transit};
use crate::random::{Chance, Random};
use crate::{DropReason, GilbertElliott, Impairments, Loss, Packet, PacketList};

pub(super) struct LossStage {
    loss: Option<Loss>,
    model: Model,
    random: Random,
}

/// The state of a loss model.
enum Model {
    None,
    Independent(Chance),
    GilbertElliott(Channel),
    Packets(Countdown),
}

impl LossStage {
    pub(super) fn new(random: Random) -> Self {
        Self { loss: None, model: Model::None, random }
    }

    fn loses(&mut self) -> bool {
        match &mut self.model {
            Model::None => false,
            Model::Independent(chance) => self.random.happens(*chance),
            Model::GilbertElliott(channel) => channel.loses(&mut self.random),
            Model::Packets(countdown) => countdown.loses(),
        }
    }
}

impl<P: Packet> Impair<P> for LossStage {
    fn configure(&mut self, impairments: &Impairments, _: Instant) {
        if self.loss == impairments.loss {
            return;
        }
        self.loss.clone_from(&impairments.loss);
        self.model = match &self.loss {
            None => Model::None,
            Some(Loss::Independent(probability)) => Model::Independent((*probability).into()),
            Some(Loss::GilbertElliott(parameters)) => Model::GilbertElliott(Channel::new(parameters)),
            Some(Loss::Packets(list)) => Model::Packets(Countdown::new(list)),
        };
    }

    fn is_idle(&self) -> bool {
        self.loss.is_none()
    }

    fn enter(&mut self, transit: Transit<P>, _: Instant, exits: &mut Exits<P>) -> Passage<P> {
        if self.loses() {
            exits.drop(transit, DropReason::Loss);
            return Passage::Ended;
        }
        Passage::Onward(transit)
    }
}

/// A two-state channel: see [`GilbertElliott`].
struct Channel {
    good: State,
    bad: State,
    is_good: bool,
}

struct State {
    leave: Chance,
    lose: Chance,
}

impl Channel {
    fn new(parameters: &GilbertElliott) -> Self {
        let GilbertElliott { p, r, loss_good, loss_bad } = *parameters;
        Self {
            good: State { leave: p.into(), lose: loss_good.into() },
            bad: State { leave: r.into(), lose: loss_bad.into() },
            is_good: true,
        }
    }

    fn state(&self) -> &State {
        if self.is_good { &self.good } else { &self.bad }
    }

    fn loses(&mut self, random: &mut Random) -> bool {
        self.is_good ^= random.happens(self.state().leave);
        random.happens(self.state().lose)
    }
}

/// Counts packets and drops the listed ones.
struct Countdown {
    list: PacketList,
    /// Ranges that are over.
    passed: usize,
    /// Number of the last packet, from 1.
    number: u64,
}

impl Countdown {
    fn new(list: &PacketList) -> Self {
        Self { list: list.clone(), passed: 0, number: 0 }
    }

    fn loses(&mut self) -> bool {
        self.number += 1;
        let Some((first, last)) = self.list.runs().get(self.passed) else { return false };
        let is_lost = self.number >= *first;
        self.passed += usize::from(self.number == *last);
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Probability, Stage};

    #[test]
    fn exactly_the_listed_packets_are_lost() {
        let Ok(Loss::Packets(list)) = "packets:1,3,7,10-12".parse() else { panic!("a list") };
        let mut countdown = Countdown::new(&list);
        let lost: Vec<_> = (1..=20).filter(|_| countdown.loses()).collect();
        assert_eq!(lost, [1, 3, 7, 10, 11, 12]);
    }

    #[test]
    fn a_channel_that_always_changes_alternates_from_bad() {
        let parameters = GilbertElliott {
            p: Probability::ALWAYS,
            r: Probability::ALWAYS,
            loss_good: Probability::NEVER,
            loss_bad: Probability::ALWAYS,
        };
        let mut channel = Channel::new(&parameters);
        let mut random = Random::new(0, Stage::Loss);
        let lost: Vec<_> = (0..4).map(|_| channel.loses(&mut random)).collect();
        assert_eq!(lost, [true, false, true, false]);
    }
}
