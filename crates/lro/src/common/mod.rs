//! The common frame: untagged Ethernet, IPv4 without options, TCP. Its fields are at constant offsets, so
//! that one length check covers all of them.

use nichrome_wire::checksum::{self, Sum};
use nichrome_wire::{EthernetHeader, IpProtocol, Ipv4Header, SeqNumber, TcpFlags, TcpHeader};

use crate::flow::FlowKey;
use crate::ident_and_checksum::IdentAndChecksum;
use crate::latest::Latest;
use crate::segment::{FirstSegment, Layout};
use crate::tunnel::Tunnel;

/// Positions of the headers.
pub(crate) const NETWORK: usize = EthernetHeader::LEN;
pub(crate) const TRANSPORT: usize = NETWORK + Ipv4Header::LEN;
pub(crate) const OPTIONS: usize = TRANSPORT + TcpHeader::LEN;
/// Bytes of the longest headers.
pub(crate) const LONGEST: usize = TRANSPORT + 60;

/// The bytes of a frame up to the TCP options.
pub(crate) type Head = [u8; OPTIONS];

/// Position of the payload in a common frame with timestamps in the recommended padding (RFC 7323 appendix
/// A).
const WITH_TIMESTAMPS: usize = OPTIONS + 12;

/// Returns the flow of a common frame.
#[inline(always)]
pub(crate) fn flow(head: &Head) -> FlowKey {
    let (addresses, ports) = flow_words(head);
    FlowKey::ipv4_words(addresses, ports)
}

/// Returns true if a common frame is of `flow`.
#[inline(always)]
pub(crate) fn is_flow(head: &Head, flow: &FlowKey) -> bool {
    let (addresses, ports) = flow_words(head);
    flow.is_of_ipv4_words(addresses, ports)
}

/// Returns true if two frames are of one flow, provided that both are common ones.
#[inline(always)]
pub(crate) fn are_of_one_flow(one: &Head, other: &Head) -> bool {
    flow_words(one) == flow_words(other)
}

/// Returns addresses and ports of a common frame.
#[inline(always)]
pub(crate) fn flow_words(head: &Head) -> (u64, u32) {
    (u64::from_be_bytes(array::<26, 8>(head)), u32::from_be_bytes(array::<34, 4>(head)))
}

/// Returns true if the frame is probably a common one: IPv4 without options, and TCP.
#[inline(always)]
pub(crate) fn is_likely(head: &Head) -> bool {
    head[14] == 0x45 && head[23] == IpProtocol::TCP.0
}

/// Returns true if the frame is IPv4 without options, no fragment, and TCP.
#[inline(always)]
pub(crate) fn is_tcp(head: &Head) -> bool {
    word32::<12>(head) & NO_OPTIONS == IPV4 && word32::<20>(head) & NOT_FRAGMENTED == TCP
}

/// Returns true if frames with this layout are common ones: as [`PLAIN`], except for TCP options.
#[inline(always)]
pub(crate) fn is_layout(layout: Layout) -> bool {
    const FREE: Layout =
        Layout { network: 0, transport: 0, payload: u16::MAX, version: 0, timestamps: u8::MAX, ..PLAIN };
    // The layout of a UDP datagram has its payload earlier.
    (layout.number() ^ PLAIN.number()) & !FREE.number() == 0 && usize::from(layout.payload) >= OPTIONS
}

/// A common frame without TCP options.
const PLAIN: Layout = Layout {
    network: NETWORK as u8,
    tunnel: Tunnel::None,
    transport: TRANSPORT as u16,
    payload: OPTIONS as u16,
    version: 4,
    timestamps: 0,
};

/// Returns the fields of a common frame that may start a run: data with ACK, no other flag but ECE, and
/// checksums that can be re-created.
#[inline(always)]
pub(crate) fn first_segment(frame: &[u8]) -> Option<FirstSegment> {
    let head: &Head = frame.first_chunk()?;
    if has_odd_checksum(head) { None } else { data_segment(frame, TcpFlags::ECE) }
}

/// The fields and the timestamp value of a segment that starts a run under the stream rule.
pub(crate) type FirstOfStream = (FirstSegment, Option<u32>);

