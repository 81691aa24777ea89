//! Replays captured segments of Linux's siw to a queue pair of this crate, with the STags of that queue
//! pair's memory.

use std::collections::BTreeMap;

use nichrome_rdma::iwarp::{Role, Terms};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{
    Crc, Fpdu, MpaFrame, MpaFrameKind, Opcode, ReadRequest, STag, Segment, SegmentDestination,
};

use crate::common::{ALL, BASE, Link};
use crate::foreign::{Alone, fpdu};
use crate::siw_streams::streams;
use crate::support::TERMS;

/// The messages that one end of a connection sent.
struct Captured {
    start: MpaFrameKind,
    crc: Crc,
    /// Segments, with their payload and their FPDU as it came.
    segments: Vec<(Segment, Vec<u8>, Vec<u8>)>,
}

impl Captured {
    fn parse(stream: &[u8]) -> Self {
        let (frame, len) = MpaFrame::parse(stream).unwrap().unwrap();
        let crc = if frame.flags.crc { Crc::Used } else { Crc::Unused };
        let (mut rest, mut segments) = (&stream[len..], Vec::new());
        while let Some(fpdu) = Fpdu::parse(rest, crc).unwrap() {
            let (segment, payload) = Segment::parse(fpdu.ulpdu).unwrap();
            segments.push((segment, payload.to_vec(), rest[..fpdu.len].to_vec()));
            rest = &rest[fpdu.len..];
        }
        Self { start: frame.kind, crc, segments }
    }

    fn of(&self, opcode: Opcode) -> impl Iterator<Item = (&Segment, &[u8])> {
        let found = self.segments.iter().filter(move |(segment, ..)| segment.opcode == opcode);
        found.map(|(segment, payload, _)| (segment, &payload[..]))
    }

    fn read_requests(&self) -> Vec<ReadRequest> {
        let payloads = self.of(Opcode::ReadRequest).map(|(_, payload)| payload);
        payloads.map(|payload| ReadRequest::from_bytes(payload.try_into().unwrap())).collect()
    }

    /// The memory that WRITEs and READs name: by STag, from the first address to behind the last.
    fn spans(&self) -> BTreeMap<STag, (u64, u64)> {
        let writes = self.of(Opcode::Write).filter_map(|(segment, payload)| match segment.destination {
            SegmentDestination::Tagged { stag, offset } => Some((stag, offset, payload.len() as u64)),
            SegmentDestination::Untagged { .. } => None,
        });
        let reads = self.read_requests();
        let reads = reads.iter().map(|read| (read.source, read.source_offset, u64::from(read.len)));
        let mut spans = BTreeMap::new();
        for (stag, offset, len) in writes.chain(reads) {
            let span = spans.entry(stag).or_insert((offset, offset + len));
            *span = (span.0.min(offset), span.1.max(offset + len));
        }
        spans
    }
}

/// Offset of the first region. READ responses and SENDs are placed before it.
const REGIONS: usize = 1 << 20;
/// Bytes of a receive.
const ROOM: usize = 8192;

