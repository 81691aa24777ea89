//! Header prediction: whether a frame carries on a flow is seen from one masked comparison with the header of the
//! flow's first segment, without parsing it again (the idea is Van Jacobson's, applied to coalescing).

use nichrome_wire::checksum::{self, Sum};
use nichrome_wire::{SeqNumber, TcpFlags};

use crate::identification::Identification;
use crate::segment::Layout;

/// The longest header that is kept: Ethernet with two VLAN tags, IPv6 with 64 bytes of extensions, TCP with 60.
pub(crate) const MAX_HEADER: usize = 192;

/// Headers up to this length are compared in one go: Ethernet, one tag, IPv6, TCP with timestamps take 90 bytes.
const USUAL: usize = 96;

/// The bytes of a header; those past its end are zero or left over, and masked.
pub(crate) type HeaderBytes = [u8; MAX_HEADER];

/// Which header bits the segments of one aggregate must share. Lengths, checksums and the sequence number never count;
/// they are checked on their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All that could not be re-created: everything but the identification, PSH and FIN.
    Lossless,
    /// What the host must be able to tell apart: everything but Ethernet addresses, identification, TTL, ACK number,
    /// window, PSH, and the values of the timestamps.
    Stream,
}

/// A header, its layout, and the mask of the bits that count.
///
/// Two comparisons: [`Template::matches`] leaves out what is checked on its own; [`Template::matches_full_size`] compares
/// the lengths too, so that of a segment of full size little is left to check.
///
/// Aligned so that the comparison takes header and mask from memory as they lie there.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Template {
    /// The first segment's header.
    header: HeaderBytes,
    mask: HeaderBytes,
    /// The mask with the lengths.
    full_mask: [u8; USUAL],
    pub(crate) layout: Layout,
    rule: Rule,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            rule: Rule::Lossless,
            header: [0; MAX_HEADER],
            mask: [0; MAX_HEADER],
            full_mask: [0; USUAL],
        }
    }
}

impl Template {
    /// Takes over the header of `frame`, which has this layout. The mask is made anew only where the layout changed.
    #[inline]
    pub(crate) fn set(&mut self, frame: &[u8], layout: Layout, rule: Rule) {
        if self.layout != layout || self.rule != rule {
            self.make_masks(layout, rule);
        }
        match (frame.first_chunk::<USUAL>(), self.header.first_chunk_mut::<USUAL>()) {
            // One fixed-size copy instead of a call for a variable one; what it takes too much is masked.
            (Some(bytes), Some(header)) if usize::from(layout.payload) <= USUAL => *header = *bytes,
            _ => self.set_unusual(frame),
        }
    }

    #[cold]
    fn make_masks(&mut self, layout: Layout, rule: Rule) {
        self.layout = layout;
        self.rule = rule;
        self.mask = mask(layout, rule);
        self.full_mask = full_mask(layout, &self.mask);
    }

    /// As [`Template::set`] for a short frame or a long header.
    #[cold]
    fn set_unusual(&mut self, frame: &[u8]) {
        let len = usize::from(self.layout.payload).min(MAX_HEADER);
        self.header[..len].copy_from_slice(&frame[..len]);
    }

    /// Whether `frame` has the same header where it counts, and the same lengths.
    #[inline]
    pub(crate) fn matches_full_size(&self, frame: &[u8]) -> bool {
        usize::from(self.layout.payload) <= USUAL
            && frame
                .first_chunk::<USUAL>()
                .is_some_and(|frame| equal_where(frame, head(&self.header), &self.full_mask))
    }

    /// Where the IP and TCP headers are, for [`Template::expects`]; `None` where the headers are longer than usual, or frames
    /// of `len` bytes shorter.
    #[inline]
    pub(crate) fn places(&self, len: usize) -> Option<(usize, usize)> {
        let Layout { network, transport, payload, .. } = self.layout;
        (usize::from(payload) <= USUAL && len >= USUAL)
            .then(|| (within(network, USUAL - 12), within(transport, USUAL - 20)))
    }

