//! Header fields of a received TCP segment, read in one pass.

use nichrome_wire::{IpProtocol, SeqNumber, TcpFlags, UdpHeader};

use crate::flow::FlowKey;
use crate::reason::PassReason;
use crate::tunnel::Tunnel;

/// The outermost header of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Medium {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IP header (TUN, raw IP captures).
    Ip,
}

/// Positions of the headers of a frame, in bytes from its start. Frames with the same layout differ in values
/// only.
///
/// The order of fields is the order in memory, so that [`Layout::number`] reads them at once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq)]
pub(crate) struct Layout {
    /// The IP header that the transport header belongs to.
    pub(crate) network: u8,
    /// The headers between the link header and that IP header.
    pub(crate) tunnel: Tunnel,
    /// The TCP or UDP header.
    pub(crate) transport: u16,
    /// The payload.
    pub(crate) payload: u16,
    pub(crate) version: u8,
    /// Position of the timestamp values, from the start of the TCP options; 0 without timestamps.
    pub(crate) timestamps: u8,
}

impl PartialEq for Layout {
    /// Compares the layouts as numbers.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl Layout {
    /// Returns the fields as one number: a comparison of layouts is one of numbers.
    #[inline(always)]
    pub(crate) const fn number(self) -> u64 {
        let [c, d] = self.transport.to_ne_bytes();
        let [e, f] = self.payload.to_ne_bytes();
        u64::from_ne_bytes([self.network, self.tunnel as u8, c, d, e, f, self.version, self.timestamps])
    }

    /// Returns true for IPv4, false for IPv6.
    #[inline]
    pub(crate) fn is_ipv4(self) -> bool {
        self.version == 4
    }

    /// Returns the position of the tunnel header, or of the IP header without a tunnel.
    #[inline]
    pub(crate) fn outer(self) -> usize {
        usize::from(self.network) - self.tunnel.len()
    }

    /// Returns the number of bytes from the IP header to the payload.
    #[inline]
    pub(crate) fn ip_headers(self) -> u16 {
        self.payload - u16::from(self.network)
    }

    /// Returns the header bytes that count for the length of a packet: from the outermost IP header to the
    /// payload.
    #[inline]
    pub(crate) fn counted_headers(self) -> u32 {
        u32::from(self.ip_headers()) + self.tunnel.counted() as u32
    }

    /// Returns true if the transport header is UDP's; TCP's has 20 bytes or more.
    #[inline]
    pub(crate) fn is_udp(self) -> bool {
        usize::from(self.payload - self.transport) == UdpHeader::LEN
    }

    /// Returns the transport protocol.
    #[inline]
    pub(crate) fn protocol(self) -> IpProtocol {
        if self.is_udp() { IpProtocol::UDP } else { IpProtocol::TCP }
    }

    /// Returns the offset of the checksum in the transport header.
    #[inline]
    pub(crate) fn checksum_offset(self) -> u16 {
        if self.is_udp() { 6 } else { 16 }
    }

    /// Returns the position of the timestamp values, in bytes from the start of the frame.
    #[inline]
    pub(crate) fn timestamps(self) -> Option<usize> {
        (self.timestamps > 0).then(|| usize::from(self.transport) + 20 + usize::from(self.timestamps))
    }
}

/// The values of a timestamps option (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamps {
    pub(crate) value: u32,
    pub(crate) echo: u32,
}

/// A well-formed TCP segment that is a whole IP packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) flow: FlowKey,
    pub(crate) layout: Layout,
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    pub(crate) flags: TcpFlags,
    pub(crate) window: u16,
    pub(crate) payload_len: u32,
    pub(crate) timestamps: Option<Timestamps>,
    /// TCP options other than timestamps and padding are present.
    pub(crate) other_options: bool,
    pub(crate) ip_options: bool,
    /// Bytes follow the IP packet.
    pub(crate) trailer: bool,
    pub(crate) usual_checksums: UsualChecksums,
    /// Marked CE (RFC 3168).
    pub(crate) congestion_experienced: bool,
}

impl Segment {
    /// Returns the sequence number after the payload; SYN and FIN do not count.
    #[inline]
    pub(crate) fn end(&self) -> SeqNumber {
        self.seq + self.payload_len
    }

    /// Returns why the segment cannot be coalesced in any profile: its flags, or no payload. PSH and FIN are
    /// left to the profile.
    #[inline]
    pub(crate) fn control(&self) -> Option<PassReason> {
        self.control_unless(TcpFlags::NONE)
    }

    /// As [`Segment::control`] for a profile that also coalesces segments with the flags `free`.
    #[inline]
    pub(crate) fn control_unless(&self, free: TcpFlags) -> Option<PassReason> {
        let flags = self.flags.difference(free);
        let data = TcpFlags::PSH | TcpFlags::FIN | TcpFlags::ECE;
        let is_data = flags.difference(data) == TcpFlags::ACK && self.payload_len > 0 && !self.ip_options;
        (!is_data).then(|| why_control(flags, self.payload_len))
    }
}

