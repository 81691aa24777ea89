//! Every byte that siw sent: start frames and FPDUs parse, CRCs are right where they are used, and everything
//! is rebuilt to the same bytes.

use std::collections::BTreeMap;

use nichrome_wire::iwarp::{
    CRC_LEN, Crc, Fpdu, MpaFrame, MpaFrameKind, Opcode, ReadRequest, STag, Segment, SegmentDestination,
    fpdu_len,
};

use crate::siw_streams::streams;

/// The DDP segment built again, from its header and payload.
fn rebuilt(segment: &Segment, payload: &[u8], crc: Crc) -> Vec<u8> {
    let len = segment.header_len() + payload.len();
    let mut fpdu = vec![0xA5; fpdu_len(len)];
    segment.write(Fpdu::ulpdu_mut(&mut fpdu, len).unwrap()).unwrap().copy_from_slice(payload);
    assert_eq!(Fpdu::finish(&mut fpdu, len, crc), fpdu.len());
    fpdu
}

#[test]
fn every_fpdu_parses_and_is_built_again() {
    let mut seen = BTreeMap::new();
    let mut starts = [0, 0];
    for stream in streams().values().filter(|stream| stream.starts_with(b"MPA ID ")) {
        let (start, len) = MpaFrame::parse(stream).unwrap().unwrap();
        let mut written = Vec::new();
        start.write(&mut written);
        assert_eq!(written, stream[..len]);
        starts[usize::from(start.kind == MpaFrameKind::Reply)] += 1;
        assert_eq!((start.revision, start.flags.markers), (2, false));
        let crc = if start.flags.crc { Crc::Used } else { Crc::Unused };
        let mut rest = &stream[len..];
        while !rest.is_empty() {
            let fpdu = Fpdu::parse(rest, crc).unwrap().expect("the last FPDU is whole");
            let (segment, payload) = Segment::parse(fpdu.ulpdu).unwrap();
            let mut built = rebuilt(&segment, payload, crc);
            // siw does not clear its padding (RFC 5044 section 4.1 asks for zeros).
            let padding = 2 + fpdu.ulpdu.len()..fpdu.len - CRC_LEN;
            built[padding.clone()].copy_from_slice(&rest[padding]);
            assert_eq!(built, rest[..fpdu.len], "{segment:?}");
            if segment.opcode == Opcode::ReadRequest {
                let request = ReadRequest::from_bytes(payload.try_into().unwrap());
                assert_eq!(request.to_bytes(), payload);
                assert_ne!((request.sink, request.source), (STag(0), STag(0)));
            }
            if let SegmentDestination::Untagged { message, .. } = segment.destination {
                assert_ne!(message.0, 0);
            }
            *seen.entry(segment.opcode as u8).or_insert(0) += 1;
            rest = &rest[fpdu.len..];
        }
    }
    assert_eq!(starts, [11, 11]);
    let [write, read_request, read_response, send] = [0, 1, 2, 3];
    assert_eq!(seen, BTreeMap::from([(write, 53), (read_request, 11), (read_response, 41), (send, 162)]));
}
