//! The StaR configuration of a device.

use nichrome_wire::star::{Epoch, STAR_PORT};

use super::card::CardAuthentication;
use crate::congestion::Congestion;

/// The StaR configuration of a device.
#[derive(Clone, Debug)]
pub struct StarConfig {
    /// Most connections whose state the device keeps: of RoCE, and of StaR as the stateful side. Beyond,
    /// set-up offers new connections the stateless role here (section 3.3 of the paper, auto adaption).
    /// `None` for no limit.
    pub connection_budget: Option<usize>,
    /// The UDP source port of packets.
    pub source_port: u16,
    /// The congestion controller of connections, which the stateful side runs for both directions.
    pub congestion: Congestion,
    /// Identifies this start of the device as a stateless side, chosen at random. The card drops packets of
    /// other epochs.
    pub epoch: Epoch,
    /// Requires authenticated packets, by keys derived from the secret.
    pub authentication: Option<CardAuthentication>,
    /// Most packets that wait in the stateless card, of all connections together. The card drops further
    /// ones.
    pub waiting_packets: usize,
    /// Most bytes of a connection's requests of the stateless side that the stateful side keeps a copy of. It
    /// refuses further requests until earlier ones complete. The rings that hold them may take twice as much.
    pub mirrored_bytes: usize,
    /// Most bytes that these copies take together, beyond a MiB for each connection. A connection takes at
    /// most as much of them as it leaves to others. The rings may take twice as much.
    pub mirrored_bytes_in_all: usize,
}

impl Default for StarConfig {
    fn default() -> Self {
        Self {
            connection_budget: None,
            source_port: STAR_PORT,
            congestion: Congestion::Dctcp,
            epoch: Epoch::default(),
            authentication: None,
            waiting_packets: 4096,
            mirrored_bytes: 256 << 20,
            mirrored_bytes_in_all: 1 << 30,
        }
    }
}