    /// The flags of a frame that is the expected next one under the lossless rule: equal where it counts, with the same
    /// lengths, this sequence number and identification, and checksums that a sender computes.
    #[inline]
    pub(crate) fn expects(
        &self,
        frame: &[u8],
        (network, transport): (usize, usize),
        seq: SeqNumber,
        ident: u16,
    ) -> Option<TcpFlags> {
        let header: &[u8; USUAL] = frame.first_chunk()?;
        let ip: &[u8; 12] = header.get(network..)?.first_chunk()?;
        let tcp: &[u8; 20] = header.get(transport..)?.first_chunk()?;
        let expected = tcp[4..8] == seq.0.to_be_bytes()
            && tcp[16..18] != [0xFF; 2]
            && (!self.layout.is_ipv4() || (ip[4..6] == ident.to_be_bytes() && ip[10..12] != [0xFF; 2]))
            && equal_where(header, head(&self.header), &self.full_mask);
        expected.then(|| TcpFlags::from_bits_truncate(u16::from(tcp[13])))
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

    /// Whether `frame` has the same header where it counts, and something after it.
    #[inline]
    pub(crate) fn matches(&self, frame: &[u8]) -> bool {
        let len = usize::from(self.layout.payload);
        if frame.len() <= len {
            return false;
        }
        match frame.first_chunk::<USUAL>() {
            Some(frame) if len <= USUAL => equal_where(frame, head(&self.header), head(&self.mask)),
            _ => self.matches_unusual(&frame[..len]),
        }
    }

    /// As [`Template::matches`] for a short frame or a long header.
    #[cold]
    fn matches_unusual(&self, header: &[u8]) -> bool {
        let mut padded = [0; MAX_HEADER];
        match padded.get_mut(..header.len()) {
            Some(place) => place.copy_from_slice(header),
            None => return false,
        }
        equal_where(&padded, &self.header, &self.mask)
    }

    /// The first segment's header.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.layout.payload).min(MAX_HEADER)]
    }

    /// Writes the header of a packet of `payload` bytes that begins where the first segment does: lengths, flags, ACK
    /// number, window, the IPv4 header checksum, and in the TCP checksum field the pseudo-header's sum (what a card
    /// that completes checksums expects).
    pub(crate) fn seal(&mut self, payload: u32, flags: TcpFlags, ack: SeqNumber, window: u16) {
        let transport = within(self.layout.transport, MAX_HEADER - 20);
        self.write(transport + 8, ack.0.to_be_bytes());
        let [_, flags] = flags.bits().to_be_bytes();
        self.write(transport + 13, [flags]);
        self.write(transport + 14, window.to_be_bytes());
        self.write_lengths(payload);
    }

    /// Writes the header of segment `nth` of a sealed packet, `before` bytes after its start, as it was sent, but for
    /// the TCP checksum, which is the pseudo-header's sum. PSH and FIN are for the last segment only.
    pub(crate) fn segment_header(
        &self,
        nth: u16,
        before: u32,
        payload: u32,
        flags: TcpFlags,
        identification: Identification,
    ) -> Self {
        let ident = match identification {
            Identification::Incrementing => self.first_ident().wrapping_add(nth),
            Identification::Fixed | Identification::Any => self.first_ident(),
        };
        let mut header = self.clone();
        let transport = usize::from(self.layout.transport);
        let first_seq = SeqNumber(u32::from_be_bytes(self.read(transport + 4)));
        header.write(transport + 4, (first_seq + before).0.to_be_bytes());
        header.set_ident(ident);
        let [_, flags] = flags.bits().to_be_bytes();
        header.write(transport + 13, [flags]);
        header.write_lengths(payload);
        header
    }

    /// Sets the length fields for `payload` bytes, the IPv4 header checksum by difference (RFC 1624), and the TCP
    /// checksum field to the sum of the pseudo-header.
    fn write_lengths(&mut self, payload: u32) {
        let layout = self.layout;
        let network = within(layout.network, MAX_HEADER - 20);
        let transport = within(layout.transport, MAX_HEADER - 20);
        let ip_len = (u32::from(layout.payload - layout.network) + payload) as u16;
        let tcp_len = u32::from(layout.payload - layout.transport) + payload;
        let addresses = if layout.is_ipv4() {
            let old = u16::from_be_bytes(self.read(network + 2));
            let sum = u16::from_be_bytes(self.read(network + 10));
            self.write(network + 2, ip_len.to_be_bytes());
            self.write(network + 10, checksum::update(sum, old, ip_len).to_be_bytes());
            let [src, dst] = [network + 12, network + 16].map(|at| u32::from_be_bytes(self.read(at)));
            Sum::new().add_u32(src).add_u32(dst)
        } else {
            self.write(network + 4, (ip_len - 40).to_be_bytes());
            Sum::new().add_bytes(&self.read::<32>(network + 8))
        };
        let pseudo = addresses.add_u32(6).add_u32(tcp_len).fold();
        self.write(transport + 16, pseudo.to_be_bytes());
    }

