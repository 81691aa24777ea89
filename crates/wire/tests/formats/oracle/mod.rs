//! Comparison of this crate with etherparse, which shares no code with it, and of a frame with its own
//! rebuilding.
#![allow(clippy::panic, clippy::unwrap_used)]

use etherparse::{LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};
use nichrome_wire::{
    AddressPair, EtherType, EthernetError, EthernetRepr, IpProtocol, Ipv4Error, Ipv4Header, Ipv4Repr,
    Ipv6Error, Ipv6Header, Ipv6Repr, LinkHeader, SackBlock, TcpError, TcpFlags, TcpHeader, TcpOption,
    TcpOptions, TcpRepr, UdpHeader, UpperLayer,
};

/// Why a frame is not a TCP segment that can be rebuilt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RebuildError {
    Ethernet(EthernetError),
    Ipv4(Ipv4Error),
    Ipv6(Ipv6Error),
    Tcp(TcpError),
    /// Not TCP, or a fragment of it.
    NotTcp,
}

/// The frame rebuilt from its parsed fields; padding after the packet is kept.
pub(crate) fn rebuild(frame: &[u8]) -> Result<Vec<u8>, RebuildError> {
    let mut out = Vec::new();
    let (ethernet, packet) = EthernetRepr::parse(frame).map_err(RebuildError::Ethernet)?;
    ethernet.emit(&mut out);
    match ethernet.ethertype() {
        EtherType::IPV4 => rebuild_ipv4(packet, &mut out)?,
        EtherType::IPV6 => rebuild_ipv6(packet, &mut out)?,
        _ => return Err(RebuildError::NotTcp),
    }
    out.extend(&frame[out.len()..]);
    Ok(out)
}

fn rebuild_ipv4(packet: &[u8], out: &mut Vec<u8>) -> Result<(), RebuildError> {
    let (ip, segment) = Ipv4Repr::parse(packet).map_err(RebuildError::Ipv4)?;
    if ip.protocol != IpProtocol::TCP || !ip.fragment.is_whole() {
        return Err(RebuildError::NotTcp);
    }
    ip.emit(segment.len(), out).map_err(RebuildError::Ipv4)?;
    rebuild_tcp(segment, AddressPair::V4 { src: ip.src, dst: ip.dst }, out)
}

fn rebuild_ipv6(packet: &[u8], out: &mut Vec<u8>) -> Result<(), RebuildError> {
    let (ip, payload) = Ipv6Repr::parse(packet).map_err(RebuildError::Ipv6)?;
    let upper = UpperLayer::find(ip.next_header, payload).map_err(|_| RebuildError::NotTcp)?;
    if upper.protocol != IpProtocol::TCP || upper.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
        return Err(RebuildError::NotTcp);
    }
    let (extensions, segment) = payload.split_at(upper.offset);
    ip.emit(payload.len(), out).map_err(RebuildError::Ipv6)?;
    out.extend(extensions);
    rebuild_tcp(segment, AddressPair::V6 { src: ip.src, dst: ip.dst }, out)
}

fn rebuild_tcp(segment: &[u8], addresses: AddressPair, out: &mut Vec<u8>) -> Result<(), RebuildError> {
    let (tcp, payload) = TcpRepr::parse(segment, &addresses).map_err(RebuildError::Tcp)?;
    tcp.emit(&addresses, payload, out).map_err(RebuildError::Tcp)
}

