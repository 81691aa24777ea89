//! The packets of a frame, as an iterator.

use std::num::NonZeroU16;

use nichrome_wire::checksum::Sum;
use nichrome_wire::{ChecksumState, Gso, GsoType, IpProtocol, UdpHeader, VirtioNetRepr};

use crate::checksum;
use crate::error::SegmentError;
use crate::fragment::FragmentFields;
use crate::in_place::InPlace;
use crate::ip::IpPacket;
use crate::plan::{Fields, Plan};
use crate::tcp::{self, TcpFields};
use crate::tunnel::Tunnel;
use crate::udp::{self, UdpFields};

/// The packets of a frame: see the [crate] for the rules.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    plan: Plan,
}

/// The maximum size of the packets of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Payload of each TCP segment or UDP datagram but the last, in bytes.
    Payload(NonZeroU16),
    /// The maximum IP packet length (the MTU), in bytes, tunnel headers included.
    Packet(u16),
}

impl<'a> Segments<'a> {
    /// Segments `frame`, which begins with its Ethernet header, as `virtio` requests.
    ///
    /// # Errors
    /// The frame contradicts `virtio`, or its headers are malformed: see [`SegmentError`].
    pub fn new(frame: &'a [u8], virtio: &VirtioNetRepr) -> Result<Self, SegmentError> {
        match virtio.gso {
            Some(gso) => Self::cut(frame, gso, virtio.checksum),
            None => Self::one(frame, virtio.checksum),
        }
    }

    /// Wraps a frame that needs no segmentation.
    fn one(frame: &'a [u8], checksum: ChecksumState) -> Result<Self, SegmentError> {
        let len = frame.len();
        let ChecksumState::Partial { start, offset } = checksum else {
            return Ok(Self { frame, plan: Plan::new(0, 0..len, len, Fields::None) });
        };
        checksum::check_within(frame, start, offset)?;
        let start = usize::from(start);
        Ok(Self { frame, plan: Plan::new(start, start..len, len - start, Fields::Checksum(offset)) })
    }

    /// Prepares a frame that needs segmentation.
    fn cut(frame: &'a [u8], gso: Gso, checksum: ChecksumState) -> Result<Self, SegmentError> {
        let (tunnel, packet) = match (checksum, gso.gso_type) {
            // Fragments are not tunneled: the datagram is the frame's own.
            (ChecksumState::Partial { start, .. }, kind) if kind != GsoType::Udp => {
                Tunnel::enter_until(frame, start)?
            }
            _ => (None, IpPacket::parse(frame)?),
        };
        packet.check_type(gso.gso_type)?;
        let size = usize::from(gso.size.get());
        let plan = match gso.gso_type {
            GsoType::TcpV4(_) | GsoType::TcpV6(_) => {
                check_place(checksum, packet.transport, tcp::CHECKSUM_AT)?;
                let (fields, header_len) = TcpFields::read(frame, &packet)?;
                Plan::of(&packet, header_len, size, Fields::Tcp(fields))
            }
            GsoType::Udp if packet.payload.len() > size => {
                check_place(checksum, packet.transport, udp::CHECKSUM_AT)?;
                let (fields, size) = FragmentFields::read(frame, &packet, gso.size)?;
                Plan::of(&packet, 0, size, Fields::Fragment(fields))
            }
            GsoType::Udp | GsoType::UdpL4 => {
                check_place(checksum, packet.transport, udp::CHECKSUM_AT)?;
                let fields = UdpFields::read(frame, &packet)?;
                Plan::of(&packet, UdpHeader::LEN, size, Fields::Udp(fields))
            }
        };
        Ok(Self { frame, plan: plan.in_tunnel(tunnel) })
    }

    /// Segments a frame without a virtio header, such as one from a capture, into TCP segments or UDP
    /// datagrams within `limit`, also inside IP in IP or PPP over Ethernet. Treats VXLAN and Geneve as plain
    /// UDP.
    ///
    /// # Errors
    /// The frame has no TCP segment or UDP datagram that can be segmented, or the limit leaves no room for
    /// payload.
    pub fn within(frame: &'a [u8], limit: Limit) -> Result<Self, SegmentError> {
        let (tunnel, packet) = Tunnel::enter(frame)?;
        Self::cut_within(frame, tunnel, &packet, limit)
    }

    /// As [`Segments::within`], also inside VXLAN and Geneve at the ports that IANA has assigned. Not for
    /// merged datagrams: the lengths in the inner headers of the first one may span all of them.
    ///
    /// # Errors
    /// As for [`Segments::within`], or the packet in VXLAN or Geneve does not end with the datagram.
    pub fn within_any_tunnel(frame: &'a [u8], limit: Limit) -> Result<Self, SegmentError> {
        let (tunnel, packet) = Tunnel::enter_any(frame)?;
        Self::cut_within(frame, tunnel, &packet, limit)
    }

