//! The protocol of the generator's frames.

use nichrome_wire::{AddressPair, EthernetRepr, IpProtocol, Ipv4Repr, UdpRepr};

/// Returns true for a frame of TCP over IPv4.
pub(super) fn is_tcp_frame(frame: &[u8]) -> bool {
    protocol(frame).is_some_and(|(protocol, ..)| protocol == IpProtocol::TCP)
}

/// Returns true for a UDP datagram over IPv4 whose checksum is wrong.
pub(super) fn is_wrong_udp(frame: &[u8]) -> bool {
    protocol(frame).is_some_and(|(protocol, addresses, datagram)| {
        protocol == IpProtocol::UDP && UdpRepr::parse(datagram, &addresses).is_err()
    })
}

fn protocol(frame: &[u8]) -> Option<(IpProtocol, AddressPair, &[u8])> {
    let (_, packet) = EthernetRepr::parse(frame).ok()?;
    let (ip, data) = Ipv4Repr::parse(packet).ok()?;
    Some((ip.protocol, AddressPair::V4 { src: ip.src, dst: ip.dst }, data))
}
