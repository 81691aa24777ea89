//! Any message.

use nichrome_wire::iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Enhanced, IMMEDIATE_LEN, MessageNumber, MpaFlags,
    MpaFrame, MpaFrameKind, Opcode, ReadRequest, Rtr, STag, Segment, SegmentDestination,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A segment and its payload.
pub(crate) fn segment() -> impl Strategy<Value = (Segment, Vec<u8>)> {
    let destination = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
    let parts =
        (select(&Opcode::ALL[..]), any::<bool>(), destination, vec(any::<u8>(), 0..600), any::<[u64; 6]>());
    parts.prop_map(|(opcode, is_last, (stag, wide, number, offset), bytes, words)| {
        let destination = match opcode.queue() {
            None => SegmentDestination::Tagged { stag: STag(stag), offset: wide },
            Some(_) => SegmentDestination::Untagged {
                message: MessageNumber(number),
                offset,
                invalidate: STag(stag),
            },
        };
        let payload = match opcode {
            Opcode::ReadRequest => read_request(words).to_bytes().to_vec(),
            Opcode::AtomicRequest => atomic_request(words).to_bytes().to_vec(),
            Opcode::AtomicResponse => {
                AtomicResponse { id: stag, original_value: words[0] }.to_bytes().to_vec()
            }
            Opcode::Immediate | Opcode::ImmediateSolicited => {
                words[0].to_be_bytes()[..IMMEDIATE_LEN].to_vec()
            }
            _ => bytes,
        };
        (Segment { is_last, opcode, destination }, payload)
    })
}

pub(crate) fn read_request(words: [u64; 6]) -> ReadRequest {
    ReadRequest {
        sink: STag(words[0] as u32),
        sink_offset: words[1],
        len: words[2] as u32,
        source: STag(words[3] as u32),
        source_offset: words[4],
    }
}

pub(crate) fn atomic_request(words: [u64; 6]) -> AtomicRequest {
    let [first, value, mask, compare, compare_mask, offset] = words;
    let operation = match first % 3 {
        0 => AtomicOperation::FetchAdd { add: value, mask },
        1 => AtomicOperation::Swap { swap: value, mask },
        _ => AtomicOperation::CompareSwap { swap: value, swap_mask: mask, compare, compare_mask },
    };
    AtomicRequest { id: first as u32, stag: STag((first >> 32) as u32), offset, operation }
}

/// A start frame apart from its private data, which is the second.
pub(crate) fn start() -> impl Strategy<Value = (MpaFrame<'static>, Vec<u8>)> {
    let depth = || prop::option::of(0u16..0x3FFF);
    let enhanced =
        (depth(), depth(), any::<[bool; 4]>()).prop_map(|(ird, ord, [peer_to_peer, send, write, read])| {
            Enhanced { ird, ord, peer_to_peer, rtr: Rtr { send, write, read } }
        });
    let kind = select(vec![MpaFrameKind::Request, MpaFrameKind::Reply]);
    (kind, any::<[bool; 3]>(), prop::option::of(enhanced), vec(any::<u8>(), 0..=508)).prop_map(
        |(kind, [markers, crc, reject], enhanced, private_data)| {
            let flags = MpaFlags { markers, crc, reject: reject && kind == MpaFrameKind::Reply };
            let revision = 1 + u8::from(enhanced.is_some());
            (MpaFrame { kind, flags, revision, enhanced, private_data: &[] }, private_data)
        },
    )
}
