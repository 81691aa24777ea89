//! Common frames, also with each bit changed, compared with the general parser.

use std::ops::Range;

use nichrome_wire::{Network, TcpFrame};

use super::*;
use crate::parse::{self, Parsed};
use crate::segment::{Medium, Segment, UsualChecksums};

const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 5];

/// Common frames, by their TCP options: none, timestamps, timestamps in other padding, a SACK block, and as
/// many as fit.
fn common_frames() -> impl Iterator<Item = Vec<u8>> {
    let padded_behind = [8, 10, 0, 0, 0, 7, 0, 0, 0, 5, 1, 1];
    let sack = [1, 1, 5, 10, 0, 0, 1, 0, 0, 0, 2, 0];
    let options = [&[][..], &TIMESTAMPS, &padded_behind, &sack, &[1; 40]];
    options.map(common_frame).into_iter()
}

fn common_frame(options: &[u8]) -> Vec<u8> {
    let seq = SeqNumber(0x8123_4567);
    let (options, payload) = (options.to_vec(), vec![9; 10]);
    TcpFrame { seq, ack: SeqNumber(0x9ABC_DEF0), options, payload, ..TcpFrame::default() }.build()
}

/// Calls `see` with the frame after each of its bits in `bytes` was changed, and with the position of the
/// bit's byte and the bit.
fn with_each_bit_changed(frame: &[u8], bytes: Range<usize>, mut see: impl FnMut(&[u8], usize, u8)) {
    let mut changed = frame.to_vec();
    for at in bytes {
        for bit in (0..8).map(|nth| 1 << nth) {
            changed[at] ^= bit;
            see(&changed, at, bit);
            changed[at] ^= bit;
        }
    }
}

/// Reads a frame with the parser of all frames. Returns the segment of a common frame that has data, ACK, and
/// no other flag but those of `free`.
fn read(frame: &[u8], free: TcpFlags) -> Option<Segment> {
    let Parsed::Tcp(segment) = parse::parse_any(frame, Medium::Ethernet) else { return None };
    let Segment { layout, flags, .. } = segment;
    let is_common = (layout.network, layout.transport, layout.version) == (14, 34, 4)
        && layout.tunnel == Tunnel::None
        && segment.payload_len > 0
        && !segment.trailer;
    // The general parser does not read the reserved flags.
    let has_reserved = frame[46] & 0x0E != 0;
    (is_common && flags.difference(free) == TcpFlags::ACK && !has_reserved).then_some(segment)
}

#[test]
fn first_segments_are_those_that_the_general_parser_reads() {
    let check = |frame: &[u8]| {
        let read_by = |free| read(frame, free);
        let expected = read_by(TcpFlags::ECE).filter(|segment| {
            let UsualChecksums { ip, tcp } = segment.usual_checksums;
            ip && tcp
        });
        let found = first_segment(frame);
        assert_eq!(found.is_some(), expected.is_some(), "{frame:02x?}");
        if let (Some(found), Some(expected)) = (found, expected) {
            assert_eq!(found.layout, Layout { timestamps: 0, ..expected.layout });
            assert_eq!(
                (found.seq, found.ack, found.flags, found.window, found.payload_len),
                (expected.seq, expected.ack, expected.flags, expected.window, expected.payload_len)
            );
            assert_eq!(found.ident.to_be_bytes(), frame[18..20]);
        }
        let expected = read_by(TcpFlags::ECE | TcpFlags::PSH).filter(|segment| {
            segment.layout.payload == 54 || segment.layout.payload == 66 && segment.layout.timestamps == 4
        });
        let found = first_of_stream(frame);
        assert_eq!(
            found.map(|(segment, timestamp)| (segment.layout, segment.flags, timestamp)),
            expected.map(|segment| {
                let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
                (segment.layout, segment.flags, timestamp)
            }),
            "{frame:02x?}"
        );
        expected.is_some()
    };
    for frame in common_frames() {
        check(&frame);
        with_each_bit_changed(&frame, 0..frame.len(), |changed, _, _| _ = check(changed));
        for len in 0..frame.len() {
            assert!(!check(&frame[..len]), "{len} bytes");
        }
        assert!(!check(&[&frame[..], &[0]].concat()));
        for checksum in [24..26, 50..52] {
            let mut odd = frame.clone();
            odd[checksum].fill(0xFF);
            check(&odd);
            assert!(first_segment(&odd).is_none());
        }
    }
    assert!(check(&common_frame(&[])) && check(&common_frame(&TIMESTAMPS)));
}

#[test]
fn common_layouts_differ_in_the_options_only() {
    for (options, timestamps) in (0..=40).flat_map(|options| (0..=30).map(move |at| (options, at))) {
        let payload = 54 + options;
        let layout = Layout { payload, timestamps, ..PLAIN };
        assert!(is_layout(layout));
        let is_stream = matches!((options, timestamps), (0, 0) | (12, 4));
        assert_eq!(is_stream_layout(layout), is_stream, "{layout:?}");
        for other in [
            Layout { network: 18, ..layout },
            Layout { network: 0, ..layout },
            Layout { tunnel: Tunnel::Ipv4, ..layout },
            Layout { transport: 38, ..layout },
            Layout { version: 6, ..layout },
            Layout { payload: 34 + 8, ..layout },
        ] {
            assert!(!is_layout(other) && !is_stream_layout(other), "{other:?}");
        }
    }
}

