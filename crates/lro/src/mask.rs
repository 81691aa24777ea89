//! Header prediction: one masked comparison with the header of a flow's first segment tells whether a frame
//! extends the flow, without parsing it (Van Jacobson's idea, applied to coalescing).

use nichrome_wire::{SeqNumber, TcpFlags};
use pulp::Arch;

use crate::common::{self, equal_where};
use crate::ident_and_checksum::IdentAndChecksum;
use crate::segment::Layout;
use crate::template::{COMMON_LEN, HeaderBytes, MAX_HEADER};
use crate::tunnel::Tunnel;

/// Which header bits the segments of one aggregate must share. Lengths, checksums and the sequence number are
/// checked separately. Datagrams merge under the lossless rule only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Every bit that could not be re-created otherwise: all except identification, PSH and FIN.
    Lossless,
    /// Every bit that the host must be able to distinguish: all except Ethernet addresses, identification,
    /// TTL, ACK number, window, PSH and timestamp values.
    Stream,
    /// As `Stream`, and TTL: the rule of the hardware module.
    StreamOfOneTtl,
}

/// The header bits to compare in frames of one layout.
///
/// [`Mask::matches`] leaves out the fields that are checked separately. [`Mask::matches_full_size`] also
/// compares the lengths, which leaves little to check for a full-size segment.
#[repr(C, align(64))]
pub(crate) struct Mask {
    bits: HeaderBytes,
    /// The leading `bits`, and the length fields.
    full_bits: [u8; COMMON_LEN],
    layout: Layout,
}

impl Mask {
    fn new(layout: Layout, rule: Rule) -> Self {
        let bits = mask(layout, rule);
        Self { bits, full_bits: full_mask(layout, &bits), layout }
    }

    /// Returns true if `frame` has the masked header bits of `first`, and bytes after the header.
    #[inline]
    pub(crate) fn matches(&self, first: &[u8], frame: &[u8]) -> bool {
        let len = usize::from(self.layout.payload);
        if frame.len() <= len {
            return false;
        }
        match (first.first_chunk::<COMMON_LEN>(), frame.first_chunk::<COMMON_LEN>()) {
            (Some(first), Some(frame)) if len <= COMMON_LEN => {
                equal_where(frame, first, common_part(&self.bits))
            }
            _ => self.matches_uncommon(first, frame),
        }
    }

    /// As [`Mask::matches`] for a short frame or a long header.
    #[cold]
    fn matches_uncommon(&self, first: &[u8], frame: &[u8]) -> bool {
        let padded = |frame: &[u8]| {
            let mut header = [0; MAX_HEADER];
            let len = usize::from(self.layout.payload);
            header.get_mut(..len)?.copy_from_slice(frame.get(..len)?);
            Some(header)
        };
        match (padded(first), padded(frame)) {
            (Some(first), Some(frame)) => equal_where(&frame, &first, &self.bits),
            _ => false,
        }
    }

    /// Returns true if `frame` has the masked header bits of `first`, and the same lengths.
    #[inline]
    pub(crate) fn matches_full_size(&self, first: &[u8; COMMON_LEN], frame: &[u8; COMMON_LEN]) -> bool {
        usize::from(self.layout.payload) <= COMMON_LEN && equal_where(frame, first, &self.full_bits)
    }

    /// Returns the header with which the frames after `first` are compared under the lossless rule; `None` if
    /// their headers exceed [`COMMON_LEN`] bytes, or have two identifications to check.
    #[inline(always)]
    pub(crate) fn expected<'a>(&'a self, first: &'a [u8; COMMON_LEN]) -> Option<Expected<'a>> {
        let Layout { network, tunnel, transport, payload, .. } = self.layout;
        // `Expected` checks one identification only.
        (usize::from(payload) <= COMMON_LEN && tunnel != Tunnel::Ipv4).then(|| Expected {
            mask: &self.full_bits,
            header: first,
            network: usize::from(network).min(COMMON_LEN - 12),
            transport: usize::from(transport).min(COMMON_LEN - 20),
            is_ipv4: self.layout.is_ipv4(),
        })
    }

    /// As [`Mask::expected`], for [common frames](crate::common).
    #[inline(always)]
    pub(crate) fn expected_common<'a>(&'a self, first: &'a [u8; COMMON_LEN]) -> Option<Expected<'a>> {
        self.expected(first).map(|expected| Expected {
            network: common::NETWORK,
            transport: common::TRANSPORT,
            is_ipv4: true,
            ..expected
        })
    }
}

/// The header that the next segments of a flow must have, and the positions of the fields that change:
/// computed once per train.
pub(crate) struct Expected<'a> {
    mask: &'a [u8; COMMON_LEN],
    header: &'a [u8; COMMON_LEN],
    network: usize,
    transport: usize,
    is_ipv4: bool,
}

