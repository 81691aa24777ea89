//! Flips one bit of a packet.
//!
//! Any bit behind the link header is equally likely: a damaged MAC address would be a plain loss, and the
//! Ethernet FCS would have detected it. IPv4's header checksum or TCP's and UDP's checksum detect a single
//! flipped bit, except in IPv6's flow label, traffic class and hop limit, and in Ethernet's padding.

use nichrome_wire::Instant;

use super::impair::{Impair, Passage};
use crate::exits::{Exits, Transit};
use crate::random::{Chance, Random};
use crate::{Impairments, Packet, Probability};

pub(super) struct CorruptStage {
    probability: Probability,
    random: Random,
}

impl CorruptStage {
    pub(super) fn new(random: Random) -> Self {
        Self { probability: Probability::NEVER, random }
    }
}

impl<P: Packet> Impair<P> for CorruptStage {
    fn configure(&mut self, impairments: &Impairments, _: Instant) {
        self.probability = impairments.corrupt;
    }

    fn is_idle(&self) -> bool {
        self.probability == Probability::NEVER
    }

    fn enter(&mut self, mut transit: Transit<P>, _: Instant, exits: &mut Exits<P>) -> Passage<P> {
        let packet = &mut transit.packet;
        let (wire, network) = (packet.wire_len(), packet.network_len());
        if self.random.happens(Chance::from(self.probability)) && network > 0 {
            let within = self.random.below(network as u64 * 8) as usize;
            packet.flip_bit((wire - network.min(wire)) * 8 + within);
            exits.stats.corrupted += 1;
        }
        Passage::Onward(transit)
    }
}