    fn cut_within(
        frame: &'a [u8],
        tunnel: Option<Tunnel>,
        packet: &IpPacket<'a>,
        limit: Limit,
    ) -> Result<Self, SegmentError> {
        let (fields, header_len) = match packet.protocol {
            IpProtocol::TCP => {
                let (fields, header_len) = TcpFields::read(frame, packet)?;
                (Fields::Tcp(fields), header_len)
            }
            IpProtocol::UDP => (Fields::Udp(UdpFields::read(frame, packet)?), UdpHeader::LEN),
            other => return Err(SegmentError::OtherProtocol(other)),
        };
        let outermost = tunnel.as_ref().map_or(packet.network, |tunnel| tunnel.at);
        let headers = packet.transport - outermost + header_len;
        let size = match limit {
            Limit::Payload(payload) => usize::from(payload.get()),
            Limit::Packet(bytes) => match usize::from(bytes).checked_sub(headers) {
                None | Some(0) => return Err(SegmentError::NoRoom { headers, limit: bytes }),
                Some(room) => room,
            },
        };
        Ok(Self { frame, plan: Plan::of(packet, header_len, size, fields).in_tunnel(tunnel) })
    }

    /// Leaves the checksums of TCP segments partial, with the pseudo-header's sum, for a receiver that
    /// completes or ignores them. Returns their state; `None` if the frame needs no TCP segmentation, or is
    /// in a tunnel, whose checksum may cover them.
    pub fn leave_tcp_checksums(&mut self) -> Option<ChecksumState> {
        match (&mut self.plan.fields, &self.plan.tunnel) {
            (Fields::Tcp(fields), None) => Some(fields.leave_checksum()),
            _ => None,
        }
    }

    /// Makes all TCP segments have the frame's CWR flag, as the ACE counter of accurate ECN (RFC 9768) needs;
    /// otherwise only the first has it.
    pub fn repeat_cwr(&mut self) {
        if let Fields::Tcp(fields) = &mut self.plan.fields {
            fields.repeat_cwr();
        }
    }

    /// Makes all packets have the frame's IPv4 identification, instead of increasing ones.
    pub fn fix_identification(&mut self) {
        match &mut self.plan.fields {
            Fields::Tcp(fields) => fields.fix_identification(),
            Fields::Udp(fields) => fields.fix_identification(),
            Fields::None | Fields::Checksum(_) | Fields::Fragment(_) => {}
        }
    }

    /// As [`Segments::fix_identification`], for the IPv4 header of a tunnel.
    pub fn fix_tunnel_identification(&mut self) {
        self.plan.tunnel.iter_mut().for_each(Tunnel::fix_identification);
    }

    /// Returns the number of remaining packets.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.plan.remaining
    }

    /// Returns the total length of the remaining packets, including headers, in bytes.
    #[inline]
    pub fn bytes_remaining(&self) -> usize {
        self.plan.bytes_remaining()
    }

    /// Returns the length of the next packet, including headers; 0 if there is none. Later packets are not
    /// longer.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.plan.packet_len()
    }

    /// Ends the borrow of the frame, so that the remaining packets can be written over it.
    pub fn in_place(self) -> InPlace {
        InPlace::new(self.plan)
    }

    /// Writes the next packet to the start of `out`, which has [`Segments::packet_len`] bytes or more, as
    /// [`Segments::append_next`] does. Returns its length; 0 if there is none.
    ///
    /// # Panics
    /// `out` is shorter.
    pub fn write_next(&mut self, out: &mut [u8]) -> usize {
        let Some((header, payload, sum)) = self.next_parts() else { return 0 };
        let packet = &mut out[..header.len() + payload.len()];
        packet[..header.len()].copy_from_slice(header);
        packet[header.len()..].copy_from_slice(payload);
        self.plan.write_fields(packet, sum);
        packet.len()
    }

    /// Appends the next packet to `out`; returns false if there is none. Its checksums are complete, unless
    /// [`Segments::leave_tcp_checksums`] was called.
    pub fn append_next(&mut self, out: &mut Vec<u8>) -> bool {
        let Some((header, payload, sum)) = self.next_parts() else { return false };
        let start = out.len();
        out.reserve(header.len() + payload.len());
        out.extend_from_slice(header);
        out.extend_from_slice(payload);
        self.plan.write_fields(&mut out[start..], sum);
        true
    }

    /// Takes the next packet's header, payload, and sum of the payload. It is summed before it is copied:
    /// that reads ahead better, and leaves the payload in the cache for the copy.
    fn next_parts(&mut self) -> Option<(&'a [u8], &'a [u8], Sum)> {
        let payload = &self.frame[self.plan.next_payload()?];
        Some((&self.frame[..self.plan.header_len], payload, self.plan.sum(payload)))
    }
}

/// Checks that the virtio header's checksum field is the transport header's.
fn check_place(checksum: ChecksumState, transport: usize, field: u16) -> Result<(), SegmentError> {
    match checksum {
        ChecksumState::Partial { start, offset } if usize::from(start) != transport || offset != field => {
            Err(SegmentError::NotTheChecksum { start, offset, transport, field })
        }
        _ => Ok(()),
    }
}