impl Expected<'_> {
    /// Returns the identification and checksum fields of an IPv4 packet that has the first packet's header
    /// and an identification greater by `steps`.
    #[inline(always)]
    pub(crate) fn after(&self, steps: u16) -> IdentAndChecksum {
        let ip = self.header.get(self.network..).and_then(|ip| ip.first_chunk()).unwrap_or(&[0; 12]);
        IdentAndChecksum::of(ip).after(steps)
    }

    /// Returns the flags of a frame if it is the expected next one: equal header bits and lengths, this
    /// sequence number, identification and IPv4 checksum, and a TCP checksum that can be re-created.
    #[inline(always)]
    pub(crate) fn flags_of(
        &self,
        frame: &[u8],
        seq: SeqNumber,
        ip_fields: IdentAndChecksum,
    ) -> Option<TcpFlags> {
        let frame: &[u8; COMMON_LEN] = frame.first_chunk()?;
        let ip: &[u8; 12] = frame.get(self.network..)?.first_chunk()?;
        let tcp: &[u8; 20] = frame.get(self.transport..)?.first_chunk()?;
        let expected = tcp[4..8] == seq.0.to_be_bytes()
            && tcp[16..18] != [0xFF; 2]
            && (!self.is_ipv4 || ip_fields == IdentAndChecksum::of(ip))
            && equal_where(frame, self.header, self.mask);
        expected.then(|| TcpFlags::from_bits_truncate(u16::from(tcp[13])))
    }
}

/// The masks of the most recent layouts: most traffic has a few.
pub(crate) struct Masks {
    /// The CPU's vector instructions, for which the engine dispatches its loops.
    pub(crate) arch: Arch,
    rule: Rule,
    cells: Box<[Mask; Self::CELLS]>,
}

impl Masks {
    const CELLS: usize = 16;

    pub(crate) fn new(rule: Rule) -> Self {
        Self {
            arch: Arch::new(),
            rule,
            cells: Box::new(std::array::from_fn(|_| Mask::new(Layout::default(), rule))),
        }
    }

    /// Returns the mask of a layout; computes it if another layout has the cell.
    #[inline(always)]
    pub(crate) fn of(&mut self, layout: Layout) -> &Mask {
        let place = usize::from(layout.payload / 2) + usize::from(layout.version);
        let cell = &mut self.cells[place % Self::CELLS];
        if cell.layout != layout {
            make_anew(cell, layout, self.rule);
        }
        cell
    }
}

#[cold]
#[inline(never)]
fn make_anew(mask: &mut Mask, layout: Layout, rule: Rule) {
    *mask = Mask::new(layout, rule);
}

/// Returns the part of a header that is compared at once.
#[inline]
fn common_part(header: &HeaderBytes) -> &[u8; COMMON_LEN] {
    const { assert!(COMMON_LEN <= MAX_HEADER) };
    header.first_chunk().unwrap_or(&[0; COMMON_LEN])
}

/// Computes the bits to compare for a layout.
fn mask(layout: Layout, rule: Rule) -> HeaderBytes {
    if layout == Layout::default() {
        return [0; MAX_HEADER];
    }
    let (network, transport, payload) =
        (usize::from(layout.network), usize::from(layout.transport), usize::from(layout.payload));
    let mut mask = [0; MAX_HEADER];
    mask[..payload.min(MAX_HEADER)].fill(0xFF);
    let mut free = |at: usize, len: usize| mask[at..at + len].fill(0);
    if let Some((length, _)) = layout.tunnel.length(0) {
        free(layout.outer() + length, 2);
    }
    if layout.tunnel == Tunnel::Ipv4 {
        free(layout.outer() + 4, 2); // identification
        free(layout.outer() + 10, 2); // header checksum
    }
    if layout.is_ipv4() {
        free(network + 2, 4); // total length, identification
        free(network + 10, 2); // header checksum
    } else {
        free(network + 4, 2); // payload length
    }
    if layout.is_udp() {
        free(transport + 4, 4); // length, checksum
        return mask;
    }
    free(transport + 4, 4); // sequence number
    free(transport + 16, 2); // checksum
    if rule != Rule::Lossless {
        free(0, if network >= 12 { 12 } else { 0 }); // Ethernet addresses
        if rule == Rule::Stream {
            free(network + if layout.is_ipv4() { 8 } else { 7 }, 1); // TTL, hop limit
        }
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
        Rule::Stream | Rule::StreamOfOneTtl => !PSH,
    };
    mask
}

/// Adds the length fields of the IP packet and of a tunnel to the mask, for full-size segments.
fn full_mask(layout: Layout, mask: &HeaderBytes) -> [u8; COMMON_LEN] {
    let mut full = *common_part(mask);
    let own = usize::from(layout.network) + if layout.is_ipv4() { 2 } else { 4 };
    let outer = layout.tunnel.length(0).map(|(length, _)| layout.outer() + length);
    for length in [own].into_iter().chain(outer) {
        if let Some(place) = full.get_mut(length..).and_then(|rest| rest.first_chunk_mut()) {
            *place = [0xFF; 2];
        }
    }
    full
}
