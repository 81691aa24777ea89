//! The StaR configuration of a device.

use nichrome_wire::star::{Epoch, STAR_PORT};

use super::card::CardAuthentication;
use crate::congestion::Congestion;

/// The StaR configuration of a device.
#[derive(Clone, Debug)]
pub struct StarConfig {
    /// Maximum number of connections whose state the device keeps: those of RoCE, and those of StaR as the
    /// stateful side. At the maximum, set-up offers to be the stateless side of new connections (section 3.3
    /// of the paper, auto adaption). `None` for no limit.
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
    /// Maximum number of packets that wait in the stateless card, of all connections together. The card drops
    /// further ones.
    pub waiting_packets: usize,
    /// Maximum bytes per connection of the stateless side's requests, of which the stateful side keeps a
    /// copy. The stateful side refuses further requests until earlier ones complete. The rings that hold them
    /// may take twice as much.
    pub mirrored_bytes: usize,
    /// Maximum bytes of these copies of all connections together, beyond 1 MiB for each connection. A
    /// connection takes at most as many of them as it leaves to others. The rings may take twice as much.
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