#[test]
fn headers_are_compared_in_all_fields_but_those_that_are_free() {
    // By the positions of their bytes; flags are the bits of byte 47.
    let [ident, ip_checksum, checksum, seq, ack] = [18..20, 24..26, 50..52, 38..42, 42..46];
    let (numbers, checksums) = (38..46, [ip_checksum, checksum.clone()]);
    let in_any = |fields: &[Range<usize>], at: usize| fields.iter().any(|field| field.contains(&at));
    for frame in common_frames() {
        let payload = frame.len() - 10;
        let own = sequence_and_ack(&frame).unwrap();
        assert_eq!(own, (SeqNumber(0x8123_4567), SeqNumber(0x9ABC_DEF0)));
        with_each_bit_changed(&frame, 0..payload, |changed, at, bit| {
            let is_flag = |flags: u8| at == 47 && flags & bit != 0;
            assert_eq!(sequence_and_ack(changed) == Some(own), !numbers.contains(&at));
            assert_eq!(has_sequence(changed, own.0), !seq.contains(&at));

            let is_free = checksum.contains(&at) || is_flag(0x09);
            let flags = expected(&frame, changed, payload, own, 0);
            let now = TcpFlags::from_bits_truncate(changed[47].into());
            assert_eq!(flags, is_free.then_some(now), "bit {bit} of byte {at}");

            let repeated = in_any(&checksums, at) || seq.contains(&at) || ident.contains(&at);
            assert_eq!(repeats(&frame, changed, payload), repeated, "bit {bit} of byte {at}");
            if at < 48 {
                assert_eq!(is_alike(&frame, changed), repeated || ack.contains(&at));
            }
        });
        for next in [(own.0 + 1, own.1), (own.0, own.1 + 1)] {
            assert_eq!(expected(&frame, &frame, payload, next, 0), None);
        }
        assert_eq!(expected(&frame, &frame, payload, own, 1), None);
        for checksum in checksums.clone() {
            let mut odd = frame.clone();
            odd[checksum].fill(0xFF);
            assert!(expected(&frame, &odd, payload, own, 0).is_none() && !is_alike(&frame, &odd));
        }
        // A frame that is too short for the headers is not a common one.
        for len in [0, OPTIONS - 1] {
            let short = &frame[..len];
            assert!(expected(&frame, short, payload, own, 0).is_none());
            assert!(!repeats(&frame, short, payload) && !is_alike(&frame, short));
            assert!(sequence_and_ack(short).is_none() && !has_sequence(short, own.0));
        }
    }
}

#[test]
fn the_next_segment_has_the_ipv4_checksum_that_its_identification_makes() {
    let frame_of = |ident: u16| {
        let mut frame = TcpFrame { payload: vec![9; 10], ..TcpFrame::default() };
        if let Network::Ipv4 { ident: own, .. } = &mut frame.network {
            *own = ident;
        }
        frame.build()
    };
    for first in 0..=u16::MAX {
        let (frame, next) = (frame_of(first), frame_of(first.wrapping_add(1)));
        let numbers = sequence_and_ack(&frame).unwrap();
        let accepts = |next: &[u8], steps| expected(&frame, next, OPTIONS, numbers, steps).is_some();
        assert!(accepts(&next, 1), "after {first}");
        assert!(accepts(&frame, 0), "{first} again");
        let mut other = next.clone();
        other[25] ^= 1;
        assert!(!accepts(&other, 1), "after {first}");
    }
}

#[test]
fn stream_headers_are_compared_in_all_fields_but_those_that_are_free() {
    // Ethernet addresses, identification, TTL, IPv4 checksum, sequence number, ACK number, window, TCP
    // checksum, timestamps.
    let free = [0..12, 18..20, 22..23, 24..26, 38..42, 42..46, 48..50, 50..52, 58..66];
    for (frame, timestamp) in [(common_frame(&[]), None), (common_frame(&TIMESTAMPS), Some(7))] {
        let payload = frame.len() - 10;
        let same = expected_stream(&frame, &frame, payload).unwrap();
        assert_eq!(same.timestamp, timestamp);
        with_each_bit_changed(&frame, 0..payload, |changed, at, bit| {
            let is_free = free.iter().any(|field| field.contains(&at)) || at == 47 && bit == 0x08;
            let next = expected_stream(&frame, changed, payload);
            assert_eq!(next.is_some(), is_free, "bit {bit} of byte {at}");
            if let Some(next) = next {
                let tcp = TcpHeader::new(&changed[34..]).unwrap();
                assert_eq!((next.ack, next.window, next.flags), (tcp.ack(), tcp.window(), tcp.flags()));
                let value = timestamp.and_then(|_| changed[58..].first_chunk().copied());
                assert_eq!(next.timestamp, value.map(u32::from_be_bytes));
            }
        });
        assert!(expected_stream(&frame, &frame[..OPTIONS - 1], payload).is_none());
    }
}
