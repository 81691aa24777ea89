//! Packets for the host: frames as received, and aggregates of several segments.

use std::fmt;
use std::io::IoSlice;

use nichrome_wire::{TcpFlags, VirtioNetHeader, checksum, transmitted_checksum};

use crate::frame::Frame;
use crate::identification::Identification;
use crate::reason::FlushReason;
use crate::recycle::Recycled;
use crate::run::Run;
use crate::segment::Layout;
use crate::tunnel::Tunnel;

/// A packet for the host.
pub enum Packet<B> {
    /// A frame as it was received.
    Frame(Frame<B>),
    /// Two or more segments or datagrams of one flow as one.
    Aggregate(Aggregate<B>),
}

impl<B: AsRef<[u8]> + fmt::Debug> fmt::Debug for Packet<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(frame) => f.debug_tuple("Frame").field(frame).finish(),
            Self::Aggregate(aggregate) => f.debug_tuple("Aggregate").field(aggregate).finish(),
        }
    }
}

impl<B: AsRef<[u8]>> Packet<B> {
    /// Returns the length in bytes, headers included.
    pub fn len(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.bytes().len(),
            Self::Aggregate(aggregate) => aggregate.len(),
        }
    }

    /// Returns true if the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of received frames in the packet, 1 or more.
    pub fn segments(&self) -> usize {
        match self {
            Self::Frame(_) => 1,
            Self::Aggregate(aggregate) => aggregate.segments(),
        }
    }
}

/// Two or more TCP segments, or UDP datagrams, of one flow: one header, and the payloads in their receive
/// buffers.
///
/// The TCP or UDP checksum field of the header holds the pseudo-header sum. The kernel completes the
/// checksum, as [`Aggregate::virtio_net_header`] requests; [`Aggregate::copy_to`] completes it in software.
/// Dropping the aggregate returns its buffers to their pool.
pub struct Aggregate<B>(Recycled<Run<B>>);

impl<B: AsRef<[u8]>> Aggregate<B> {
    pub(crate) fn new(run: Recycled<Run<B>>) -> Self {
        Self(run)
    }

    /// The link, IP and TCP or UDP headers.
    pub fn header(&self) -> &[u8] {
        self.0.template().header(self.0.layout)
    }

    /// The payloads, in order, as slices of the received buffers.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.0.payloads()
    }

    /// The received buffers, in order.
    pub fn buffers(&self) -> impl Iterator<Item = &B> {
        self.0.frames().map(|frame| &frame.buffer)
    }

    /// Clears `slices` and fills it with the header and the payloads, for a gathering write.
    pub fn io_slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        slices.clear();
        slices.push(IoSlice::new(self.header()));
        slices.extend(self.payloads().map(IoSlice::new));
    }

    /// Bytes of the whole packet.
    pub fn len(&self) -> usize {
        usize::from(self.0.layout.payload) + self.payload_len()
    }

    /// Returns false: an aggregate has at least two segments.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns true for UDP datagrams, false for TCP segments.
    pub fn is_udp(&self) -> bool {
        self.0.layout.is_udp()
    }

    /// Payload bytes.
    pub fn payload_len(&self) -> usize {
        self.0.bytes as usize
    }

    /// Returns the TCP payload in bytes, 0 for UDP.
    pub(crate) fn tcp_payload_len(&self) -> u32 {
        self.0.tcp_bytes()
    }

    /// Number of segments or datagrams (`gso_segs`), 2 or more.
    pub fn segments(&self) -> usize {
        self.0.segments()
    }

    /// The largest payload of a segment in bytes (`gso_size`).
    pub fn mss(&self) -> u16 {
        self.0.mss as u16
    }

    /// Returns the rule by which the segments' IPv4 identifications follow the header's.
    pub fn identification(&self) -> Identification {
        self.0.identification
    }

    /// As [`Aggregate::identification`], for the tunnel header; `None` without an IPv4 tunnel.
    pub fn tunnel_identification(&self) -> Option<Identification> {
        (self.0.layout.tunnel == Tunnel::Ipv4).then_some(self.0.outer_identification)
    }

    /// Returns true if all segments have the header's CWR flag, as
    /// [`accurate_ecn`](crate::Config::accurate_ecn) allows: a kernel that segments the packet keeps CWR on
    /// the first segment only.
    pub fn repeats_cwr(&self) -> bool {
        !self.is_udp() && self.0.flags.contains(TcpFlags::CWR)
    }

    /// Returns why the engine ended the aggregate.
    pub fn flush_reason(&self) -> FlushReason {
        self.0.reason
    }

    /// Returns the virtio header that describes the packet to a Linux kernel (TAP, AF_PACKET). UDP datagrams
    /// need Linux 6.2 or later.
    pub fn virtio_net_header(&self) -> VirtioNetHeader {
        let layout = self.0.layout;
        let gso_type = match (layout.is_udp(), layout.is_ipv4()) {
            (true, _) => VirtioNetHeader::GSO_UDP_L4,
            (false, true) => VirtioNetHeader::GSO_TCPV4,
            (false, false) => VirtioNetHeader::GSO_TCPV6,
        };
        VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: if self.repeats_cwr() { gso_type | VirtioNetHeader::GSO_ECN } else { gso_type },
            hdr_len: layout.payload,
            gso_size: self.mss(),
            csum_start: layout.transport,
            csum_offset: layout.checksum_offset(),
        }
    }

    /// Clears `packet` and writes the whole packet to it, with a complete TCP or UDP checksum.
    pub fn copy_to(&self, packet: &mut Vec<u8>) {
        packet.clear();
        packet.extend_from_slice(self.header());
        for payload in self.payloads() {
            packet.extend_from_slice(payload);
        }
        complete_checksum(packet, self.0.layout);
    }

    /// Clears `frame` and writes segment `nth` (from 0) to it as the sender would have sent it: with `gro`,
    /// bit for bit the received frame.
    pub fn recreate(&self, nth: usize, frame: &mut Vec<u8>) {
        frame.clear();
        let run = &*self.0;
        let Some((before, payload)) = run.segment(nth) else { return };
        let ends = if nth + 1 < run.segments() { TcpFlags::PSH | TcpFlags::FIN } else { TcpFlags::NONE };
        let flags = run.flags.difference(ends);
        let header = run.template().segment_header(
            run.layout,
            nth as u16,
            before,
            payload.len() as u32,
            flags,
            [run.identification, run.outer_identification],
        );
        frame.extend_from_slice(header.header(run.layout));
        frame.extend_from_slice(payload);
        complete_checksum(frame, run.layout);
    }
}

/// Completes the TCP or UDP checksum of a packet whose checksum field holds the pseudo-header's sum.
fn complete_checksum(packet: &mut [u8], layout: Layout) {
    let transport = usize::from(layout.transport);
    let sum = checksum::checksum(&packet[transport..]);
    let sum = if layout.is_udp() { transmitted_checksum(sum) } else { sum };
    let field = transport + usize::from(layout.checksum_offset());
    packet[field..][..2].copy_from_slice(&sum.to_be_bytes());
}

impl<B: AsRef<[u8]>> fmt::Debug for Aggregate<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregate")
            .field("segments", &self.segments())
            .field("payload_len", &self.payload_len())
            .field("mss", &self.mss())
            .field("flush_reason", &self.flush_reason())
            .finish_non_exhaustive()
    }
}