/// Returns the fields of a common frame that may start a run under the stream rule: data with ACK, no other
/// flag but ECE and PSH, and a [stream layout](is_stream_layout).
#[inline(always)]
pub(crate) fn first_of_stream(frame: &[u8]) -> Option<FirstOfStream> {
    let mut segment = data_segment(frame, TcpFlags::ECE | TcpFlags::PSH)?;
    match usize::from(segment.layout.payload) {
        OPTIONS => Some((segment, None)),
        WITH_TIMESTAMPS => {
            let options: &[u8; WITH_TIMESTAMPS] = frame.first_chunk()?;
            segment.layout.timestamps = 4;
            // Padding, kind and length.
            let is_padded = options[OPTIONS..OPTIONS + 4] == [1, 1, 8, 10];
            let value = options[OPTIONS + 4..].first_chunk().map(|value| u32::from_be_bytes(*value));
            is_padded.then_some((segment, value))
        }
        _ => None,
    }
}

/// Returns the fields of a common frame with data, the flag ACK, and no other flag but those of `free`.
#[inline(always)]
fn data_segment(frame: &[u8], free: TcpFlags) -> Option<FirstSegment> {
    let (head, len): (&Head, usize) = (frame.first_chunk()?, frame.len());
    // No reserved flag.
    const FLAGS: u32 = u32::from_be_bytes([0x0F, 0xFF, 0, 0]);
    const ACK: u32 = u32::from_be_bytes([0, 0x10, 0, 0]);
    let total = usize::from(u16::from_be_bytes(array::<16, 2>(head)));
    let last = u32::from_be_bytes(array::<46, 4>(head));
    let headers = (last >> 28) as usize * 4;
    let payload = TRANSPORT + headers;
    let is_common = is_tcp(head)
        && last & FLAGS & !(u32::from(free.bits()) << 16) == ACK
        && headers >= TcpHeader::LEN
        && payload < len
        && NETWORK + total == len;
    is_common.then(|| FirstSegment {
        layout: Layout { payload: payload as u16, ..PLAIN },
        seq: SeqNumber(u32::from_be_bytes(array::<38, 4>(head))),
        payload_len: (len - payload) as u32,
        ident: ident(head),
        flags: TcpFlags::from_bits_truncate((last >> 16) as u16),
        ack: SeqNumber(u32::from_be_bytes(array::<42, 4>(head))),
        window: last as u16,
    })
}

/// EtherType, IP version and header length, in the word that begins with the EtherType.
const NO_OPTIONS: u32 = u32::from_ne_bytes([0xFF, 0xFF, 0xFF, 0]);
const IPV4: u32 = u32::from_ne_bytes([0x08, 0x00, 0x45, 0]);
/// More fragments, fragment offset, and protocol, in the word that begins with the fragment field.
const NOT_FRAGMENTED: u32 = u32::from_ne_bytes([0x3F, 0xFF, 0, 0xFF]);
const TCP: u32 = u32::from_ne_bytes([0, 0, 0, 6]);

/// Returns the sequence and ACK numbers of a common frame. They are adjacent, and compared as one word.
#[inline(always)]
pub(crate) fn sequence_and_ack(frame: &[u8]) -> Option<(SeqNumber, SeqNumber)> {
    let numbers = u64::from_be_bytes(array::<38, 8>(frame.first_chunk()?));
    Some((SeqNumber((numbers >> 32) as u32), SeqNumber(numbers as u32)))
}

/// Returns true if a common frame has this sequence number.
#[inline(always)]
pub(crate) fn has_sequence(frame: &[u8], seq: SeqNumber) -> bool {
    frame.first_chunk().is_some_and(|head| array::<38, 4>(head) == seq.0.to_be_bytes())
}

/// Returns the flags of a frame if it is the expected next one after `first` under the lossless rule. Both
/// are common frames of the same length with the payload at `payload`. The frame must have the sequence and
/// ACK `numbers`, an identification greater by `steps`, and a TCP checksum that can be re-created; all else
/// but PSH and FIN must be equal. The IPv4 checksum must be that of `first`, updated for the identification
/// (RFC 1624): it is right, and not 0xFFFF, if that of `first` is.
#[inline(always)]
pub(crate) fn expected(
    first: &[u8],
    frame: &[u8],
    payload: usize,
    numbers: (SeqNumber, SeqNumber),
    steps: u16,
) -> Option<TcpFlags> {
    let (a, b): (&Head, &Head) = (first.first_chunk()?, frame.first_chunk()?);
    (sequence_and_ack(frame) == Some(numbers)
        && ident_and_checksum(b) == ident_and_checksum(a).after(steps)
        && !has_odd_tcp_checksum(b)
        && same_header(first, frame, payload))
    .then(|| TcpFlags::from_bits_truncate(u16::from(b[47])))
}

