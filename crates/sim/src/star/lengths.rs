//! How long packets are on an Ethernet that no engine builds.

use nichrome_wire::rdma::{BthHeader, Deth, ICRC_LEN};
use nichrome_wire::{EthernetHeader, Ipv4Header, UdpHeader};

/// Bytes before the UDP payload.
pub(super) const UNDERLAY: usize = EthernetHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;

/// Bytes of an unreliable datagram of RoCEv2 from its Ethernet header to the end of its ICRC.
pub(super) const fn datagram_len(payload: u32) -> u32 {
    (UNDERLAY + BthHeader::LEN + Deth::LEN + ICRC_LEN) as u32 + payload
}
