//! TCP segments in IP packets, with checksums.

use nichrome_wire::Ipv4Header;
use nichrome_wire::checksum::Sum;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, TcpRepr};

use crate::HostId;

/// Reads a segment with right checksums.
pub(super) fn read(packet: &[u8], host: HostId, remote: HostId) -> Option<TcpRepr<'_>> {
    let ip = Ipv4Header::new(packet)?;
    let segment = ip.payload()?;
    let len = u32::try_from(segment.len()).ok()?;
    let pseudo_header = Sum::pseudo_ipv4(ip.src(), ip.dst(), ip.protocol().0, len);
    if !ip.has_valid_checksum() || pseudo_header.add_bytes(segment).finish() != 0 {
        return None;
    }
    let [src, dst] = [remote, host].map(|host| IpAddress::from(host.ip()));
    let tcp = TcpPacket::new_checked(segment).ok()?;
    TcpRepr::parse(&tcp, &src, &dst, &ChecksumCapabilities::ignored()).ok()
}

/// Returns the length of a segment's IP packet, in bytes.
pub(super) fn packet_len(segment: &TcpRepr<'_>) -> usize {
    Ipv4Header::LEN + segment.buffer_len()
}

/// Writes a segment's IP packet to `packet`, which has [its length](packet_len).
pub(super) fn write(segment: &TcpRepr<'_>, from: HostId, to: HostId, packet: &mut [u8]) {
    let (src_addr, dst_addr) = (from.ip(), to.ip());
    let payload_len = segment.buffer_len();
    let ip = Ipv4Repr { src_addr, dst_addr, next_header: IpProtocol::Tcp, payload_len, hop_limit: 64 };
    let capabilities = ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut *packet), &capabilities);
    let mut tcp = TcpPacket::new_unchecked(&mut packet[Ipv4Header::LEN..]);
    segment.emit(&mut tcp, &src_addr.into(), &dst_addr.into(), &capabilities);
}
