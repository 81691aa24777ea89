//! Any bytes as a frame, from every layer on.
#![no_main]

use std::sync::LazyLock;

use nichrome_wire::{
    AddressPair, CommonOptions, EthernetRepr, HeaderOptions, Ipv4Header, Ipv4Repr, Ipv6Header, Ipv6Repr,
    LinkHeader, RssKey, TcpHeader, TcpOption, TcpOptions, TcpRepr, Toeplitz, UdpHeader, UdpRepr,
    VirtioNetHeader, VirtioNetRepr, ipv4_fragments, packet_too_big,
};

static HASH: LazyLock<Toeplitz> = LazyLock::new(|| Toeplitz::new(&RssKey::MICROSOFT));

/// Link header with two VLAN tags.
const LINK_LEN: usize = 22;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ethernet(bytes);
    ipv4(bytes);
    ipv6(bytes);
    let addresses = AddressPair::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    transport(bytes, &addresses);
    options(bytes);
    virtio(bytes);
});

fn ethernet(frame: &[u8]) {
    let fragments = ipv4_fragments(frame, 576).unwrap_or_default();
    assert!(fragments.iter().all(|fragment| fragment.len() <= LINK_LEN + 576));
    let _ = (packet_too_big(frame, 0), HASH.hash_frame(frame));
    if let Ok((repr, rest)) = EthernetRepr::parse(frame) {
        let mut emitted = Vec::new();
        repr.emit(&mut emitted);
        assert_eq!([&emitted, rest].concat(), frame);
    }
    if let Some(link) = LinkHeader::new(frame) {
        assert_eq!(link.header_len() + link.payload().len(), frame.len());
        ipv4(link.payload());
        ipv6(link.payload());
    }
}

fn ipv4(packet: &[u8]) {
    if let Ok((repr, payload)) = Ipv4Repr::parse(packet) {
        assert!(repr.header_len() + payload.len() <= packet.len());
        transport(payload, &AddressPair::V4 { src: repr.src, dst: repr.dst });
    }
    if let Some(ip) = Ipv4Header::new(packet) {
        let _ = (ip.options(), ip.payload(), ip.has_valid_checksum(), ip.fragment(), ip.is_fragment());
    }
}

fn ipv6(packet: &[u8]) {
    if let Ok((repr, payload)) = Ipv6Repr::parse(packet) {
        assert!(payload.len() + 40 <= packet.len());
        transport(payload, &AddressPair::V6 { src: repr.src, dst: repr.dst });
    }
    let Some(ip) = Ipv6Header::new(packet) else { return };
    let payload = ip.payload().unwrap_or_default();
    let walked: usize = ip.extensions().flatten().map(|header| header.bytes.len()).sum();
    assert!(walked <= payload.len());
    if let Ok(upper) = ip.upper_layer() {
        assert_eq!(upper.offset, walked);
        let addresses = AddressPair::V6 { src: ip.src(), dst: ip.dst() };
        transport(&payload[upper.offset..], &addresses);
    }
}

fn transport(segment: &[u8], addresses: &AddressPair) {
    if let Ok((repr, payload)) = TcpRepr::parse(segment, addresses) {
        assert_eq!(repr.header_len() + payload.len(), segment.len());
        options(repr.options.as_bytes());
    }
    if let Some(tcp) = TcpHeader::new(segment)
        && let Some((list, payload)) = tcp.split()
    {
        assert_eq!(20 + list.len() + payload.len(), segment.len());
        options(list);
    }
    let _ = UdpRepr::parse(segment, addresses);
    if let Some(udp) = UdpHeader::new(segment) {
        let _ = (udp.src_port(), udp.dst_port(), udp.payload());
    }
}

/// Asserts that parsed options are written back to the same bytes, that [`CommonOptions::classify`] agrees
/// with the parsed list, and that [`HeaderOptions`] keeps the bytes and pads them with zeros.
fn options(list: &[u8]) {
    let mut emitted = Vec::new();
    for option in TcpOptions::new(list).map_while(Result::ok) {
        let before = emitted.len();
        if option.emit(&mut emitted).is_ok() {
            assert_eq!(emitted[before..], list[before..emitted.len()]);
        } else {
            break;
        }
    }
    assert_eq!(CommonOptions::classify(list), class_of(list), "{list:?}");
    let kept = HeaderOptions::new(list);
    assert_eq!(kept.is_some(), list.len() <= HeaderOptions::MAX_LEN);
    if let Some(kept) = kept {
        let (options, padding) = kept.as_bytes().split_at(list.len());
        assert!(options == list && padding.len() < 4 && padding.iter().all(|byte| *byte == 0));
    }
}

/// Returns the class of options by the parsed list: timestamps may have only padding beside them, and only
/// zeros behind the end of the list.
fn class_of(list: &[u8]) -> CommonOptions {
    let parsed: Vec<_> = TcpOptions::new(list).collect();
    let is_padding = |option: &_| matches!(option, Ok(TcpOption::NoOperation | TcpOption::EndOfList));
    let mut others = parsed.iter().filter(|option| !is_padding(option));
    match (others.next(), others.next()) {
        _ if list.is_empty() => CommonOptions::None,
        (Some(Ok(TcpOption::Timestamps { value, echo })), None) => {
            let len = 10 + (parsed.len() - 1);
            match list[len..].iter().all(|byte| *byte == 0) {
                true => CommonOptions::Timestamps { value: *value, echo: *echo },
                false => CommonOptions::Other,
            }
        }
        _ => CommonOptions::Other,
    }
}

fn virtio(bytes: &[u8]) {
    let Some((header, frame)) = bytes.split_first_chunk() else { return };
    let header = VirtioNetHeader::from_bytes(header);
    assert_eq!(header.to_bytes()[..], bytes[..VirtioNetHeader::LEN]);
    let _ = VirtioNetRepr::parse(&header, frame.len());
}
