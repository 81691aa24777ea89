//! Every byte that siw sent: start frames and FPDUs parse, CRCs are right where they are used, and all is built again to the
//! same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use nichrome_wire::iwarp::{
    CRC_LEN, Crc, Fpdu, Opcode, Place, ReadRequest, STag, Segment, StartFrame, StartKind, fpdu_len,
};
use pcap_file::pcap::PcapReader;

/// Source and destination: address and port.
type Direction = ([u8; 6], [u8; 6]);

/// The bytes of each direction of each TCP connection.
fn streams() -> BTreeMap<Direction, Vec<u8>> {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/siw-verbs.pcap"));
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut streams: BTreeMap<Direction, (u32, Vec<u8>)> = BTreeMap::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data;
        let Some(ip) = frame.get(14..).filter(|ip| frame[12..14] == [8, 0] && ip[9] == 6) else { continue };
        let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[20..len];
        let end = |address: &[u8], port: &[u8]| [address, port].concat().try_into().unwrap();
        let direction = (end(&ip[12..16], &tcp[..2]), end(&ip[16..20], &tcp[2..4]));
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
        if tcp[13] & 0x02 != 0 {
            streams.insert(direction, (sequence.wrapping_add(1), Vec::new()));
            continue;
        }
        let data = &tcp[usize::from(tcp[12] >> 4) * 4..];
        let Some((first, bytes)) = streams.get_mut(&direction) else { continue };
        let at = sequence.wrapping_sub(*first) as usize;
        // The path neither lost nor reordered; what TCP sent again is there already.
        if at <= bytes.len() && at + data.len() > bytes.len() {
            bytes.truncate(at);
            bytes.extend(data);
        }
    }
    streams.into_iter().map(|(direction, (_, bytes))| (direction, bytes)).collect()
}

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
        let (start, len) = StartFrame::parse(stream).unwrap().unwrap();
        let mut written = Vec::new();
        start.write(&mut written);
        assert_eq!(written, stream[..len]);
        starts[usize::from(start.kind == StartKind::Reply)] += 1;
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
            if let Place::Untagged { message, .. } = segment.place {
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
