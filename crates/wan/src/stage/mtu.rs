//! What is too long does not get through. Nothing is fragmented, and nobody is told: that is the driver's to do.

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
        if self.is_too_long(&transit.packet) {
            exits.drop(transit, DropReason::Mtu);
            return Passage::Ended;
        }
        Passage::Onward(transit)
    }
}
