//! Frames to segment, their packets, and independent implementations that check them.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

pub mod oracle;
pub mod udp;

use std::num::NonZeroU16;

use nichrome_tso::{SegmentError, Segments};
use nichrome_wire::{
    ChecksumState, Gso, GsoType, IpProtocol, LinkHeader, Network, SeqNumber, TcpFlags, TcpFrame, TcpGsoEcn,
    VirtioNetRepr,
};

pub use self::oracle::*;
pub use self::udp::*;

/// TCP over IPv4.
pub const TCP4: GsoType = GsoType::TcpV4(TcpGsoEcn::NoCwr);
/// TCP over IPv6.
pub const TCP6: GsoType = GsoType::TcpV6(TcpGsoEcn::NoCwr);

/// Returns the virtio header of a frame that needs segmentation.
pub fn virtio(gso_type: GsoType, size: u16) -> VirtioNetRepr {
    let size = NonZeroU16::new(size).unwrap();
    VirtioNetRepr { checksum: ChecksumState::Unchecked, gso: Some(Gso { gso_type, size, hdr_len: 0 }) }
}

/// Adds a partial checksum to a virtio header.
pub fn partial(virtio: VirtioNetRepr, start: usize, offset: u16) -> VirtioNetRepr {
    VirtioNetRepr { checksum: ChecksumState::Partial { start: start as u16, offset }, ..virtio }
}

/// Returns all packets of a frame; checks that their lengths are as announced and that they are appended to
/// the buffer.
pub fn cut(frame: &[u8], virtio: &VirtioNetRepr) -> Result<Vec<Vec<u8>>, SegmentError> {
    let mut segments = Segments::new(frame, virtio)?;
    let (count, bytes) = (segments.remaining(), segments.bytes_remaining());
    let mut packets: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut out = b"before".to_vec();
        assert_eq!(segments.remaining(), count - packets.len());
        let len = segments.packet_len();
        if !segments.append_next(&mut out) {
            assert_eq!((len, out.len(), segments.remaining(), segments.bytes_remaining()), (0, 6, 0, 0));
            break;
        }
        assert_eq!(out[..6], b"before"[..]);
        assert_eq!(out.len() - 6, len);
        packets.push(out.split_off(6));
    }
    assert_eq!(packets.len(), count);
    assert_eq!(packets.iter().map(Vec::len).sum::<usize>(), bytes);
    Ok(packets)
}

/// Returns the offset of the transport header in a frame that the tests have built.
pub fn transport_at(frame: &[u8], network: &Network) -> usize {
    let link = LinkHeader::new(frame).unwrap().header_len();
    match network {
        Network::Ipv4 { options, .. } => link + 20 + options.len().next_multiple_of(4),
        Network::Ipv6 { extensions, .. } => link + 40 + extensions.len(),
    }
}

/// Returns the segmentation type of TCP over this network.
pub fn tcp_over(network: &Network) -> GsoType {
    if matches!(network, Network::Ipv4 { .. }) { TCP4 } else { TCP6 }
}

/// Returns a frame as a kernel passes it on for segmentation, with a partial checksum, and its virtio header.
pub fn tcp(frame: &TcpFrame, size: u16) -> (Vec<u8>, VirtioNetRepr) {
    let mut bytes = frame.build();
    let transport = transport_at(&bytes, &frame.network);
    bytes[transport + 16..transport + 18].fill(0xAA);
    (bytes, partial(virtio(tcp_over(&frame.network), size), transport, 16))
}

/// Returns the expected segments, each built as a sender would build it, without the code under test.
pub fn tcp_segments(whole: &TcpFrame, size: usize) -> Vec<Vec<u8>> {
    let count = whole.payload.len().div_ceil(size).max(1);
    let segment = |nth: usize| {
        let start = nth * size;
        let mut segment = whole.clone();
        segment.payload = whole.payload[start..(start + size).min(whole.payload.len())].to_vec();
        segment.seq += start as u32;
        segment.network = network_at(&whole.network, nth as u16);
        if nth > 0 {
            segment.flags = segment.flags.difference(TcpFlags::CWR);
        }
        if nth + 1 < count {
            segment.flags = segment.flags.difference(TcpFlags::FIN | TcpFlags::PSH);
        }
        segment.build()
    };
    (0..count).map(segment).collect()
}

/// Returns the IP header of the `nth` packet.
pub fn network_at(network: &Network, nth: u16) -> Network {
    let mut network = network.clone();
    if let Network::Ipv4 { ident, .. } = &mut network {
        *ident = ident.wrapping_add(nth);
    }
    network
}

/// Returns `len` bytes without a short period.
pub fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 3) as u8).collect()
}

/// Returns a data segment of `len` bytes over IPv4, with timestamps.
pub fn data(len: usize) -> TcpFrame {
    TcpFrame {
        seq: SeqNumber(0xFFFF_F000),
        flags: TcpFlags::ACK | TcpFlags::PSH,
        options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        payload: payload(len),
        ..TcpFrame::default()
    }
}

/// Returns IPv6 with these extension headers before `upper`; each is a type and its length in units of 8
/// bytes after the first 8.
pub fn ipv6(kinds: &[(IpProtocol, u8)], upper: IpProtocol) -> Network {
    let mut bytes = Vec::new();
    for (nth, &(kind, units)) in kinds.iter().enumerate() {
        let next = kinds.get(nth + 1).map_or(upper, |next| next.0);
        let length = if kind == IpProtocol::FRAGMENT { 0 } else { units };
        let mut header = vec![0; 8 + 8 * usize::from(length)];
        if kind == IpProtocol::AH {
            header = vec![0; 24];
            header[1] = 4;
        } else if kind != IpProtocol::FRAGMENT {
            header[1] = length;
        }
        if kind == IpProtocol::HOP_BY_HOP || kind == IpProtocol::DESTINATION_OPTIONS {
            // One PadN option that fills the header (RFC 8200 section 4.2).
            header[2] = 1;
            header[3] = (header.len() - 4) as u8;
        }
        header[0] = next.0;
        bytes.extend(header);
    }
    let mut network = Network::ipv6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    if let Network::Ipv6 { next_header, extensions, .. } = &mut network {
        *next_header = kinds.first().map_or(upper, |first| first.0);
        *extensions = bytes;
    }
    network
}
