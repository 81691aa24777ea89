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

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with destination options of these lengths in bytes, a header of type `last`, and these bytes.
    fn packet(options: &[usize], last: IpProtocol, upper: &[u8]) -> Vec<u8> {
        let options_type = IpProtocol::DESTINATION_OPTIONS;
        let types: Vec<_> = options.iter().map(|_| options_type).chain([last]).collect();
        let mut chain = Vec::new();
        for (nth, len) in options.iter().enumerate() {
            let start = chain.len();
            chain.resize(start + len, 0);
            chain[start..start + 2].copy_from_slice(&[types[nth + 1].0, (len / 8 - 1) as u8]);
        }
        chain.extend(upper);
        let mut packet = vec![0; Ipv6Header::LEN];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(chain.len() as u16).to_be_bytes());
        packet[6] = types[0].0;
        packet.extend(chain);
        packet
    }

    /// A TCP header of this length.
    fn tcp(len: usize) -> Vec<u8> {
        let mut header = vec![0; len];
        header[12] = (len as u8 / 4) << 4;
        header
    }

    fn exceeds(packet: &[u8]) -> bool {
        exceeds_reach(packet, Medium::Ip)
    }

    #[test]
    fn the_tcp_header_ends_within_the_reach() {
        // The IPv6 header and the options are 232 bytes.
        assert!(!exceeds(&packet(&[192], IpProtocol::TCP, &tcp(24))));
        assert!(exceeds(&packet(&[192], IpProtocol::TCP, &tcp(28))));
        assert!(exceeds(&packet(&[200], IpProtocol::TCP, &tcp(20))), "fewer bytes than a header has");
        assert!(exceeds(&packet(&[200], IpProtocol::TCP, &[])), "a header that is cut off");
        assert!(!exceeds(&packet(&[], IpProtocol::TCP, &tcp(60))));
        assert!(!exceeds(&packet(&[200], IpProtocol::UDP, &tcp(28))), "only TCP's are read");
        let mut other_version = packet(&[200], IpProtocol::TCP, &tcp(20));
        other_version[0] = 0x40;
        assert!(!exceeds(&other_version));
    }

    #[test]
    fn an_extension_header_begins_within_the_reach() {
        assert!(!exceeds(&packet(&[208, 8], IpProtocol::UDP, &[0; 8])), "its first 8 bytes end at 256");
        assert!(exceeds(&packet(&[216, 8], IpProtocol::UDP, &[0; 8])));
        assert!(!exceeds(&packet(&[216], IpProtocol::UDP, &[0; 8])));
    }

    #[test]
    fn later_fragments_have_no_tcp_header() {
        let fragment = |offset: u16| {
            let mut upper = vec![IpProtocol::TCP.0, 0, 0, 0, 0, 0, 0, 7];
            upper[2..4].copy_from_slice(&(offset << 3 | 1).to_be_bytes());
            upper.extend(tcp(20));
            exceeds(&packet(&[200], IpProtocol::FRAGMENT, &upper))
        };
        assert_eq!([fragment(0), fragment(9)], [true, false]);
    }

    #[test]
    fn the_link_header_counts() {
        let frame =
            |options| [&[0; 12][..], &[0x86, 0xDD], &packet(&[options], IpProtocol::TCP, &tcp(20))].concat();
        assert!(!exceeds_reach(&frame(176), Medium::Ethernet), "250 bytes");
        assert!(exceeds_reach(&frame(184), Medium::Ethernet), "258 bytes");
    }
}