/// Returns true if two headers, with the payload at `payload`, are equal in the bits of [`EXPECTED`] and the
/// options.
#[inline(always)]
fn same_header(first: &[u8], frame: &[u8], payload: usize) -> bool {
    if payload == WITH_TIMESTAMPS {
        // All at once: fewer instructions than header and options apart.
        let Some((a, last)) = split(first) else { return false };
        return split(frame)
            .is_some_and(|(b, end)| equal_where(a, b, &EXPECTED_WITH_TIMESTAMPS) && last == end);
    }
    let (Some(a), Some(b)) = (first.first_chunk(), frame.first_chunk()) else { return false };
    equal_where(head::<0, 48>(a), head::<0, 48>(b), head::<0, 48>(&EXPECTED))
        && (word::<46>(a) ^ word::<46>(b)) & word::<46>(&EXPECTED) == 0
        && same_options(first, frame, payload)
}

/// The bits that [`expected`] compares with the first frame: all but identification, sequence number,
/// checksums, PSH and FIN.
const EXPECTED: Head = {
    let mut mask = without([0xFF; OPTIONS], [18, 19, 24, 25, 38, 39, 40, 41, 50, 51]);
    mask[47] = !0x09;
    mask
};

/// As [`EXPECTED`], and the options except for their last two bytes.
const EXPECTED_WITH_TIMESTAMPS: [u8; WITH_TIMESTAMPS - 2] = with_options(EXPECTED);

/// As [`REPEATED`], and the options except for their last two bytes.
const REPEATED_WITH_TIMESTAMPS: [u8; WITH_TIMESTAMPS - 2] = with_options(REPEATED);

/// Returns the mask extended by all bits of the options except for their last two bytes.
const fn with_options(head: Head) -> [u8; WITH_TIMESTAMPS - 2] {
    let mut mask = [0xFF; WITH_TIMESTAMPS - 2];
    let mut nth = 0;
    while nth < OPTIONS {
        mask[nth] = head[nth];
        nth += 1;
    }
    mask
}

/// Returns the mask without the bytes at these positions.
const fn without<const N: usize>(mut mask: Head, positions: [usize; N]) -> Head {
    let mut nth = 0;
    while nth < N {
        mask[positions[nth]] = 0;
        nth += 1;
    }
    mask
}

/// Returns true if `frame`, a frame of the same length as the common frame `first`, equals it up to the TCP
/// flags except for identification, sequence and ACK number and IPv4 checksum, and has checksums that can be
/// re-created.
#[inline(always)]
pub(crate) fn is_alike(first: &[u8], frame: &[u8]) -> bool {
    let (Some(a), Some(b)) = (first.first_chunk(), frame.first_chunk()) else { return false };
    equal_where(head::<0, 48>(a), head::<0, 48>(b), head::<0, 48>(&ALIKE)) && !has_odd_checksum(b)
}

/// The bits that [`is_alike`] compares.
const ALIKE: Head = without(REPEATED, [42, 43, 44, 45]);

/// Returns the identification and the window of a common frame.
#[inline(always)]
pub(crate) fn ident_and_window(frame: &[u8]) -> Option<(u16, u16)> {
    let head = frame.first_chunk()?;
    Some((ident(head), u16::from_be_bytes(array::<48, 2>(head))))
}

