//! The integrity check: CRC-32 over the server's [`Epoch`], the addresses and the datagram. Ports are not
//! covered: a sender chooses the source port to select a network path, and its socket may send from another
//! one.
//!
//! Packets do not carry the epoch: both sides know it from set-up. So packets from before a restart, or for
//! another server, fail the check, although the server's card keeps no connection state.

use crate::ip::AddressPair;
use crate::rdma::UdpFlow;

use super::{CHECK_LEN, STAR_PORT};

/// A random number that the stateless server chooses at each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch(pub u32);

impl UdpFlow {
    /// Creates a flow from `src_port` to StaR's port.
    pub const fn to_star(addresses: AddressPair, src_port: u16) -> Self {
        Self { addresses, src_port, dst_port: STAR_PORT }
    }
}

/// Source and destination address in the format that check and tag cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressBytes {
    bytes: [u8; 32],
    len: usize,
}

impl AddressBytes {
    #[inline]
    pub(super) fn new(addresses: &AddressPair) -> Self {
        let mut new = Self { bytes: [0; 32], len: 0 };
        match *addresses {
            AddressPair::V4 { src, dst } => {
                new.push(src.octets());
                new.push(dst.octets());
            }
            AddressPair::V6 { src, dst } => {
                new.push(src.octets());
                new.push(dst.octets());
            }
        }
        new
    }

    #[inline]
    fn push<const LEN: usize>(&mut self, field: [u8; LEN]) {
        self.bytes[self.len..self.len + LEN].copy_from_slice(&field);
        self.len += LEN;
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Computes and verifies the integrity checks of one server's packets.
#[derive(Clone, Copy, Debug)]
pub struct PacketCheck {
    epoch: Epoch,
}

impl PacketCheck {
    /// Creates the check for packets to and from the server with this epoch.
    pub const fn new(epoch: Epoch) -> Self {
        Self { epoch }
    }

    /// Computes the check of a datagram of `flow`; `covered` is the datagram without the check.
    #[inline]
    pub fn compute(&self, flow: &UdpFlow, covered: &[u8]) -> [u8; CHECK_LEN] {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.epoch.0);
        hasher.update(AddressBytes::new(&flow.addresses).as_slice());
        hasher.update(covered);
        hasher.finalize().to_be_bytes()
    }

    /// Returns true if the check at the end of `datagram` is right.
    #[inline]
    pub fn is_valid(&self, flow: &UdpFlow, datagram: &[u8]) -> bool {
        match datagram.split_last_chunk::<CHECK_LEN>() {
            Some((covered, check)) => self.compute(flow, covered) == *check,
            None => false,
        }
    }
}
