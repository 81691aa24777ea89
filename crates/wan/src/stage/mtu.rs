//! Fragments packets longer than the MTU as a router does (IPv4 without DF), and drops others. The driver
//! sends the ICMP errors.

use nichrome_wire::Instant;

use super::impair::{Impair, Passage};
use crate::exits::{Exits, Transit};
use crate::{DropReason, Impairments, Mtu, Packet};

pub(super) struct MtuStage {
    mtu: Option<Mtu>,
}

impl MtuStage {
    pub(super) fn new() -> Self {
        Self { mtu: None }
    }

    fn is_too_long(&self, packet: &impl Packet) -> bool {
        self.mtu.is_some_and(|mtu| packet.network_len() > usize::from(mtu.get()).max(packet.least_mtu()))
    }
}

impl<P: Packet> Impair<P> for MtuStage {
    fn configure(&mut self, impairments: &Impairments, _: Instant) {
        self.mtu = impairments.mtu;
    }

    fn is_idle(&self) -> bool {
        self.mtu.is_none()
    }

    fn enter(&mut self, transit: Transit<P>, _: Instant, exits: &mut Exits<P>) -> Passage<P> {
        let Some(mtu) = self.mtu.filter(|_| self.is_too_long(&transit.packet)) else {
            return Passage::Onward(transit);
        };
        match transit.packet.fragments(mtu.get()) {
            Some(fragments) => Passage::Fragmented(exits.fragment(transit, fragments)),
            None => {
                exits.drop(transit, DropReason::Mtu);
                Passage::Ended
            }
        }
    }
}
