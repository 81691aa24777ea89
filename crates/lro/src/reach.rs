//! The parsing range of the hardware module.

use nichrome_wire::{EtherType, IpProtocol, Ipv6Header, LinkHeader, TcpHeader};

use crate::segment::Medium;

/// Number of bytes from the start of a frame in which all headers must end.
pub const REACH: usize = 256;

/// Bytes of an IPv6 extension header that hold its type and length.
const EXTENSION_START: usize = 8;

/// Returns true if the headers of a frame end beyond [`REACH`]. Only chains of IPv6 extension headers are so
/// long; the first header beyond the range decides, of any type.
pub(crate) fn exceeds_reach(frame: &[u8], medium: Medium) -> bool {
    let network = match medium {
        Medium::Ip => Some(0),
        Medium::Ethernet => LinkHeader::new(frame)
            .filter(|link| link.ethertype() == EtherType::IPV6)
            .map(|link| link.header_len()),
    };
    let header = network.and_then(|at| Some((at, Ipv6Header::new(frame.get(at..)?)?)));
    match header {
        // Few packets have extension headers.
        Some((at, ip)) if ip.version() == 6 && ip.next_header() != IpProtocol::TCP => chain_exceeds(at, &ip),
        _ => false,
    }
}

/// Walks the extension headers of a packet that starts at `network` in its frame.
fn chain_exceeds(network: usize, ip: &Ipv6Header<'_>) -> bool {
    let Some(payload) = ip.payload() else { return false };
    let start = network + Ipv6Header::LEN;
    let mut at = start;
    for extension in ip.extensions() {
        if at + EXTENSION_START > REACH {
            return true;
        }
        let Ok(extension) = extension else { return false };
        at += extension.bytes.len();
    }
    let Ok(upper) = ip.upper_layer() else { return false };
    let is_later_fragment = upper.fragment.is_some_and(|fragment| !fragment.fragment.is_first());
    if upper.protocol != IpProtocol::TCP || is_later_fragment {
        return false;
    }
    let tcp_len = payload.get(at - start..).and_then(TcpHeader::new).map_or(0, |tcp| tcp.header_len());
    at + TcpHeader::LEN.max(tcp_len) > REACH
}
