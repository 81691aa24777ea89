//! The usual frame: untagged Ethernet, IPv4 without options, TCP. All its fields are at constant places, so that one look
//! at the length does for all of them.

use nichrome_wire::checksum::{self, Sum};
use nichrome_wire::{EthernetHeader, IpProtocol, Ipv4Header, SeqNumber, TcpFlags, TcpHeader};

use crate::flow::FlowKey;
use crate::latest::Latest;
use crate::segment::{FirstSegment, Layout};
use crate::tunnel::Tunnel;

/// Where the headers begin.
pub(crate) const NETWORK: usize = EthernetHeader::LEN;
pub(crate) const TRANSPORT: usize = NETWORK + Ipv4Header::LEN;
pub(crate) const OPTIONS: usize = TRANSPORT + TcpHeader::LEN;

/// The bytes of a frame up to the TCP options.
pub(crate) type Head = [u8; OPTIONS];

/// Where the payload begins in the usual frame with timestamps, padded as everybody pads them.
const WITH_TIMESTAMPS: usize = OPTIONS + 12;

/// The flow of a usual frame with this head.
#[inline(always)]
pub(crate) fn flow(head: &Head) -> FlowKey {
    let addresses = u64::from_be_bytes(array::<26, 8>(head));
    FlowKey::ipv4_words(addresses, u32::from_be_bytes(array::<34, 4>(head)))
}

/// Whether frames with this layout are usual.
#[inline(always)]
pub(crate) fn is_layout(layout: Layout) -> bool {
    let places = (usize::from(layout.network), usize::from(layout.transport));
    places == (NETWORK, TRANSPORT) && layout.is_ipv4() && !layout.is_udp()
}

/// The first segment of a run, if a frame is what most are: data without anything remarkable.
#[inline(always)]
pub(crate) fn first_segment(frame: &[u8]) -> Option<FirstSegment> {
    let (head, len): (&Head, usize) = (frame.first_chunk()?, frame.len());
    // ACK, maybe ECE; none of the reserved flags.
    const FLAGS: u32 = u32::from_be_bytes([0x0F, 0xBF, 0, 0]);
    const ACK: u32 = u32::from_be_bytes([0, 0x10, 0, 0]);
    let total = usize::from(u16::from_be_bytes(array::<16, 2>(head)));
    let last = u32::from_be_bytes(array::<46, 4>(head));
    let headers = (last >> 28) as usize * 4;
    let payload = TRANSPORT + headers;
    let is_usual = array::<12, 3>(head) == [0x08, 0x00, 0x45]
        && word32::<20>(head) & NOT_FRAGMENTED == TCP
        && last & FLAGS == ACK
        && headers >= TcpHeader::LEN
        && payload < len
        && NETWORK + total == len
        && array::<24, 2>(head) != [0xFF; 2]
        && array::<50, 2>(head) != [0xFF; 2];
    is_usual.then(|| FirstSegment {
        layout: Layout {
            network: NETWORK as u8,
            tunnel: Tunnel::None,
            transport: TRANSPORT as u16,
            payload: payload as u16,
            version: 4,
            timestamps: 0,
        },
        seq: SeqNumber(u32::from_be_bytes(array::<38, 4>(head))),
        payload_len: (len - payload) as u32,
        ident: u16::from_be_bytes(array::<18, 2>(head)),
        flags: TcpFlags::from_bits_truncate((last >> 16) as u16),
        ack: SeqNumber(u32::from_be_bytes(array::<42, 4>(head))),
        window: last as u16,
    })
}

/// More fragments, fragment offset, and protocol, in the word that begins with the fragment field.
const NOT_FRAGMENTED: u32 = u32::from_ne_bytes([0x3F, 0xFF, 0, 0xFF]);
const TCP: u32 = u32::from_ne_bytes([0, 0, 0, 6]);

/// The sequence and ACK numbers of a usual frame. They lie side by side, and are compared as one word.
#[inline(always)]
pub(crate) fn sequence_and_ack(frame: &[u8]) -> Option<(SeqNumber, SeqNumber)> {
    let numbers = u64::from_be_bytes(array::<38, 8>(frame.first_chunk()?));
    Some((SeqNumber((numbers >> 32) as u32), SeqNumber(numbers as u32)))
}

/// The flags of a frame that is the expected next one after `first`, a usual frame of the same length whose payload begins
/// at `payload`, under the lossless rule: with this sequence number, the ACK number of the first and this identification,
/// checksums that a sender computes, and otherwise equal but for PSH and FIN.
#[inline(always)]
pub(crate) fn expected(
    first: &[u8],
    frame: &[u8],
    payload: usize,
    numbers: (SeqNumber, SeqNumber),
    ident: u16,
) -> Option<TcpFlags> {
    let (a, b): (&Head, &Head) = (first.first_chunk()?, frame.first_chunk()?);
    if sequence_and_ack(frame) != Some(numbers) {
        return None;
    }
    // As a sender never has them: 0xFFFF.
    let odd_checksum = array::<24, 2>(b) == [0xFF; 2] || array::<50, 2>(b) == [0xFF; 2];
    // Flags are in the second byte of the word that ends with the window.
    const ENDS: u32 = u32::from_ne_bytes([0, 0x09, 0, 0]);
    let [length, _] = u32_halves(word32::<16>(a));
    let different = (word::<0>(a) ^ word::<0>(b))
        | (word::<8>(a) ^ word::<8>(b))
        | u64::from(word32::<16>(b) ^ joined(length, ident.to_be_bytes()))
        | u64::from(word32::<20>(a) ^ word32::<20>(b))
        | (word::<26>(a) ^ word::<26>(b))
        | u64::from(word32::<34>(a) ^ word32::<34>(b))
        | u64::from((word32::<46>(a) ^ word32::<46>(b)) & !ENDS);
    let urgent = array::<52, 2>(a) == array::<52, 2>(b);
    (different == 0 && urgent && !odd_checksum && same_options(first, frame, payload))
        .then(|| TcpFlags::from_bits_truncate(u16::from(b[47])))
}

