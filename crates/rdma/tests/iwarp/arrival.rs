//! Payload is placed while its segment arrives.

use nichrome_rdma::iwarp::{Role, Terms};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{
    Crc, Markers, Opcode, STag, Segment, SegmentDestination, TerminateCode, fpdu_len,
};

use crate::common::{ALL, BASE, MEMORY, pattern};
use crate::foreign::{Alone, fpdu, untagged};
use crate::support::TERMS;

/// A responder that accepts any first segment, without CRC or markers.
const PLAIN: Terms = Terms { role: Role::Responder, rtr: None, crc: Crc::Unused, ..TERMS };

/// Maximum bytes that the device leaves in the stream: a part that is too short to be placed, and a header.
const MOST_LEFT: usize = 4096 + 64 + 32;

/// Returns a device that has received its first segment, with two receives and an outstanding READ.
fn receiver(terms: Terms) -> Alone {
    let mut alone = Alone::new(terms);
    let qp = alone.qp;
    alone.deliver(alone.tagged(Opcode::Write, 0, true), &[]);
    alone.end().receive(qp, 1, 100_001, 40_000);
    alone.end().receive(qp, 2, 200_000, 40_000);
    alone.end().post(qp, 3, Operation::Read(Remote { address: 0, rkey: RKey(1) }), 300_000, 30_000);
    assert_eq!(alone.segments().len(), 1);
    alone
}

/// Returns a WRITE, two SENDs and a READ response, with long and short segments, as one stream.
fn stream(alone: &Alone, crc: Crc) -> Vec<u8> {
    let segments = [
        (alone.tagged(Opcode::Write, 1003, false), 20_001),
        (alone.tagged(Opcode::Write, 21_004, true), 9_000),
        (untagged(Opcode::Send, 1, 0, false), 10_000),
        (untagged(Opcode::Send, 1, 10_000, false), 40),
        (untagged(Opcode::Send, 1, 10_040, true), 20_007),
        (response(0, false), 17_000),
        (response(17_000, true), 13_000),
        (untagged(Opcode::SendSolicited, 2, 0, true), 8_192),
    ];
    let payload = |nth, len| pattern(len, nth as u64);
    segments
        .iter()
        .enumerate()
        .flat_map(|(nth, (segment, len))| fpdu(segment, &payload(nth, *len), crc))
        .collect()
}

/// A segment of the response to the first READ.
fn response(offset: u64, is_last: bool) -> Segment {
    let destination = SegmentDestination::Tagged { stag: STag(1), offset };
    Segment { is_last, opcode: Opcode::ReadResponse, destination }
}

#[test]
fn a_stream_of_long_segments_means_the_same_however_it_is_split() {
    let mut whole = receiver(PLAIN);
    let stream = stream(&whole, PLAIN.crc);
    assert_eq!(whole.deliver_bytes(&stream), stream.len());
    let expected = whole.effects(400_000);
    assert_eq!(expected.1.len(), 3);
    let counters = *whole.end().device.counters();
    for step in (1..14_000).step_by(97).chain([1, 4096, 16_384, 65_536]) {
        let mut alone = receiver(PLAIN);
        let (mut from, mut to) = (0, 0);
        while to < stream.len() {
            to = stream.len().min(to + step);
            from += alone.deliver_bytes(&stream[from..to]);
            assert!(to - from <= MOST_LEFT, "{} bytes left", to - from);
        }
        assert_eq!(from, stream.len(), "steps of {step} bytes");
        assert!(alone.effects(400_000) == expected, "steps of {step} bytes");
        assert_eq!(*alone.end().device.counters(), counters);
    }
}

#[test]
fn a_checked_fpdu_is_placed_as_a_whole() {
    for (crc, has_markers) in [(Crc::Used, false), (Crc::Unused, true)] {
        let mut alone = Alone::new(Terms { crc, markers_in: has_markers, ..PLAIN });
        let first = fpdu(&alone.tagged(Opcode::Write, 0, true), &[], crc);
        let long = fpdu(&alone.tagged(Opcode::Write, 1000, true), &pattern(30_000, 1), crc);
        let mut stream = [first, long].concat();
        if has_markers {
            let (mut markers, mut marked) = (Markers::default(), Vec::new());
            let (first, long) = stream.split_at(fpdu_len(Segment::TAGGED_LEN));
            [first, long].into_iter().for_each(|fpdu| markers.insert(fpdu, crc, &mut marked));
            stream = marked;
        }
        let begun = stream.len() - 1000;
        let first = alone.deliver_bytes(&stream[..begun]);
        assert!(first < 100);
        assert!(alone.end().bytes(1000, 30_000).iter().all(|byte| *byte == 0));
        assert_eq!(first + alone.deliver_bytes(&stream[first..]), stream.len());
        assert_eq!(alone.end().bytes(1000, 30_000), pattern(30_000, 1));
    }
}