/// Returns true if `frame` repeats the header of `last`, another common frame of the same flow with the
/// payload at `payload`: all but identification, sequence number and checksums is equal.
#[inline(always)]
pub(crate) fn repeats(last: &[u8], frame: &[u8], payload: usize) -> bool {
    if payload == WITH_TIMESTAMPS {
        // All at once: fewer instructions than header and options apart.
        let (Some((a, last)), Some((b, end))) = (split(last), split(frame)) else { return false };
        return equal_where(a, b, &REPEATED_WITH_TIMESTAMPS) && last == end;
    }
    let (Some(a), Some(b)) = (last.first_chunk(), frame.first_chunk()) else { return false };
    equal_where(head::<0, 48>(a), head::<0, 48>(b), head::<0, 48>(&REPEATED))
        && (word::<46>(a) ^ word::<46>(b)) & word::<46>(&REPEATED) == 0
        && same_options(last, frame, payload)
}

/// The bits that [`repeats`] compares: as [`EXPECTED`], and PSH and FIN.
const REPEATED: Head = {
    let mut mask = EXPECTED;
    mask[47] = 0xFF;
    mask
};

/// The bits that [`expected_stream`] compares with the first frame: all but Ethernet addresses,
/// identification, TTL, sequence and ACK numbers, PSH, window and checksums.
const EXPECTED_STREAM: Head = {
    let free = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 22, 42, 43, 44, 45, 48, 49];
    let mut mask = without(EXPECTED, free);
    mask[47] = !0x08;
    mask
};

/// Returns true if frames with this layout are common ones, with no option but timestamps in the recommended
/// padding.
#[inline(always)]
pub(crate) fn is_stream_layout(layout: Layout) -> bool {
    let options = (usize::from(layout.payload), layout.timestamps);
    is_layout(layout) && matches!(options, (OPTIONS, 0) | (WITH_TIMESTAMPS, 4))
}

/// Returns the fields of a frame if its header may follow that of `first` under the stream rule: the compared
/// fields are equal. Both have the same length and a [stream layout](is_stream_layout), with the payload at
/// `payload`, and `frame` has the next sequence number.
#[inline(always)]
pub(crate) fn expected_stream(first: &[u8], frame: &[u8], payload: usize) -> Option<Latest> {
    let (a, b): (&Head, &Head) = (first.first_chunk()?, frame.first_chunk()?);
    let equal = equal_where(head::<0, 48>(a), head::<0, 48>(b), head::<0, 48>(&EXPECTED_STREAM))
        && (word::<46>(a) ^ word::<46>(b)) & word::<46>(&EXPECTED_STREAM) == 0;
    if !equal {
        return None;
    }
    let timestamp = if payload == WITH_TIMESTAMPS {
        let (a, b): (&[u8; WITH_TIMESTAMPS], &[u8; WITH_TIMESTAMPS]) =
            (first.first_chunk()?, frame.first_chunk()?);
        if a[OPTIONS..OPTIONS + 4] != b[OPTIONS..OPTIONS + 4] {
            return None;
        }
        b[OPTIONS + 4..].first_chunk().map(|value| u32::from_be_bytes(*value))
    } else {
        None
    };
    Some(Latest {
        ack: SeqNumber(u32::from_be_bytes(array::<42, 4>(b))),
        window: u16::from_be_bytes(array::<48, 2>(b)),
        flags: TcpFlags::from_bits_truncate(u16::from(b[47])),
        timestamp,
    })
}

/// The fields in which an aggregate's header differs from its first segment's.
#[derive(Clone, Copy)]
pub(crate) struct AggregateFields {
    pub(crate) payload: u32,
    pub(crate) flags: TcpFlags,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
}

