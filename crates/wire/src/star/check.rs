//! The integrity check: CRC-32 over the addresses and the datagram, begun with the number of the server's start. Ports do
//! not count: a sender chooses paths by its source port, and a socket may have another.
//!
//! A packet does not carry that number, the [`Epoch`]: both sides know it from set-up. So a packet of before a restart,
//! or for another server, has a wrong check, although the server's card remembers no connection.

use crate::ip::AddressPair;
use crate::rdma::UdpFlow;

use super::{CHECK_LEN, STAR_PORT};

/// A number that the stateless side chooses at random each time that it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch(pub u32);

impl UdpFlow {
    /// From `src_port` to the port of StaR.
    pub const fn to_star(addresses: AddressPair, src_port: u16) -> Self {
        Self { addresses, src_port, dst_port: STAR_PORT }
    }
}

/// The addresses as check and tag cover them: source and destination.
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

/// Computes and verifies integrity checks of the packets of one server.
#[derive(Clone, Copy, Debug)]
pub struct PacketCheck {
    epoch: Epoch,
}

impl PacketCheck {
    /// For packets to and from the server that chose this epoch.
    pub const fn new(epoch: Epoch) -> Self {
        Self { epoch }
    }

    /// The check of a datagram of `flow`, all of whose bytes but the check are `covered`.
    #[inline]
    pub fn compute(&self, flow: &UdpFlow, covered: &[u8]) -> [u8; CHECK_LEN] {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.epoch.0);
        hasher.update(AddressBytes::new(&flow.addresses).as_slice());
        hasher.update(covered);
        hasher.finalize().to_be_bytes()
    }

    /// Whether the check at the end of `datagram` is right.
    #[inline]
    pub fn is_right(&self, flow: &UdpFlow, datagram: &[u8]) -> bool {
        match datagram.split_last_chunk::<CHECK_LEN>() {
            Some((covered, check)) => self.compute(flow, covered) == *check,
            None => false,
        }
    }
}
