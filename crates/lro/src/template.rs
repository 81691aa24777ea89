//! The header of an aggregate, rewritten from its first segment's, and the headers of its segments re-created
//! from it.

use nichrome_wire::checksum::{self, Sum};
use nichrome_wire::{SeqNumber, TcpFlags, UdpHeader};

use crate::common::{self, AggregateFields};
use crate::identification::Identification;
use crate::segment::Layout;
use crate::tunnel::Tunnel;

/// Longest header that is kept, in bytes: Ethernet with two VLAN tags, IPv6 with 64 bytes of extensions or
/// within IPv6, TCP with 60.
pub(crate) const MAX_HEADER: usize = 192;

/// Headers up to this length are copied and compared at once: Ethernet, one tag, IPv6 and TCP with timestamps
/// take 90 bytes.
pub(crate) const COMMON_LEN: usize = 96;

/// The bytes of a header; those after its end are undefined and masked in comparisons.
pub(crate) type HeaderBytes = [u8; MAX_HEADER];

/// The header of a packet, for rewriting.
#[derive(Clone)]
pub(crate) struct Template {
    header: HeaderBytes,
}

impl Default for Template {
    fn default() -> Self {
        Self { header: [0; MAX_HEADER] }
    }
}

impl Template {
    /// Copies the header of `frame`, which has this layout.
    #[inline]
    pub(crate) fn set(&mut self, frame: &[u8], layout: Layout) {
        match (frame.first_chunk::<COMMON_LEN>(), self.header.first_chunk_mut::<COMMON_LEN>()) {
            // One copy of fixed size instead of a call for a variable one; the excess is never read.
            (Some(bytes), Some(header)) if usize::from(layout.payload) <= COMMON_LEN => *header = *bytes,
            _ => self.set_uncommon(frame, layout),
        }
    }

    /// As [`Template::set`] for a short frame or a long header.
    #[cold]
    #[inline(never)]
    fn set_uncommon(&mut self, frame: &[u8], layout: Layout) {
        let len = usize::from(layout.payload).min(MAX_HEADER);
        self.header[..len].copy_from_slice(&frame[..len]);
    }

