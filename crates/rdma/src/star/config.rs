//! The part of a device's configuration that is StaR's.

use nichrome_wire::star::{Epoch, STAR_PORT};

use super::card::CardAuthentication;
use crate::congestion::Congestion;

/// How a device takes part in StaR.
#[derive(Clone, Debug)]
pub struct StarConfig {
    /// Connections whose state the device keeps: of RoCE, and of StaR as the stateful side. `None` for any number; beyond
    /// it, new connections want to be stateless here (section 3.3 of the paper, auto adaption).
    pub connection_budget: Option<usize>,
    /// The UDP source port of what is sent.
    pub source_port: u16,
    /// The congestion controller of its connections.
    pub congestion: Congestion,
    /// This start of the device as a stateless side, best chosen at random: packets of before it are refused.
    pub epoch: Epoch,
    /// Packets to the stateless side must be authenticated, by keys that follow from the secret.
    pub authentication: Option<CardAuthentication>,
    /// Nanoseconds that the network holds a packet at most, when it has lost it by all appearances. Operations complete no
    /// earlier, so that a copy of their bytes that comes after all changes nothing that was written later.
    pub packet_lifetime: u64,
    /// Packets that wait for the answer of the stateless card, of all connections together; others are dropped.
    pub waiting_packets: usize,
}

impl Default for StarConfig {
    fn default() -> Self {
        Self {
            connection_budget: None,
            source_port: STAR_PORT,
            congestion: Congestion::Dctcp,
            epoch: Epoch::default(),
            authentication: None,
            packet_lifetime: 10_000_000,
            waiting_packets: 4096,
        }
    }
}
