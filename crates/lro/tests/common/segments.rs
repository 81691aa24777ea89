//! Segments to build and to read.

use std::net::IpAddr;

use nichrome_wire::checksum::checksum;
use nichrome_wire::{IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame};

/// The sequence number that [`data`] counts from.
pub const BASE: u32 = 1;

/// The bytes of the stream at a sequence number, equal in every segment that contains them.
pub fn pattern(seq: SeqNumber, len: usize) -> Vec<u8> {
    let at = |n: usize| seq.0.wrapping_add(n as u32);
    (0..len).map(|n| (at(n) ^ at(n) >> 8 ^ at(n) >> 16) as u8).collect()
}

/// A data segment with `len` bytes from `at` on.
pub fn data(at: u32, len: usize) -> TcpFrame {
    TcpFrame { seq: SeqNumber(BASE), ..TcpFrame::default() }.at(at, len)
}

/// A packet without an Ethernet header, from 8.0.69.0 and with `len` bytes of payload, 8 to 200. From byte 14
/// on, its fields look like an IPv4 and a TCP header.
pub fn packet_like_an_ethernet_frame(flow: u8, at: u32, len: usize) -> Vec<u8> {
    let mut payload = vec![0; len];
    (payload[6], payload[7]) = (0x50, 0x10);
    let len_from_there = (20 + 20 + len - 14) as u8;
    let network = Network::ipv4([8, 0, 0x45, 0].into(), [0, len_from_there, 0, flow].into());
    let segment = data(at, 0).with(|frame| (frame.src_port, frame.dst_port) = (0x4000, 0x4006));
    TcpFrame { network, payload, ..segment }.build()[14..].to_vec()
}

/// The first `len` bytes of a segment's IP payload as a first fragment, for segments without VLAN tags and
/// IPv4 options.
pub fn first_fragment(segment: &TcpFrame, len: usize) -> Vec<u8> {
    let mut frame = segment.build();
    if let Network::Ipv6 { .. } = segment.network {
        frame[18..20].copy_from_slice(&(8 + len as u16).to_be_bytes());
        frame.splice(54..54, [frame[20], 0, 0, 1, 0, 0, 0, 7]);
        frame[20] = IpProtocol::FRAGMENT.0;
        frame.truncate(62 + len);
        return frame;
    }
    frame.truncate(34 + len);
    frame[16..18].copy_from_slice(&(20 + len as u16).to_be_bytes());
    frame[20] |= 0x20;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Small changes to a frame, for tests that read as a list of cases.
pub trait Change: Sized {
    /// Returns the frame with `len` bytes of the stream, `at` bytes further on.
    fn at(self, at: u32, len: usize) -> Self;
    /// Returns the frame with these flags, and ACK.
    fn flags(self, flags: TcpFlags) -> Self;
    /// Returns the frame with other fields.
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
    /// Returns the frame with timestamps, in the recommended padding (RFC 7323 appendix A).
    fn timestamps(self, value: u32, echo: u32) -> Self;
    /// Returns the frame over IPv6.
    fn over_ipv6(self) -> Self;
}

impl Change for TcpFrame {
    fn at(mut self, at: u32, len: usize) -> Self {
        self.seq += at;
        self.payload = pattern(self.seq, len);
        self
    }

    fn flags(mut self, flags: TcpFlags) -> Self {
        self.flags = flags | TcpFlags::ACK;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn timestamps(mut self, value: u32, echo: u32) -> Self {
        self.options = [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
        self
    }

    fn over_ipv6(mut self) -> Self {
        let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        self.network = Network::ipv6(src, dst);
        self
    }
}

/// A TCP segment as etherparse, an independent parser, reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub src: (IpAddr, u16),
    pub dst: (IpAddr, u16),
    pub vlans: Vec<u16>,
    pub macs: ([u8; 6], [u8; 6]),
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    pub checksums_are_right: bool,
}

/// Reads an Ethernet frame with a TCP segment in it.
pub fn tcp(frame: &[u8]) -> Ack {
    let packet = etherparse::SlicedPacket::from_ethernet(frame).expect("headers are well formed");
    let Some(etherparse::TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("not TCP: {packet:?}") };
    let Some(etherparse::LinkSlice::Ethernet2(ethernet)) = &packet.link else { panic!("not Ethernet") };
    let (src, dst, computed, ip_is_right) = match packet.net.as_ref().expect("there is an IP header") {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            (
                header.source.into(),
                header.destination.into(),
                tcp.calc_checksum_ipv4(header.source, header.destination),
                header.header_checksum == header.calc_header_checksum(),
            )
        }
        etherparse::NetSlice::Ipv6(ip) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
            true,
        ),
        etherparse::NetSlice::Arp(_) => panic!("not IP"),
    };
    let number = |bytes: [u8; 4]| u32::from_be_bytes(bytes);
    let header = tcp.slice();
    Ack {
        src: (src, tcp.source_port()),
        dst: (dst, tcp.destination_port()),
        vlans: packet.vlan_ids().iter().map(|id| id.value()).collect(),
        macs: (ethernet.source(), ethernet.destination()),
        seq: number(header[4..8].try_into().unwrap()),
        ack: number(header[8..12].try_into().unwrap()),
        flags: TcpFlags::from_bits_truncate(u16::from_be_bytes([header[12], header[13]])),
        window: tcp.window_size(),
        options: tcp.options().to_vec(),
        payload: tcp.payload().to_vec(),
        checksums_are_right: ip_is_right && Ok(tcp.checksum()) == computed.map_err(|_| ()),
    }
}
