//! tshark dissects streams of ours: every message that it knows, with nothing malformed.

use std::fs::File;
use std::path::Path;

use nichrome_wire::iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Crc, Enhanced, Fpdu, MARKER_INTERVAL, MARKER_LEN,
    Markers, MessageNumber, MpaFlags, MpaFrame, MpaFrameKind, Opcode, ReadRequest, Rtr, STag, Segment,
    SegmentDestination, TerminateCause, TerminateCode, Terminated, fpdu_len,
};
use pcap_file::pcap::{PcapPacket, PcapWriter};

use crate::installed::tshark;

fn fpdu(opcode: Opcode, destination: SegmentDestination, payload: &[u8]) -> Vec<u8> {
    let segment = Segment { is_last: true, opcode, destination };
    let len = segment.header_len() + payload.len();
    let mut fpdu = vec![0; fpdu_len(len)];
    segment.write(Fpdu::ulpdu_mut(&mut fpdu, len).unwrap()).unwrap().copy_from_slice(payload);
    Fpdu::finish(&mut fpdu, len, Crc::Used);
    fpdu
}

fn start(kind: MpaFrameKind, markers: bool) -> Vec<u8> {
    let enhanced = Enhanced {
        ird: Some(16),
        ord: Some(16),
        peer_to_peer: true,
        rtr: Rtr { read: true, ..Rtr::default() },
    };
    let flags = MpaFlags { crc: true, markers, ..MpaFlags::default() };
    let mut frame = Vec::new();
    MpaFrame { kind, flags, revision: 2, enhanced: Some(enhanced), private_data: b"hello" }.write(&mut frame);
    frame
}

/// Messages of both directions: whether from the initiator, and the bytes.
fn conversation() -> Vec<(bool, Vec<u8>)> {
    let tagged = SegmentDestination::Tagged { stag: STag(0x1234), offset: 0x1_0000 };
    let untagged = |number| SegmentDestination::Untagged {
        message: MessageNumber(number),
        offset: 0,
        invalidate: STag(0),
    };
    let invalidate = |number| SegmentDestination::Untagged {
        message: MessageNumber(number),
        offset: 0,
        invalidate: STag(7),
    };
    let read = ReadRequest { sink: STag(1), sink_offset: 2, len: 5, source: STag(4), source_offset: 5 };
    let add = AtomicOperation::FetchAdd { add: 1, mask: 0 };
    let atomic = AtomicRequest { id: 9, stag: STag(4), offset: 8, operation: add };
    let mut terminate = Vec::new();
    let write = fpdu(Opcode::Write, tagged, b"x");
    let cause = TerminateCause { segment_len: 15, ddp: &write[2..16], rdmap: &[] };
    Terminated::write(TerminateCode::TAGGED_BOUNDS, Some(&cause), &mut terminate);
    vec![
        (true, start(MpaFrameKind::Request, false)),
        (false, start(MpaFrameKind::Reply, false)),
        (true, fpdu(Opcode::ReadRequest, untagged(1), &read.to_bytes())),
        (false, fpdu(Opcode::ReadResponse, tagged, b"12345")),
        (true, fpdu(Opcode::Write, tagged, b"some bytes")),
        (true, fpdu(Opcode::Send, untagged(1), b"message")),
        (false, fpdu(Opcode::SendInvalidate, invalidate(1), b"message")),
        (true, fpdu(Opcode::SendSolicited, untagged(2), b"")),
        (false, fpdu(Opcode::SendSolicitedInvalidate, invalidate(2), b"m")),
        (true, fpdu(Opcode::AtomicRequest, untagged(2), &atomic.to_bytes())),
        (
            false,
            fpdu(
                Opcode::AtomicResponse,
                untagged(1),
                &AtomicResponse { id: 9, original_value: 3 }.to_bytes(),
            ),
        ),
        (false, fpdu(Opcode::Terminate, untagged(1), &terminate)),
    ]
}

/// A frame of one TCP segment.
fn frame(from_initiator: bool, sequence: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let (ports, hosts) = if from_initiator { ([40_000u16, 7174], [1, 2]) } else { ([7174, 40_000], [2, 1]) };
    let [source, destination] = hosts.map(|host| [10, 0, 0, host]);
    let mut tcp = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
    tcp.extend(data);
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend([source, destination].concat());
    let len = (20 + tcp.len()) as u16;
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(ip);
    frame.extend(tcp);
    frame
}

/// Messages with the sequence numbers of their first bytes.
fn with_sequence(messages: Vec<(bool, Vec<u8>)>) -> Vec<(bool, u32, Vec<u8>)> {
    let mut next = [1u32, 1];
    let numbered = |(from_initiator, bytes): (bool, Vec<u8>)| {
        let sequence = &mut next[usize::from(from_initiator)];
        *sequence += bytes.len() as u32;
        (from_initiator, *sequence - bytes.len() as u32, bytes)
    };
    messages.into_iter().map(numbered).collect()
}