/// The first segment may be the ready-to-receive message, which takes no receive.
#[test]
fn the_first_segment_is_taken_as_a_whole() {
    let mut alone = Alone::new(PLAIN);
    let written = fpdu(&alone.tagged(Opcode::Write, 1000, true), &pattern(30_000, 1), Crc::Unused);
    assert_eq!(alone.deliver_bytes(&written[..29_000]), 0);
    assert_eq!(alone.deliver_bytes(&written), written.len());
    assert_eq!(alone.end().bytes(1000, 30_000), pattern(30_000, 1));
}

#[test]
fn of_a_segment_that_does_not_fit_no_part_is_placed() {
    let cases: [fn(&Alone) -> Segment; 6] = [
        |alone| alone.tagged(Opcode::Write, MEMORY as u64 - 29_999, true),
        |alone| alone.tagged(Opcode::Write, (u64::MAX - BASE) - 29_998, true),
        |_| untagged(Opcode::Send, 1, 0, true),
        |_| untagged(Opcode::Send, 2, 0, true),
        |_| response(0, false),
        |_| response(0, true),
    ];
    for (nth, case) in cases.into_iter().enumerate() {
        let outcome = |is_whole: bool| {
            let mut alone = Alone::new(PLAIN);
            let qp = alone.qp;
            alone.deliver(alone.tagged(Opcode::Write, 0, true), &[]);
            alone.end().receive(qp, 1, 100_000, 29_999);
            alone.end().post(qp, 3, Operation::Read(Remote { address: 0, rkey: RKey(1) }), 300_000, 29_999);
            alone.segments();
            let fpdu = fpdu(&case(&alone), &pattern(30_000, 1), Crc::Unused);
            let arrived = &fpdu[..if is_whole { fpdu.len() } else { 20_000 }];
            assert_eq!(alone.deliver_bytes(arrived), arrived.len(), "case {nth}");
            assert!(alone.end().bytes(0, MEMORY).iter().all(|byte| *byte == 0), "case {nth}");
            (alone.end().device.counters().bytes_received, alone.effects(400_000), alone.ending)
        };
        // The TERMINATE names the length of the whole segment.
        assert!(outcome(false) == outcome(true), "case {nth}");
    }
}

/// Parts of a SEND also wait for their receive.
#[test]
fn a_part_without_a_receive_stays_in_the_stream() {
    let mut alone = Alone::new(PLAIN);
    let qp = alone.qp;
    alone.deliver(alone.tagged(Opcode::Write, 0, true), &[]);
    let sent = fpdu(&untagged(Opcode::Send, 1, 0, true), &pattern(30_000, 1), Crc::Unused);
    assert_eq!(alone.deliver_bytes(&sent[..20_000]), 0);
    assert!(!alone.end().device.wants_stream(qp));
    alone.end().receive(qp, 1, 1000, 30_000);
    assert!(alone.end().device.wants_stream(qp));
    let first = alone.deliver_bytes(&sent[..20_000]);
    assert!(first > 15_000 && alone.end().completions().is_empty());
    assert_eq!(first + alone.deliver_bytes(&sent[first..]), sent.len());
    assert_eq!(alone.end().completions().len(), 1);
    assert_eq!(alone.end().bytes(1000, 30_000), pattern(30_000, 1));
}

#[test]
fn a_key_that_ends_between_two_parts_refuses_the_second() {
    let mut alone = receiver(PLAIN);
    let (region, keys) = alone.end().register(RegionConfig::new(BASE + 400_000, 50_000, ALL));
    let destination = SegmentDestination::Tagged { stag: STag(keys.rkey.0), offset: BASE + 400_000 };
    let written = fpdu(
        &Segment { is_last: true, opcode: Opcode::Write, destination },
        &pattern(50_000, 1),
        Crc::Unused,
    );
    let first = alone.deliver_bytes(&written[..20_000]);
    assert!(first > 15_000);
    alone.end().device.deregister(region).unwrap();
    alone.deliver_bytes(&written[first..]);
    assert!(alone.end().bytes(420_000, 30_000).iter().all(|byte| *byte == 0));
    assert_eq!(alone.terminated().0, TerminateCode::TAGGED_STAG);
}