/// Asserts that this crate and etherparse read the same in `frame`, which is TCP or UDP.
pub(crate) fn assert_etherparse_agrees(frame: &[u8]) {
    let theirs = SlicedPacket::from_ethernet(frame).unwrap();
    let ours = LinkHeader::new(frame).unwrap();
    assert_link_agrees(&ours, &theirs);
    let (transport, addresses, protocol) = match theirs.net.as_ref().unwrap() {
        NetSlice::Ipv4(theirs) => assert_ipv4_agrees(ours.payload(), theirs),
        NetSlice::Ipv6(theirs) => assert_ipv6_agrees(ours.payload(), theirs),
        other @ NetSlice::Arp(_) => panic!("not IP: {other:?}"),
    };
    match theirs.transport.as_ref().unwrap() {
        TransportSlice::Tcp(theirs) => {
            assert_eq!(protocol, IpProtocol::TCP);
            assert_tcp_agrees(transport, &addresses, theirs);
        }
        TransportSlice::Udp(theirs) => {
            assert_eq!(protocol, IpProtocol::UDP);
            let ours = UdpHeader::new(transport).unwrap();
            assert_eq!((ours.src_port(), ours.dst_port()), (theirs.source_port(), theirs.destination_port()));
            assert_eq!((ours.length(), ours.checksum()), (theirs.length(), theirs.checksum()));
            assert_eq!(ours.payload().unwrap(), theirs.payload());
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    }
}

fn assert_link_agrees(ours: &LinkHeader<'_>, theirs: &SlicedPacket<'_>) {
    let Some(LinkSlice::Ethernet2(ethernet)) = &theirs.link else { panic!("no Ethernet header: {theirs:?}") };
    assert_eq!((ours.dst().0, ours.src().0), (ethernet.destination(), ethernet.source()));
    let mut ethertype = ethernet.ether_type();
    assert_eq!(ours.tags().len(), theirs.link_exts.len());
    for (ours, theirs) in ours.tags().as_slice().iter().zip(&theirs.link_exts) {
        let LinkExtSlice::Vlan(theirs) = theirs else { panic!("not a VLAN tag: {theirs:?}") };
        assert_eq!(ours.tpid.0, ethertype.0);
        assert_eq!(ours.vid(), theirs.vlan_identifier().value());
        assert_eq!(ours.pcp(), theirs.priority_code_point().value());
        assert_eq!(ours.dei(), theirs.drop_eligible_indicator());
        ethertype = theirs.ether_type();
    }
    assert_eq!(ours.ethertype().0, ethertype.0);
}

type Transport<'a> = (&'a [u8], AddressPair, IpProtocol);

fn assert_ipv4_agrees<'a>(packet: &'a [u8], theirs: &etherparse::Ipv4Slice<'_>) -> Transport<'a> {
    let ours = Ipv4Header::new(packet).unwrap();
    let header = theirs.header();
    assert_eq!((ours.version(), ours.header_len()), (header.version(), usize::from(header.ihl()) * 4));
    assert_eq!((ours.dscp(), ours.ecn() as u8), (header.dcp().value(), header.ecn().value()));
    assert_eq!((ours.total_len(), ours.ident()), (header.total_len(), header.identification()));
    assert_eq!(ours.dont_fragment(), header.dont_fragment());
    assert_eq!(ours.fragment().more_fragments, header.more_fragments());
    assert_eq!(ours.fragment().offset.bytes(), header.fragments_offset().value() * 8);
    assert_eq!((ours.ttl(), ours.protocol().0), (header.ttl(), header.protocol().0));
    assert_eq!((ours.src(), ours.dst()), (header.source_addr(), header.destination_addr()));
    assert_eq!(ours.options().unwrap(), header.options());
    assert_eq!(ours.checksum(), header.header_checksum());
    let their_checksum = header.to_header().calc_header_checksum();
    assert_eq!(ours.has_valid_checksum(), ours.checksum() == their_checksum);
    let payload = ours.payload().unwrap();
    assert_eq!(payload, theirs.payload().payload);
    (payload, AddressPair::V4 { src: ours.src(), dst: ours.dst() }, ours.protocol())
}