/// Writes a capture of a connection with a TCP segment for each message; returns its path.
fn capture<'a>(folder: &Path, messages: impl IntoIterator<Item = &'a (bool, u32, Vec<u8>)>) -> String {
    let path = folder.join("iwarp.pcap");
    let mut writer = PcapWriter::new(File::create(&path).unwrap()).unwrap();
    let mut put = |frame: Vec<u8>| {
        let len = frame.len() as u32;
        writer.write_packet(&PcapPacket::new(std::time::Duration::ZERO, len, &frame)).unwrap();
    };
    put(frame(true, 0, 0x02, b""));
    put(frame(false, 0, 0x12, b""));
    for (from_initiator, sequence, bytes) in messages {
        put(frame(*from_initiator, *sequence, 0x18, bytes));
    }
    path.to_str().unwrap().to_owned()
}

/// Asserts that tshark finds nothing malformed and as many right CRCs as there are FPDUs.
fn assert_no_fault(path: &str, fpdus: usize) {
    // Wireshark takes any SEND for RPC over RDMA.
    let all = ["-r", path, "--disable-protocol", "rpcordma"];
    let malformed = tshark(&[&all[..], &["-Y", "_ws.malformed || iwarp_mpa.bad_length"]].concat());
    assert_eq!(malformed, Vec::<String>::new());
    let details = tshark(&[&all[..], &["-V"]].concat());
    let count = |text: &str| details.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("Good CRC32"), count("Bad CRC32")), (fpdus, 0));
}

#[test]
fn nothing_is_malformed_and_every_opcode_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &with_sequence(conversation()));
    let opcodes = tshark(&["-r", &path, "-Y", "iwarp_ddp_rdmap", "-T", "fields", "-e", "iwarp_rdma.opcode"]);
    let expected = ["0x01", "0x02", "0x00", "0x03", "0x04", "0x05", "0x06", "0x0a", "0x0b", "0x07"];
    assert_eq!(opcodes, expected);
    assert_no_fault(&path, expected.len());
}

/// Streams with markers in both directions. For each of the first 15 words, three FPDUs (33, 1,200 and 60,000
/// bytes) have their first marker at that word.
fn marked() -> Vec<(bool, Vec<u8>)> {
    let mut messages =
        vec![(true, start(MpaFrameKind::Request, true)), (false, start(MpaFrameKind::Reply, true))];
    let destination =
        SegmentDestination::Untagged { message: MessageNumber(1), offset: 0, invalidate: STag(0) };
    let payload = vec![0x5A; 60_000];
    for from_initiator in [true, false] {
        let (mut markers, mut len) = (Markers::default(), 0);
        let mut send = |fpdu: &[u8]| {
            let mut marked = Vec::new();
            markers.insert(fpdu, Crc::Used, &mut marked);
            len += marked.len();
            messages.push((from_initiator, marked));
            (markers, len)
        };
        let (mut after, mut begun) = send(&fpdu(Opcode::Send, destination, b"first"));
        for first_marker in (0..60).step_by(4) {
            for len in [33, 1200, 60_000] {
                let ahead = (0..MARKER_INTERVAL).map(|len| fpdu(Opcode::Send, destination, &payload[..len]));
                let is_ahead = |fpdu: &Vec<u8>| {
                    (begun + after.len_with(fpdu.len()) + first_marker) % MARKER_INTERVAL == 0
                };
                send(&ahead.into_iter().find(is_ahead).unwrap());
                (after, begun) = send(&fpdu(Opcode::Send, destination, &payload[..len]));
            }
        }
    }
    messages
}

/// The FPDUPTRs of an FPDU that begins `begun` bytes into its stream and takes `len` bytes of it.
fn pointers(begun: usize, len: usize) -> Vec<usize> {
    let markers = begun.next_multiple_of(MARKER_INTERVAL)..begun + len;
    let length_field = if markers.start == begun { begun + MARKER_LEN } else { begun };
    markers.step_by(MARKER_INTERVAL).map(|marker| marker.saturating_sub(length_field)).collect()
}

#[test]
fn markers_are_where_tshark_expects_them_and_point_to_their_fpdu() {
    let folder = tempfile::tempdir().unwrap();
    let messages = with_sequence(marked());
    let begun = |sequence: u32| sequence as usize - 1 - messages[0].2.len();
    // tshark takes a marker behind an FPDU for one of the FPDU's own, so that such an FPDU is left out.
    let ends_before_marker = |begun: usize, len: usize| (begun + len).is_multiple_of(MARKER_INTERVAL);
    let (starts, fpdus) = messages.split_at(2);
    let fpdus =
        fpdus.iter().filter(|(_, sequence, bytes)| !ends_before_marker(begun(*sequence), bytes.len()));
    let path = capture(folder.path(), starts.iter().chain(fpdus.clone()));
    let found =
        tshark(&["-r", &path, "-Y", "iwarp_mpa.fpdu", "-T", "fields", "-e", "iwarp_mpa.marker_fpduptr"]);
    let expected: Vec<_> =
        fpdus.map(|(_, sequence, bytes)| pointers(begun(*sequence), bytes.len())).collect();
    let shown = |pointers: &Vec<usize>| pointers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    assert_eq!(found, expected.iter().map(shown).collect::<Vec<_>>());
    assert_no_fault(&path, expected.len());
    for offset in (0..60).step_by(4) {
        assert!(expected.iter().any(|pointers| pointers == &[offset]), "{offset}: {expected:?}");
    }
}
