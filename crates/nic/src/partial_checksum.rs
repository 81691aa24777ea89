//! The place of a partial TCP checksum.

use nichrome_wire::{ChecksumState, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader};

/// Offset of the checksum in a TCP header, in bytes.
const OFFSET: u16 = 16;

/// Returns the state of a partial checksum of the TCP segment in `frame`; `None` if the frame is not TCP
/// directly in IPv4 or IPv6, or a fragment.
#[inline]
pub(crate) fn partial_checksum(frame: &[u8]) -> Option<ChecksumState> {
    let link = LinkHeader::new(frame)?;
    let header_len = match link.ethertype() {
        EtherType::IPV4 => {
            let header = Ipv4Header::new(link.payload())?;
            let is_tcp = header.protocol() == IpProtocol::TCP && !header.is_fragment();
            is_tcp.then(|| header.header_len())?
        }
        EtherType::IPV6 => {
            let header = Ipv6Header::new(link.payload())?;
            (header.next_header() == IpProtocol::TCP).then_some(Ipv6Header::LEN)?
        }
        _ => return None,
    };
    let start = link.header_len() + header_len;
    Some(ChecksumState::Partial { start: start as u16, offset: OFFSET })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nichrome_tso::{Limit, Segments};
    use nichrome_wire::{Network, TcpFrame, VlanTag};

    fn frame(network: Network, tags: usize) -> Vec<u8> {
        TcpFrame {
            network,
            tags: vec![VlanTag { tpid: EtherType::VLAN, tci: 1 }; tags],
            ..TcpFrame::default()
        }
        .build()
    }

    fn ipv4_with(options: Vec<u8>) -> Network {
        let mut network = Network::default();
        if let Network::Ipv4 { options: own, .. } = &mut network {
            *own = options;
        }
        network
    }

    #[test]
    fn the_place_is_that_of_segmentation() {
        let ipv6 = Network::ipv6(1.into(), 2.into());
        for network in [Network::default(), ipv4_with(vec![1; 8]), ipv6] {
            for tags in 0..=2 {
                let frame = frame(network.clone(), tags);
                let mut segments = Segments::within(&frame, Limit::Packet(1500)).unwrap();
                assert!(partial_checksum(&frame).is_some());
                assert_eq!(partial_checksum(&frame), segments.leave_tcp_checksums());
            }
        }
    }

    #[test]
    fn other_frames_have_no_place() {
        let frame = frame(Network::default(), 0);
        let with = |at: usize, byte| {
            let mut other = frame.clone();
            other[at] = byte;
            other
        };
        let (ethertype, fragment_offset, protocol) = (13, 21, 23);
        for other in [with(ethertype, 6), with(fragment_offset, 1), with(protocol, 17), frame[..30].to_vec()]
        {
            assert_eq!(partial_checksum(&other), None);
        }
    }
}