/// Turns `header`, a copy of the header `first` of a segment with `headers` bytes of headers, into the
/// aggregate's: lengths, flags, ACK number, window, the IPv4 header checksum incrementally (RFC 1624), and
/// the pseudo-header sum in the TCP checksum field. Reads `first`, not the copy just written: reading a field
/// that was written in two stores stalls store forwarding.
#[inline(always)]
pub(crate) fn seal<const N: usize>(
    first: &[u8; N],
    header: &mut [u8; N],
    headers: usize,
    fields: AggregateFields,
) {
    let (Some(first), Some(head)) = (first.first_chunk::<OPTIONS>(), header.first_chunk_mut::<OPTIONS>())
    else {
        return;
    };
    let tcp_len = (headers - TRANSPORT) as u32 + fields.payload;
    let total = (tcp_len as usize + TRANSPORT - NETWORK) as u16;
    let [_, flags] = fields.flags.bits().to_be_bytes();
    // Sums are independent of byte order (RFC 1071 section 2): this reads and writes all words in the CPU's
    // byte order.
    let total = total.to_be();
    let old = u16::from_ne_bytes(array::<16, 2>(first));
    let sum = checksum::update(u16::from_ne_bytes(array::<24, 2>(first)), old, total);
    let pseudo = Sum::new()
        .add_u32(u32::from_ne_bytes(array::<26, 4>(first)))
        .add_u32(u32::from_ne_bytes(array::<30, 4>(first)))
        .add_u32((u32::from(IpProtocol::TCP.0) + tcp_len).to_be())
        .fold();
    head[16..18].copy_from_slice(&total.to_ne_bytes());
    head[24..26].copy_from_slice(&sum.to_ne_bytes());
    head[42..46].copy_from_slice(&fields.ack.0.to_be_bytes());
    head[47] = flags;
    head[48..50].copy_from_slice(&fields.window.to_be_bytes());
    head[50..52].copy_from_slice(&pseudo.to_ne_bytes());
}

/// Splits the header of a frame with timestamps before its last two bytes.
#[inline(always)]
fn split(frame: &[u8]) -> Option<(&[u8; WITH_TIMESTAMPS - 2], [u8; 2])> {
    let header: &[u8; WITH_TIMESTAMPS] = frame.first_chunk()?;
    Some((header.first_chunk()?, *header.last_chunk()?))
}

/// Returns true if the bytes from the options to the payload are equal.
#[inline(always)]
fn same_options(a: &[u8], b: &[u8], payload: usize) -> bool {
    payload == OPTIONS || a.get(OPTIONS..payload) == b.get(OPTIONS..payload)
}

#[inline(always)]
fn array<const AT: usize, const N: usize>(head: &Head) -> [u8; N] {
    const { assert!(AT + N <= OPTIONS) };
    head[AT..].first_chunk().copied().unwrap_or([0; N])
}

/// Returns true if `a` and `b` are equal in the bits set in `mask`. Without branches, so that the compiler
/// uses vector instructions.
#[inline(always)]
pub(crate) fn equal_where<const N: usize>(a: &[u8; N], b: &[u8; N], mask: &[u8; N]) -> bool {
    let bytes = a.iter().zip(b).zip(mask);
    bytes.fold(0, |difference, ((a, b), mask)| difference | (a ^ b) & mask) == 0
}

/// Returns true if a checksum is 0xFFFF, which a sender never computes.
#[inline(always)]
fn has_odd_checksum(head: &Head) -> bool {
    array::<24, 2>(head) == [0xFF; 2] || has_odd_tcp_checksum(head)
}

/// As [`has_odd_checksum`], for TCP's.
#[inline(always)]
fn has_odd_tcp_checksum(head: &Head) -> bool {
    array::<50, 2>(head) == [0xFF; 2]
}

/// Returns true if the IPv4 checksum of a common frame is right.
#[inline(always)]
pub(crate) fn has_valid_ip_checksum(frame: &[u8]) -> bool {
    let first: Option<&Head> = frame.first_chunk();
    first.is_some_and(|frame| checksum::is_valid_ipv4(head::<NETWORK, { Ipv4Header::LEN }>(frame)))
}

/// Returns a part of a head.
#[inline(always)]
fn head<const AT: usize, const N: usize>(head: &Head) -> &[u8; N] {
    const { assert!(AT + N <= OPTIONS) };
    head[AT..].first_chunk().unwrap_or(&[0; N])
}

#[inline(always)]
fn ident_and_checksum(frame: &Head) -> IdentAndChecksum {
    IdentAndChecksum::of(head::<NETWORK, 12>(frame))
}

/// Returns the IPv4 identification of a common frame.
#[inline(always)]
fn ident(head: &Head) -> u16 {
    u16::from_be_bytes(array::<18, 2>(head))
}

#[inline(always)]
fn word<const AT: usize>(head: &Head) -> u64 {
    u64::from_ne_bytes(array::<AT, 8>(head))
}

#[inline(always)]
fn word32<const AT: usize>(head: &Head) -> u32 {
    u32::from_ne_bytes(array::<AT, 4>(head))
}

#[cfg(test)]
mod tests;