/// Returns the reason for a segment that [`Segment::control`] rejects.
fn why_control(flags: TcpFlags, payload_len: u32) -> PassReason {
    if flags.contains(TcpFlags::SYN) {
        PassReason::Syn
    } else if flags.contains(TcpFlags::RST) {
        PassReason::Rst
    } else if payload_len == 0 {
        if flags.contains(TcpFlags::FIN) { PassReason::Fin } else { PassReason::PureAck }
    } else if flags.contains(TcpFlags::URG) {
        PassReason::Urg
    } else if flags.intersects(TcpFlags::CWR | TcpFlags::AE) {
        PassReason::CongestionFlags
    } else if !flags.contains(TcpFlags::ACK) {
        PassReason::UnusualFlags
    } else {
        PassReason::IpOptions
    }
}

/// Which checksums are not 0xFFFF, a value that a sender never computes and the engine could not re-create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsualChecksums {
    /// The IPv4 header checksums, inner and tunnel.
    pub(crate) ip: bool,
    pub(crate) tcp: bool,
}

/// The fields that start a run under the lossless rule.
#[derive(Clone, Copy)]
pub(crate) struct FirstSegment {
    pub(crate) layout: Layout,
    pub(crate) seq: SeqNumber,
    pub(crate) payload_len: u32,
    /// The IPv4 identification.
    pub(crate) ident: u16,
    pub(crate) flags: TcpFlags,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
}

/// The fields that may differ between the segments of a run, read at the offsets of a known layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    pub(crate) seq: SeqNumber,
    pub(crate) flags: TcpFlags,
    pub(crate) idents: Idents,
    pub(crate) payload_len: u32,
    /// Bytes follow the IP packet.
    pub(crate) trailer: bool,
    pub(crate) usual_checksums: UsualChecksums,
}

impl Follower {
    /// Reads a frame with this layout; `None` if its length fields disagree with the layout or the frame.
    #[inline]
    pub(crate) fn read(frame: &[u8], layout: Layout) -> Option<Self> {
        let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
        let ip: &[u8; 12] = frame.get(network..)?.first_chunk()?;
        let tcp: &[u8; 20] = frame.get(transport..)?.first_chunk()?;
        let be16 = |high: u8, low: u8| u16::from_be_bytes([high, low]);
        let total =
            if layout.is_ipv4() { u32::from(be16(ip[2], ip[3])) } else { u32::from(be16(ip[4], ip[5])) + 40 };
        let end = network + total as usize;
        Some(Self {
            seq: SeqNumber(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])),
            flags: TcpFlags::from_bits_truncate(be16(tcp[12], tcp[13])),
            idents: Idents::read(frame, layout),
            payload_len: total.checked_sub(u32::from(layout.ip_headers()))?,
            trailer: end < frame.len(),
            usual_checksums: UsualChecksums {
                ip: has_usual_ip_checksums(frame, layout),
                tcp: be16(tcp[16], tcp[17]) != 0xFFFF,
            },
        })
        .filter(|_| end <= frame.len() && is_wrapped_whole(frame, layout, total))
    }
}

/// Returns true if the length field of the tunnel header is right for an IP packet of `total` bytes; true
/// without a tunnel.
#[inline]
fn is_wrapped_whole(frame: &[u8], layout: Layout, total: u32) -> bool {
    let Some((at, len)) = layout.tunnel.length(total as u16) else { return true };
    let at = layout.outer() + at;
    frame.get(at..at + 2) == Some(&len.to_be_bytes())
}

/// Returns true if no IPv4 header checksum of a frame with this layout is 0xFFFF.
#[inline]
fn has_usual_ip_checksums(frame: &[u8], layout: Layout) -> bool {
    let is_usual = |ip: usize| frame.get(ip + 10..ip + 12) != Some(&[0xFF; 2]);
    (!layout.is_ipv4() || is_usual(usize::from(layout.network)))
        && (layout.tunnel != Tunnel::Ipv4 || is_usual(layout.outer()))
}

/// The IPv4 identifications of a packet, inner and tunnel; 0 without an IPv4 header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Idents {
    pub(crate) own: u16,
    pub(crate) outer: u16,
}

impl Idents {
    /// Reads the identifications of a frame with this layout.
    #[inline]
    pub(crate) fn read(frame: &[u8], layout: Layout) -> Self {
        let at = |ip: usize| {
            let ident = frame.get(ip + 4..).and_then(|ident| ident.first_chunk()).copied();
            ident.map_or(0, u16::from_be_bytes)
        };
        Self {
            own: if layout.is_ipv4() { at(usize::from(layout.network)) } else { 0 },
            outer: if layout.tunnel == Tunnel::Ipv4 { at(layout.outer()) } else { 0 },
        }
    }
}

/// Returns the payload of a frame with this layout; `None` if its length fields disagree with the layout.
#[inline]
pub(crate) fn payload(frame: &[u8], layout: Layout) -> Option<&[u8]> {
    let network = usize::from(layout.network);
    let at = network + if layout.is_ipv4() { 2 } else { 4 };
    let len = usize::from(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let end = network + if layout.is_ipv4() { len } else { len + 40 };
    frame.get(usize::from(layout.payload)..end)
}