fn assert_ipv6_agrees<'a>(packet: &'a [u8], theirs: &etherparse::Ipv6Slice<'_>) -> Transport<'a> {
    let ours = Ipv6Header::new(packet).unwrap();
    let header = theirs.header();
    assert_eq!((ours.version(), ours.traffic_class().0), (header.version(), header.traffic_class()));
    assert_eq!(ours.flow_label().value(), header.flow_label().value());
    assert_eq!((ours.payload_len(), ours.hop_limit()), (header.payload_length(), header.hop_limit()));
    assert_eq!(ours.next_header().0, header.next_header().0);
    assert_eq!((ours.src(), ours.dst()), (header.source_addr(), header.destination_addr()));
    let upper = ours.upper_layer().unwrap();
    assert_eq!(upper.protocol.0, theirs.payload().ip_number.0);
    assert_eq!(upper.offset, theirs.extensions().slice().len());
    let fragmented = upper.fragment.is_some_and(|fragment| !fragment.is_atomic());
    assert_eq!(fragmented, theirs.is_payload_fragmented());
    let payload = &ours.payload().unwrap()[upper.offset..];
    assert_eq!(payload, theirs.payload().payload);
    (payload, AddressPair::V6 { src: ours.src(), dst: ours.dst() }, upper.protocol)
}

fn assert_tcp_agrees(segment: &[u8], addresses: &AddressPair, theirs: &etherparse::TcpSlice<'_>) {
    let ours = TcpHeader::new(segment).unwrap();
    assert_eq!((ours.src_port(), ours.dst_port()), (theirs.source_port(), theirs.destination_port()));
    assert_eq!((ours.seq().0, ours.ack().0), (theirs.sequence_number(), theirs.acknowledgment_number()));
    assert_eq!(ours.header_len(), usize::from(theirs.data_offset()) * 4);
    assert_eq!((ours.window(), ours.urgent()), (theirs.window_size(), theirs.urgent_pointer()));
    let flags = [
        (TcpFlags::FIN, theirs.fin()),
        (TcpFlags::SYN, theirs.syn()),
        (TcpFlags::RST, theirs.rst()),
        (TcpFlags::PSH, theirs.psh()),
        (TcpFlags::ACK, theirs.ack()),
        (TcpFlags::URG, theirs.urg()),
        (TcpFlags::ECE, theirs.ece()),
        (TcpFlags::CWR, theirs.cwr()),
        (TcpFlags::AE, theirs.ns()),
    ];
    for (flag, set) in flags {
        assert_eq!(ours.flags().contains(flag), set, "{flag}");
    }
    assert_eq!(ours.options().unwrap(), theirs.options());
    assert_eq!(ours.payload().unwrap(), theirs.payload());
    assert_options_agree(theirs);
    // Etherparse computes the checksum of what its own header holds, without reserved bits.
    if ours.reserved() == 0 {
        let their_checksum = match *addresses {
            AddressPair::V4 { src, dst } => theirs.calc_checksum_ipv4(src.octets(), dst.octets()),
            AddressPair::V6 { src, dst } => theirs.calc_checksum_ipv6(src.octets(), dst.octets()),
        };
        let ours_valid = TcpRepr::parse(segment, addresses) != Err(TcpError::Checksum);
        assert_eq!(ours_valid, theirs.checksum() == their_checksum.unwrap());
    }
}

/// Compares the options up to the first that etherparse does not know.
fn assert_options_agree(theirs: &etherparse::TcpSlice<'_>) {
    let known = TcpOptions::new(theirs.options()).map_while(|option| known_to_etherparse(option.ok()?));
    let read: Vec<_> = theirs.options_iterator().map_while(Result::ok).collect();
    assert_eq!(known.collect::<Vec<_>>(), read);
}

fn known_to_etherparse(option: TcpOption<'_>) -> Option<TcpOptionElement> {
    Some(match option {
        TcpOption::NoOperation => TcpOptionElement::Noop,
        TcpOption::Mss(mss) => TcpOptionElement::MaximumSegmentSize(mss),
        TcpOption::WindowScale(shift) => TcpOptionElement::WindowScale(shift),
        TcpOption::SackPermitted => TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOption::Sack(blocks) => {
            let mut blocks = blocks.iter().map(|SackBlock { left, right }| (left.0, right.0));
            let first = blocks.next()?;
            TcpOptionElement::SelectiveAcknowledgement(first, [blocks.next(), blocks.next(), blocks.next()])
        }
        TcpOption::Timestamps { value, echo } => TcpOptionElement::Timestamp(value, echo),
        _ => return None,
    })
}