/// Replays the captured messages of one end to a queue pair of this crate; `peer` has those of the other end.
fn replay(sent: &Captured, peer: &Captured) {
    let role = if sent.start == MpaFrameKind::Request { Role::Responder } else { Role::Initiator };
    let terms = Terms { role, crc: sent.crc, rtr: None, ird: 16, ord: 16, extended: false, ..TERMS };
    let mut alone = Alone::with(terms, &Link { rd_atomic: 16, ..Link::default() }, |_| {});
    let qp = alone.qp;
    let (mut keys, mut at) = (BTreeMap::new(), REGIONS);
    for (stag, (first, end)) in sent.spans() {
        let region = RegionConfig::new(BASE + at as u64, end - first, ALL);
        let (_, report) = alone.end().register(RegionConfig { io_address: first, ..region });
        keys.insert(stag, (report.rkey, first, at));
        at += (end - first) as usize;
    }
    let sends = sent.of(Opcode::Send).filter(|(segment, _)| segment.is_last).count();
    (0..sends).for_each(|nth| alone.end().receive(qp, nth as u64, nth % 64 * ROOM, ROOM));
    let asked = peer.read_requests();
    for (nth, read) in asked.iter().enumerate() {
        let there = Remote { address: read.source_offset, rkey: RKey(read.source.0) };
        alone.end().post(qp, 1000 + nth as u64, Operation::Read(there), 600_000, read.len as usize);
    }
    let (mut answered, mut expected) = (0, Vec::new());
    for (segment, payload, bytes) in &sent.segments {
        let (mut segment, mut payload) = (*segment, payload.clone());
        if let (Opcode::Write, SegmentDestination::Tagged { stag, offset }) =
            (segment.opcode, segment.destination)
        {
            let (rkey, first, at) = keys[&stag];
            segment.destination = SegmentDestination::Tagged { stag: STag(rkey.0), offset };
            expected.push((at + (offset - first) as usize, payload.clone()));
        }
        if segment.opcode == Opcode::ReadRequest {
            let request = ReadRequest::from_bytes(payload[..].try_into().unwrap());
            let source = STag(keys[&request.source].0.0);
            payload = ReadRequest { source, ..request }.to_bytes().to_vec();
        }
        if let (Opcode::ReadResponse, SegmentDestination::Tagged { offset, .. }) =
            (segment.opcode, segment.destination)
        {
            let asked = &asked[answered];
            let offset = offset - asked.sink_offset;
            segment.destination = SegmentDestination::Tagged { stag: STag(1 + answered as u32), offset };
            answered += usize::from(segment.is_last);
        }
        let is_as_it_came = matches!(segment.opcode, Opcode::Send);
        let bytes = if is_as_it_came { bytes.clone() } else { fpdu(&segment, &payload, sent.crc) };
        alone.segments();
        assert_eq!(alone.deliver_bytes(&bytes), bytes.len(), "{segment:?}");
        // A later WRITE may change the bytes again.
        if let Some((at, payload)) = expected.pop() {
            assert_eq!(alone.end().bytes(at, payload.len()), payload);
        }
    }
    alone.segments();
    assert_eq!(alone.ending, None);
    let done = alone.end().completions();
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    assert_eq!(done.iter().filter(|wc| wc.operation == CompletedOperation::Receive).count(), sends);
    let complete = peer.read_requests().len().min(answered);
    assert_eq!(done.iter().filter(|wc| wc.operation == CompletedOperation::Read).count(), complete);
}

#[test]
fn recorded_messages_of_siw_have_their_effect() {
    let streams = streams();
    let mut replayed = 0;
    for ((from, to), stream) in streams.iter().filter(|(_, stream)| stream.starts_with(b"MPA ID ")) {
        let sent = Captured::parse(stream);
        let peer = Captured::parse(&streams[&(*to, *from)]);
        replay(&sent, &peer);
        replayed += sent.segments.len();
    }
    assert_eq!(replayed, 53 + 11 + 41 + 162);
}

/// SENDs without padding have the same bytes from siw and from a queue pair of this crate.
#[test]
fn sends_equal_those_of_siw() {
    let streams = streams();
    let mut compared = 0;
    for stream in streams.values().filter(|stream| stream.starts_with(b"MPA ID Req")) {
        let captured = Captured::parse(stream);
        // siw fills a TCP segment.
        let mut alone = Alone::new(Terms { rtr: None, crc: captured.crc, max_ulpdu: 1442, ..TERMS });
        let (qp, mut message) = (alone.qp, Vec::new());
        for (segment, payload, bytes) in &captured.segments {
            if segment.opcode != Opcode::Send {
                continue;
            }
            message.extend(payload);
            if !segment.is_last {
                continue;
            }
            alone.end().fill(0, &message);
            alone.end().post(qp, 1, Operation::Send, 0, message.len());
            let sent = alone.bytes();
            // siw does not clear its padding.
            if message.len() == payload.len() && payload.len() % 4 == 0 {
                assert_eq!(sent, *bytes);
                compared += 1;
            }
            message.clear();
        }
    }
    assert!(compared > 20, "{compared}");
}
