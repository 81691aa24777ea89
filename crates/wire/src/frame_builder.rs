//! Builds TCP frames for tests: every field has a default, and lengths and checksums are correct.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::ethernet::{self, MacAddr};
use crate::ethertype::EtherType;
use crate::header_options::HeaderOptions;
use crate::ip::{AddressPair, Fragment, IpProtocol, TrafficClass};
use crate::ipv4::Ipv4Repr;
use crate::ipv6::{FlowLabel, Ipv6Repr};
use crate::tcp::TcpRepr;
use crate::{SeqNumber, TcpFlags, VlanTag};

/// A TCP segment in its frame. Enforces no rules, so that a test can build invalid frames; but truncates
/// options at 40 bytes, and length fields saturate at 65,535.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpFrame {
    /// The source.
    pub src_mac: MacAddr,
    /// The destination.
    pub dst_mac: MacAddr,
    /// VLAN tags, outermost first; any number.
    pub tags: Vec<VlanTag>,
    /// The IP header.
    pub network: Network,
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: SeqNumber,
    /// Acknowledgment number.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options; padded with zeros to a multiple of 4 bytes.
    pub options: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The IP header of a [`TcpFrame`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4, not fragmented.
    Ipv4 {
        /// The source.
        src: Ipv4Addr,
        /// The destination.
        dst: Ipv4Addr,
        /// Identification.
        ident: u16,
        /// The DF flag.
        dont_fragment: bool,
        /// Time to live, in hops.
        ttl: u8,
        /// Type of service.
        tos: TrafficClass,
        /// The options; padded with zeros to a multiple of 4 bytes.
        options: Vec<u8>,
    },
    /// IPv6.
    Ipv6 {
        /// The source.
        src: Ipv6Addr,
        /// The destination.
        dst: Ipv6Addr,
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        class: TrafficClass,
        /// Flow label.
        flow_label: FlowLabel,
        /// Next header field of the IPv6 header: the first extension header's protocol, or TCP.
        next_header: IpProtocol,
        /// The encoded extension headers; the last one's next header is TCP.
        extensions: Vec<u8>,
    },
}

impl Network {
    /// IPv4 from `src` to `dst`: DF, TTL 64, no options.
    pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        let tos = TrafficClass::default();
        Self::Ipv4 { src, dst, ident: 0, dont_fragment: true, ttl: 64, tos, options: Vec::new() }
    }

    /// IPv6 from `src` to `dst`: hop limit 64, no extension headers.
    pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self::Ipv6 {
            src,
            dst,
            hop_limit: 64,
            class: TrafficClass::default(),
            flow_label: FlowLabel::default(),
            next_header: IpProtocol::TCP,
            extensions: Vec::new(),
        }
    }
}

impl Default for Network {
    /// IPv4 from 10.0.0.1 to 10.0.0.2.
    fn default() -> Self {
        Self::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
    }
}

impl Default for TcpFrame {
    /// A pure ACK over IPv4, from 10.0.0.1:40000 to 10.0.0.2:5201.
    fn default() -> Self {
        Self {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            tags: Vec::new(),
            network: Network::default(),
            src_port: 40_000,
            dst_port: 5201,
            seq: SeqNumber(1),
            ack: SeqNumber(1),
            flags: TcpFlags::ACK,
            window: 512,
            urgent: 0,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }
}

impl TcpFrame {
    /// Builds the frame from its Ethernet header on, without padding.
    pub fn build(&self) -> Vec<u8> {
        let ethertype = match self.network {
            Network::Ipv4 { .. } => EtherType::IPV4,
            Network::Ipv6 { .. } => EtherType::IPV6,
        };
        let mut frame = Vec::new();
        ethernet::write_header(self.dst_mac, self.src_mac, &self.tags, ethertype, &mut frame);
        self.write_ip(&mut frame);
        frame
    }

    /// Builds the packet from its IP header on.
    pub fn build_ip(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        self.write_ip(&mut packet);
        packet
    }