    #[inline]
    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        self.header.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    #[inline]
    fn write<const N: usize>(&mut self, at: usize, field: [u8; N]) {
        if let Some(place) = self.header.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = field;
        }
    }

    /// Returns the header, which has this layout.
    pub(crate) fn header(&self, layout: Layout) -> &[u8] {
        &self.header[..usize::from(layout.payload).min(MAX_HEADER)]
    }

    /// Writes the aggregate's header, from the header of `first`, a frame with this layout: lengths; TCP
    /// flags, ACK number and window; the IPv4 header checksum; and in the transport checksum field the
    /// pseudo-header sum, which a card completes.
    #[inline(never)]
    pub(crate) fn seal(
        &mut self,
        first: &[u8],
        layout: Layout,
        AggregateFields { payload, flags, ack, window }: AggregateFields,
    ) {
        self.set(first, layout);
        if layout.is_udp() {
            return self.write_lengths(layout, payload);
        }
        let transport = within(layout.transport, MAX_HEADER - 20);
        self.write(transport + 8, ack.0.to_be_bytes());
        let [_, flags] = flags.bits().to_be_bytes();
        self.write(transport + 13, [flags]);
        self.write(transport + 14, window.to_be_bytes());
        self.write_lengths(layout, payload);
    }

    /// As [`Template::seal`], for a [common frame](crate::common).
    #[inline(always)]
    pub(crate) fn seal_common(&mut self, first: &[u8; COMMON_LEN], layout: Layout, fields: AggregateFields) {
        const { assert!(common::LONGEST <= COMMON_LEN && COMMON_LEN <= MAX_HEADER) };
        if let Some(header) = self.header.first_chunk_mut() {
            *header = *first;
            common::seal(first, header, layout.payload.into(), fields);
        }
    }

    /// Returns the header of segment `nth` of a sealed aggregate, `before` bytes after its start, as sent.
    /// The transport checksum field holds the pseudo-header sum. Only the last segment has PSH or FIN.
    pub(crate) fn segment_header(
        &self,
        layout: Layout,
        nth: u16,
        before: u32,
        payload: u32,
        flags: TcpFlags,
        [own, outer]: [Identification; 2],
    ) -> Self {
        let mut header = self.clone();
        let network = usize::from(layout.network);
        if layout.is_ipv4() {
            header.set_ident(network, own.of(self.ident_at(network), nth));
        }
        if layout.tunnel == Tunnel::Ipv4 {
            header.set_ident(layout.outer(), outer.of(self.ident_at(layout.outer()), nth));
        }
        if !layout.is_udp() {
            let transport = usize::from(layout.transport);
            let first_seq = SeqNumber(u32::from_be_bytes(self.read(transport + 4)));
            header.write(transport + 4, (first_seq + before).0.to_be_bytes());
            let [_, flags] = flags.bits().to_be_bytes();
            header.write(transport + 13, [flags]);
        }
        header.write_lengths(layout, payload);
        header
    }

    /// Sets the length fields for `payload` bytes, updates the IPv4 header checksum incrementally (RFC 1624),
    /// and writes the pseudo-header sum to the transport checksum field.
    fn write_lengths(&mut self, layout: Layout, payload: u32) {
        let network = within(layout.network.into(), MAX_HEADER - 20);
        let transport = within(layout.transport, MAX_HEADER - UdpHeader::LEN);
        let ip_len = (u32::from(layout.ip_headers()) + payload) as u16;
        let transport_len = u32::from(layout.payload - layout.transport) + payload;
        let addresses = if layout.is_ipv4() {
            self.write_ipv4_length(network, ip_len);
            let [src, dst] = [network + 12, network + 16].map(|at| u32::from_be_bytes(self.read(at)));
            Sum::new().add_u32(src).add_u32(dst)
        } else {
            self.write(network + 4, (ip_len - 40).to_be_bytes());
            Sum::new().add_bytes(&self.read::<32>(network + 8))
        };
        match layout.tunnel.length(ip_len) {
            Some((_, len)) if layout.tunnel == Tunnel::Ipv4 => self.write_ipv4_length(layout.outer(), len),
            Some((at, len)) => self.write(layout.outer() + at, len.to_be_bytes()),
            None => {}
        }
        if layout.is_udp() {
            self.write(transport + 4, (transport_len as u16).to_be_bytes());
        }
        let pseudo = addresses.add_u32(u32::from(layout.protocol().0)).add_u32(transport_len).fold();
        self.write(transport + usize::from(layout.checksum_offset()), pseudo.to_be_bytes());
    }

    /// Sets the total length of the IPv4 header at `ip`, and updates the header checksum incrementally.
    fn write_ipv4_length(&mut self, ip: usize, len: u16) {
        self.replace(ip, ip + 2, len);
    }

    /// Sets the identification of the IPv4 header at `ip`, and updates the header checksum incrementally.
    fn set_ident(&mut self, ip: usize, ident: u16) {
        self.replace(ip, ip + 4, ident);
    }

    /// Sets a field of the IPv4 header at `ip`, and updates the header checksum incrementally.
    fn replace(&mut self, ip: usize, field: usize, value: u16) {
        let old = u16::from_be_bytes(self.read(field));
        let sum = u16::from_be_bytes(self.read(ip + 10));
        self.write(field, value.to_be_bytes());
        self.write(ip + 10, checksum::update(sum, old, value).to_be_bytes());
    }

    /// Returns the identification of the IPv4 header at `ip`.
    fn ident_at(&self, ip: usize) -> u16 {
        u16::from_be_bytes(self.read(ip + 4))
    }

    /// Returns true if the segments carry the congestion mark (CE, RFC 3168).
    pub(crate) fn is_congestion_experienced(&self, layout: Layout) -> bool {
        let at = usize::from(layout.network);
        let [first, second] = self.read(at);
        let class = if layout.is_ipv4() { second } else { first << 4 | second >> 4 };
        class & 0b11 == 0b11
    }

    /// Returns a copy of the header.
    pub(crate) fn header_array(&self) -> HeaderBytes {
        self.header
    }
}

/// Clamps a position to a bound that the compiler can see, which saves the bounds check of the access.
#[inline]
fn within(place: u16, bound: usize) -> usize {
    usize::from(place).min(bound)
}