    /// Sets the IPv4 identification, and the header checksum by difference.
    fn set_ident(&mut self, ident: u16) {
        if self.layout.is_ipv4() {
            let network = usize::from(self.layout.network);
            let old = u16::from_be_bytes(self.read(network + 4));
            let sum = u16::from_be_bytes(self.read(network + 10));
            self.write(network + 4, ident.to_be_bytes());
            self.write(network + 10, checksum::update(sum, old, ident).to_be_bytes());
        }
    }

    /// Whether the segments carry the congestion mark (CE, RFC 3168).
    pub(crate) fn is_congestion_experienced(&self) -> bool {
        let at = usize::from(self.layout.network);
        let [first, second] = self.read(at);
        let class = if self.layout.is_ipv4() { second } else { first << 4 | second >> 4 };
        class & 0b11 == 0b11
    }

    /// A copy of the header.
    pub(crate) fn header_array(&self) -> HeaderBytes {
        self.header
    }

    /// The IPv4 identification of the first segment.
    #[inline]
    pub(crate) fn first_ident(&self) -> u16 {
        u16::from_be_bytes(self.read(usize::from(self.layout.network) + 4))
    }
}

/// A place in a header, within a bound that the compiler sees: what is read there is not checked any more.
#[inline]
fn within(place: u16, bound: usize) -> usize {
    usize::from(place).min(bound)
}

fn head(header: &HeaderBytes) -> &[u8; USUAL] {
    const { assert!(USUAL <= MAX_HEADER) };
    header.first_chunk().unwrap_or(&[0; USUAL])
}

/// Whether `a` and `b` are equal in the bits that `mask` has set. Without branches and 16 bytes at a time, so that it becomes
/// a few vector instructions.
#[inline]
fn equal_where<const N: usize>(a: &[u8; N], b: &[u8; N], mask: &[u8; N]) -> bool {
    let mut difference = [0; 16];
    for ((a, b), mask) in a.chunks_exact(16).zip(b.chunks_exact(16)).zip(mask.chunks_exact(16)) {
        for (at, difference) in difference.iter_mut().enumerate() {
            *difference |= (a[at] ^ b[at]) & mask[at];
        }
    }
    difference.into_iter().fold(0, |all, byte| all | byte) == 0
}

/// The bits that count for this layout.
fn mask(layout: Layout, rule: Rule) -> HeaderBytes {
    let (network, transport, payload) =
        (usize::from(layout.network), usize::from(layout.transport), usize::from(layout.payload));
    let mut mask = [0; MAX_HEADER];
    mask[..payload.min(MAX_HEADER)].fill(0xFF);
    let mut free = |at: usize, len: usize| mask[at..at + len].fill(0);
    if layout.is_ipv4() {
        free(network + 2, 4); // total length, identification
        free(network + 10, 2); // header checksum
    } else {
        free(network + 4, 2); // payload length
    }
    free(transport + 4, 4); // sequence number
    free(transport + 16, 2); // checksum
    if rule == Rule::Stream {
        free(0, if network >= 12 { 12 } else { 0 }); // Ethernet addresses
        free(network + if layout.is_ipv4() { 8 } else { 7 }, 1); // TTL, hop limit
        free(transport + 8, 4); // ACK number
        free(transport + 14, 2); // window
        if let Some(at) = layout.timestamps() {
            free(at, 8);
        }
    }
    const PSH: u8 = 0x08;
    const FIN: u8 = 0x01;
    mask[transport + 13] = match rule {
        Rule::Lossless => !(PSH | FIN),
        Rule::Stream => !PSH,
    };
    mask
}

/// The bits that count for a segment of full size: the lengths, too.
fn full_mask(layout: Layout, mask: &HeaderBytes) -> [u8; USUAL] {
    let mut full = *head(mask);
    let length = usize::from(layout.network) + if layout.is_ipv4() { 2 } else { 4 };
    if let Some(place) = full.get_mut(length..length + 2) {
        place.fill(0xFF);
    }
    full
}