/// Whether frames with this layout are usual, and have no options but timestamps, padded as everybody pads them.
#[inline(always)]
pub(crate) fn is_stream_layout(layout: Layout) -> bool {
    let options = (usize::from(layout.payload), layout.timestamps);
    is_layout(layout) && matches!(options, (OPTIONS, 0) | (WITH_TIMESTAMPS, 4))
}

/// What a frame says that is the expected next one after `first`, a frame [of such a layout](is_stream_layout) and of the same
/// length whose payload begins at `payload`, under the rule of equal streams: with this sequence number, and equal in what
/// counts.
#[inline(always)]
pub(crate) fn expected_stream(first: &[u8], frame: &[u8], payload: usize, seq: SeqNumber) -> Option<Latest> {
    let (a, b): (&Head, &Head) = (first.first_chunk()?, frame.first_chunk()?);
    // Everything but the time to live.
    const FRAGMENT_AND_PROTOCOL: u32 = u32::from_ne_bytes([0xFF, 0xFF, 0, 0xFF]);
    // The offset and the flags but PSH.
    const FLAGS: u32 = u32::from_ne_bytes([0xFF, 0xF7, 0, 0]);
    const LENGTH: u32 = u32::from_ne_bytes([0xFF, 0xFF, 0, 0]);
    let different = (word32::<12>(a) ^ word32::<12>(b))
        | ((word32::<16>(a) ^ word32::<16>(b)) & LENGTH)
        | ((word32::<20>(a) ^ word32::<20>(b)) & FRAGMENT_AND_PROTOCOL)
        | (word32::<34>(a) ^ word32::<34>(b))
        | (word32::<38>(b) ^ u32::from_ne_bytes(seq.0.to_be_bytes()))
        | ((word32::<46>(a) ^ word32::<46>(b)) & FLAGS);
    let urgent = array::<52, 2>(a) == array::<52, 2>(b);
    if different != 0 || word::<26>(a) != word::<26>(b) || !urgent {
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

/// What the header of a whole has instead of the first segment's.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) payload: u32,
    pub(crate) flags: TcpFlags,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
}

/// Makes of `head`, a copy of the head `first` of a segment with so many bytes of headers, that of the whole: lengths, flags,
/// ACK number and window, the IPv4 header checksum by difference (RFC 1624), and in the TCP checksum field the pseudo-header's
/// sum. What was just copied is not read: a field that was written in two pieces is waited for.
#[inline(always)]
pub(crate) fn seal(first: &Head, head: &mut Head, headers: usize, whole: Whole) {
    let tcp_len = (headers - TRANSPORT) as u32 + whole.payload;
    let total = (tcp_len as usize + TRANSPORT - NETWORK) as u16;
    let [_, flags] = whole.flags.bits().to_be_bytes();
    let old = u16::from_be_bytes(array::<16, 2>(first));
    let sum = checksum::update(u16::from_be_bytes(array::<24, 2>(first)), old, total);
    let pseudo = Sum::new()
        .add_u32(u32::from_be_bytes(array::<26, 4>(first)))
        .add_u32(u32::from_be_bytes(array::<30, 4>(first)))
        .add_u32(u32::from(IpProtocol::TCP.0) + tcp_len)
        .fold();
    head[16..18].copy_from_slice(&total.to_be_bytes());
    head[24..26].copy_from_slice(&sum.to_be_bytes());
    head[42..46].copy_from_slice(&whole.ack.0.to_be_bytes());
    head[47] = flags;
    head[48..50].copy_from_slice(&whole.window.to_be_bytes());
    head[50..52].copy_from_slice(&pseudo.to_be_bytes());
}

/// Whether the bytes from the options to the payload are equal.
#[inline(always)]
fn same_options(a: &[u8], b: &[u8], payload: usize) -> bool {
    if payload == OPTIONS {
        return true;
    }
    match (a.first_chunk::<WITH_TIMESTAMPS>(), b.first_chunk::<WITH_TIMESTAMPS>()) {
        (Some(a), Some(b)) if payload == WITH_TIMESTAMPS => a[OPTIONS..] == b[OPTIONS..],
        _ => a.get(OPTIONS..payload) == b.get(OPTIONS..payload),
    }
}

#[inline(always)]
fn array<const AT: usize, const N: usize>(head: &Head) -> [u8; N] {
    const { assert!(AT + N <= OPTIONS) };
    head[AT..].first_chunk().copied().unwrap_or([0; N])
}

#[inline(always)]
fn word<const AT: usize>(head: &Head) -> u64 {
    u64::from_ne_bytes(array::<AT, 8>(head))
}

#[inline(always)]
fn word32<const AT: usize>(head: &Head) -> u32 {
    u32::from_ne_bytes(array::<AT, 4>(head))
}

#[inline(always)]
fn u32_halves(word: u32) -> [[u8; 2]; 2] {
    let [a, b, c, d] = word.to_ne_bytes();
    [[a, b], [c, d]]
}

#[inline(always)]
fn joined([a, b]: [u8; 2], [c, d]: [u8; 2]) -> u32 {
    u32::from_ne_bytes([a, b, c, d])
}
