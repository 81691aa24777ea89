//! Packet lengths of traffic without an engine.

use nichrome_wire::rdma::{BthHeader, Deth, ICRC_LEN};
use nichrome_wire::{EthernetHeader, Ipv4Header, UdpHeader};

/// Length of Ethernet, IPv4 and UDP header, in bytes.
pub(super) const UNDERLAY: usize = EthernetHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;

/// Returns the length of a RoCEv2 unreliable datagram, from Ethernet header to ICRC, in bytes.
pub(super) const fn datagram_len(payload: u32) -> u32 {
    (UNDERLAY + BthHeader::LEN + Deth::LEN + ICRC_LEN) as u32 + payload
}