    fn write_ip(&self, out: &mut Vec<u8>) {
        let tcp = self.tcp();
        let segment_len = tcp.header_len() + self.payload.len();
        let addresses = match self.network {
            Network::Ipv4 { src, dst, ident, dont_fragment, ttl, tos, ref options } => {
                let (protocol, fragment) = (IpProtocol::TCP, Fragment::default());
                let options = cut_options(options);
                let ip = Ipv4Repr { src, dst, protocol, ttl, tos, ident, dont_fragment, fragment, options };
                ip.write(length_field(ip.header_len() + segment_len), out);
                AddressPair::V4 { src, dst }
            }
            Network::Ipv6 { src, dst, hop_limit, class, flow_label, next_header, ref extensions } => {
                let ip = Ipv6Repr { src, dst, next_header, hop_limit, traffic_class: class, flow_label };
                ip.write(length_field(extensions.len() + segment_len), out);
                out.extend(extensions);
                AddressPair::V6 { src, dst }
            }
        };
        tcp.write(&addresses, &self.payload, out);
    }

    fn tcp(&self) -> TcpRepr {
        let &Self { src_port, dst_port, seq, ack, flags, window, urgent, .. } = self;
        let options = cut_options(&self.options);
        TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent, options }
    }
}

fn cut_options(options: &[u8]) -> HeaderOptions {
    let kept = options.len().min(HeaderOptions::MAX_LEN);
    HeaderOptions::new(&options[..kept]).unwrap_or_default()
}

fn length_field(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::EthernetRepr;
    use crate::{Ipv4Header, Ipv6Header, LinkHeader};

    #[test]
    fn the_default_is_a_valid_frame() {
        let frame = TcpFrame { payload: b"payload".to_vec(), ..TcpFrame::default() };
        let bytes = frame.build();
        let (ethernet, packet) = EthernetRepr::parse(&bytes).unwrap();
        assert_eq!((ethernet.src, ethernet.dst), (frame.src_mac, frame.dst_mac));
        assert_eq!(packet, frame.build_ip());
        let (ip, segment) = Ipv4Repr::parse(packet).unwrap();
        let addresses = AddressPair::V4 { src: ip.src, dst: ip.dst };
        assert_eq!(TcpRepr::parse(segment, &addresses), Ok((frame.tcp(), &b"payload"[..])));
    }

    #[test]
    fn extension_headers_lead_to_the_segment() {
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let mut network = Network::ipv6(src, dst);
        if let Network::Ipv6 { next_header, extensions, .. } = &mut network {
            *next_header = IpProtocol::DESTINATION_OPTIONS;
            extensions.extend([IpProtocol::TCP.0, 0, 1, 4, 0, 0, 0, 0]);
        }
        let frame = TcpFrame { network, ..TcpFrame::default() };
        let packet = frame.build_ip();
        let ip = Ipv6Header::new(&packet).unwrap();
        let upper = ip.upper_layer().unwrap();
        let segment = &ip.payload().unwrap()[upper.offset..];
        assert_eq!(upper.protocol, IpProtocol::TCP);
        assert_eq!(TcpRepr::parse(segment, &AddressPair::V6 { src, dst }), Ok((frame.tcp(), &[][..])));
    }

    #[test]
    fn frames_that_rules_forbid_can_be_built() {
        let tag = VlanTag { tpid: EtherType::VLAN, tci: 1 };
        let three_tags = TcpFrame { tags: vec![tag; 3], ..TcpFrame::default() };
        let frame = three_tags.build();
        assert_eq!(LinkHeader::new(&frame).unwrap().ethertype(), EtherType::VLAN);
        let too_much = TcpFrame { options: vec![1; 41], payload: vec![0; 70_000], ..TcpFrame::default() };
        let packet = too_much.build_ip();
        assert_eq!(packet.len(), 20 + 60 + 70_000);
        assert_eq!(Ipv4Header::new(&packet).unwrap().total_len(), u16::MAX);
    }
}
