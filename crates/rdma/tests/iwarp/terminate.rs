//! Every error of the peer has its TERMINATE, and every TERMINATE of the peer ends the connection.

use nichrome_rdma::iwarp::{Role, RtrMessage, Terms, WithoutReceive};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, MessageNumber, Opcode, ReadRequest, STag, Segment,
    SegmentDestination, TerminateCause, TerminateCode, Terminated,
};

use crate::common::{BASE, Link, MEMORY};
use crate::foreign::{Alone, fpdu, untagged};
use crate::support::TERMS;

/// A responder that accepts any first segment.
const RESPONDER: Terms = Terms { role: Role::Responder, rtr: None, ..TERMS };

type Case = (&'static str, TerminateCode, fn(&mut Alone));

fn tagged(stag: u32, offset: u64) -> Segment {
    Segment {
        is_last: true,
        opcode: Opcode::Write,
        destination: SegmentDestination::Tagged { stag: STag(stag), offset },
    }
}

fn read(alone: &mut Alone, change: impl Fn(&mut ReadRequest)) {
    let mut request = alone.read_request(0, 8);
    change(&mut request);
    alone.deliver(untagged(Opcode::ReadRequest, 1, 0, true), &request.to_bytes());
}

fn post_read(alone: &mut Alone) {
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    // The first segment of the peer lets a responder send.
    alone.deliver(Segment { is_last: true, ..tagged(1, 0) }, &[]);
    alone.end().post(qp, 9, Operation::Read(there), 0, 8);
    assert_eq!(alone.segments().len(), 1);
}

fn response(stag: u32, offset: u64, is_last: bool) -> Segment {
    Segment { is_last, opcode: Opcode::ReadResponse, ..tagged(stag, offset) }
}

/// Errors in segments, each the first error of the peer.
#[rustfmt::skip]
const CASES: &[Case] = &[
    ("WRITE: unknown STag", TerminateCode::TAGGED_STAG, |alone| { alone.deliver(tagged(1, BASE), &[1]); }),
    ("WRITE: before the region", TerminateCode::TAGGED_BOUNDS, |alone| {
        let segment = alone.tagged(Opcode::Write, 0, true);
        let SegmentDestination::Tagged { stag, .. } = segment.destination else { panic!() };
        alone.deliver(Segment { destination: SegmentDestination::Tagged { stag, offset: BASE - 1 }, ..segment }, &[1, 2]);
    }),
    ("WRITE: behind the region", TerminateCode::TAGGED_BOUNDS, |alone| {
        alone.deliver(alone.tagged(Opcode::Write, MEMORY as u64 - 1, true), &[1, 2]);
    }),
    ("WRITE: wraps", TerminateCode::TAGGED_WRAP, |alone| {
        alone.deliver(alone.tagged(Opcode::Write, u64::MAX - BASE, true), &[1, 2]);
    }),
    ("WRITE: another STag within", TerminateCode::TAGGED_STAG, |alone| {
        alone.deliver(alone.tagged(Opcode::Write, 0, false), &[1]);
        alone.deliver(tagged(5, BASE + 1), &[1]);
    }),
    ("WRITE: a gap within", TerminateCode::TAGGED_BOUNDS, |alone| {
        alone.deliver(alone.tagged(Opcode::Write, 0, false), &[1]);
        alone.deliver(alone.tagged(Opcode::Write, 2, true), &[1]);
    }),
    ("WRITE: a READ response within", TerminateCode::OPCODE, |alone| {
        post_read(alone);
        alone.deliver(alone.tagged(Opcode::Write, 0, false), &[1]);
        alone.deliver(response(1, 0, true), &[0; 8]);
    }),
    ("READ response: none awaited", TerminateCode::OPCODE, |alone| { alone.deliver(response(1, 0, true), &[0; 8]); }),
    ("READ response: another sink", TerminateCode::TAGGED_STAG, |alone| {
        post_read(alone);
        alone.deliver(response(2, 0, true), &[0; 8]);
    }),
    ("READ response: another offset", TerminateCode::TAGGED_BOUNDS, |alone| {
        post_read(alone);
        alone.deliver(response(1, 1, true), &[0; 7]);
    }),
    ("READ response: too much", TerminateCode::TAGGED_BOUNDS, |alone| {
        post_read(alone);
        alone.deliver(response(1, 0, true), &[0; 9]);
    }),
    ("READ response: too little", TerminateCode::TAGGED_BOUNDS, |alone| {
        post_read(alone);
        alone.deliver(response(1, 0, true), &[0; 7]);
    }),
    ("READ response: a WRITE within", TerminateCode::OPCODE, |alone| {
        post_read(alone);
        alone.deliver(response(1, 0, false), &[0; 4]);
        alone.deliver(alone.tagged(Opcode::Write, 100, true), &[1]);
    }),
    ("READ: unknown STag", TerminateCode::STAG, |alone| read(alone, |request| request.source = STag(1))),
    ("READ: bounds", TerminateCode::BOUNDS, |alone| read(alone, |request| request.len = u32::MAX)),
    ("READ: source wraps", TerminateCode::WRAP, |alone| read(alone, |request| request.source_offset = u64::MAX)),
    ("READ: sink wraps", TerminateCode::WRAP, |alone| read(alone, |request| request.sink_offset = u64::MAX)),
    ("READ: a short request", TerminateCode::UNSPECIFIED, |alone| {
        alone.deliver(untagged(Opcode::ReadRequest, 1, 0, true), &[0; 27]);
    }),
    ("READ: message number", TerminateCode::MESSAGE_NUMBER, |alone| {
        let request = alone.read_request(0, 8);
        alone.deliver(untagged(Opcode::ReadRequest, 2, 0, true), &request.to_bytes());
    }),
    ("READ: message offset", TerminateCode::MESSAGE_OFFSET, |alone| {
        let request = alone.read_request(0, 8);
        alone.deliver(untagged(Opcode::ReadRequest, 1, 4, true), &request.to_bytes());
    }),
    ("READ: more than the IRD", TerminateCode::NO_BUFFER, |alone| {
        let request = alone.read_request(0, 0);
        for number in 1..=u32::from(TERMS.ird) + 1 {
            alone.deliver(untagged(Opcode::ReadRequest, number, 0, true), &request.to_bytes());
        }
    }),
    ("SEND: message number", TerminateCode::MESSAGE_NUMBER, |alone| {
        alone.deliver(untagged(Opcode::Send, 2, 0, true), &[]);
    }),
    ("SEND: message offset", TerminateCode::MESSAGE_OFFSET, |alone| {
        alone.deliver(untagged(Opcode::Send, 1, 1, true), &[]);
    }),
    ("SEND: another opcode within", TerminateCode::OPCODE, |alone| {
        alone.deliver(untagged(Opcode::Send, 1, 0, false), &[1]);
        alone.deliver(untagged(Opcode::SendSolicited, 1, 1, true), &[1]);
    }),
    ("immediate data within a SEND", TerminateCode::OPCODE, |alone| {
        alone.deliver(untagged(Opcode::Send, 1, 0, false), &[1]);
        alone.deliver(untagged(Opcode::Immediate, 1, 1, true), &[0; 8]);
    }),
    ("immediate data of 7 bytes", TerminateCode::UNSPECIFIED, |alone| {
        alone.deliver(untagged(Opcode::Immediate, 1, 0, true), &[0; 7]);
    }),
    ("atomic: unknown STag", TerminateCode::STAG, |alone| atomic(alone, 1, 0)),
    ("atomic: not aligned", TerminateCode::BOUNDS, |alone| {
        let stag = alone.end().rkey.0;
        atomic(alone, stag, 4);
    }),
    ("atomic response: none awaited", TerminateCode::OPCODE, |alone| {
        let response = AtomicResponse::default().to_bytes();
        alone.deliver(untagged(Opcode::AtomicResponse, 1, 0, true), &response);
    }),
    ("atomic: unknown operation", TerminateCode::OPCODE, |alone| {
        let mut bytes = [0; AtomicRequest::LEN];
        bytes[3] = 9;
        alone.deliver(untagged(Opcode::AtomicRequest, 1, 0, true), &bytes);
    }),
];

/// Segments whose headers cannot be read, so that the TERMINATE names none.
#[rustfmt::skip]
const UNREADABLE: &[Case] = &[
    ("DDP version, tagged", TerminateCode::TAGGED_VERSION, |alone| raw(alone, &[0xC2, 0x40])),
    ("DDP version, untagged", TerminateCode::UNTAGGED_VERSION, |alone| raw(alone, &[0x42, 0x43])),
    ("RDMAP version", TerminateCode::RDMAP_VERSION, |alone| raw(alone, &[0xC1, 0x80])),
    ("unknown opcode", TerminateCode::OPCODE, |alone| raw(alone, &[0xC1, 0x4F])),
    ("a WRITE in an untagged segment", TerminateCode::OPCODE, |alone| raw(alone, &[0x41, 0x40])),
    ("a queue that is not the opcode's", TerminateCode::QUEUE, |alone| {
        let mut ulpdu = [0; Segment::UNTAGGED_LEN];
        (ulpdu[0], ulpdu[1], ulpdu[9]) = (0x41, 0x43, 7);
        raw(alone, &ulpdu);
    }),
    ("no header", TerminateCode::DDP_CATASTROPHIC, |alone| raw(alone, &[0xC1])),
];

fn atomic(alone: &mut Alone, stag: u32, at: u64) {
    let operation = AtomicOperation::FetchAdd { add: 1, mask: 0 };
    let request = AtomicRequest { id: 1, stag: STag(stag), offset: BASE + at, operation };
    alone.deliver(untagged(Opcode::AtomicRequest, 1, 0, true), &request.to_bytes());
}

/// Delivers an FPDU with this segment.
fn raw(alone: &mut Alone, ulpdu: &[u8]) {
    use nichrome_wire::iwarp::{Crc, Fpdu, fpdu_len};
    let mut bytes = vec![0; fpdu_len(ulpdu.len())];
    Fpdu::ulpdu_mut(&mut bytes, ulpdu.len()).unwrap().copy_from_slice(ulpdu);
    Fpdu::finish(&mut bytes, ulpdu.len(), Crc::Used);
    alone.deliver_bytes(&bytes);
}

#[test]
fn every_error_has_its_terminate() {
    let readable = CASES.iter().map(|case| (case, true));
    for ((name, code, peer), is_readable) in readable.chain(UNREADABLE.iter().map(|case| (case, false))) {
        let mut alone = Alone::new(RESPONDER);
        let qp = alone.qp;
        alone.end().receive(qp, 8, 0, 10);
        peer(&mut alone);
        let (sent, context) = alone.terminated();
        assert_eq!(sent, *code, "{name}");
        assert_eq!(!context.is_empty(), is_readable, "{name}");
        // Everything is flushed, and nothing follows.
        let statuses = alone.end().statuses();
        assert!(
            statuses.iter().any(|(id, status)| *id == 8 && *status == Status::Flushed),
            "{name}: {statuses:?}"
        );
        assert!(
            alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1, 2, 3]),
            "{name}: what follows is dropped"
        );
        assert_eq!(alone.segments().len(), 0);
        let counters = *alone.end().device.counters();
        let Counters { dropped_malformed, refused, dropped_state, .. } = counters;
        assert_eq!(counters.terminates_sent, 1);
        assert_eq!(dropped_malformed + refused + dropped_state, 1, "{name}: one reason");
    }
}

#[test]
fn a_terminate_names_its_segment() {
    let mut alone = Alone::new(RESPONDER);
    let segment = alone.tagged(Opcode::Write, MEMORY as u64, true);
    alone.deliver(segment, &[1]);
    let (_, context) = alone.terminated();
    let bytes = fpdu(&segment, &[1], TERMS.crc);
    assert_eq!(context, bytes[..2 + Segment::TAGGED_LEN], "length and header, as they came");

    let mut alone = Alone::new(RESPONDER);
    let request = ReadRequest { source: STag(3), ..alone.read_request(0, 8) };
    alone.deliver(untagged(Opcode::ReadRequest, 1, 0, true), &request.to_bytes());
    let (_, context) = alone.terminated();
    assert_eq!(context.len(), 2 + Segment::UNTAGGED_LEN + ReadRequest::LEN);
    assert_eq!(context[2 + Segment::UNTAGGED_LEN..], request.to_bytes());
}

#[test]
fn rights_are_those_of_queue_pair_and_region() {
    let link = Link { access: Access::NONE, ..Link::default() };
    let mut alone = Alone::with(RESPONDER, &link, |_| {});
    alone.deliver(alone.tagged(Opcode::Write, 0, true), &[1]);
    assert_eq!(alone.terminated().0, TerminateCode::TAGGED_STAG);
    assert_eq!(alone.end().events(), [Event::QpAccessError(alone.qp)]);

    let mut alone = Alone::with(RESPONDER, &link, |_| {});
    read(&mut alone, |_| {});
    assert_eq!(alone.terminated().0, TerminateCode::RIGHTS);

    let mut alone = Alone::new(RESPONDER);
    let (_, keys) = alone.end().register(RegionConfig::new(BASE, 100, Access::LOCAL_WRITE));
    alone.deliver(tagged(keys.rkey.0, BASE), &[1]);
    assert_eq!(alone.terminated().0, TerminateCode::TAGGED_STAG);

    let mut alone = Alone::new(RESPONDER);
    let (_, keys) = alone.end().register(RegionConfig::new(BASE, 100, Access::LOCAL_WRITE));
    read(&mut alone, |request| request.source = STag(keys.rkey.0));
    assert_eq!(alone.terminated().0, TerminateCode::RIGHTS);
    assert!(alone.pair.ends[0].bytes(0, MEMORY).iter().all(|byte| *byte == 0));
}

#[test]
fn another_protection_domain_is_another_stream() {
    let mut alone = Alone::new(RESPONDER);
    let other = alone.end().device.create_domain().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let device = &mut alone.end().device;
    let region = device.register(other, RegionConfig::new(BASE, 100, access)).unwrap();
    let rkey = device.query_region(region).unwrap().rkey.0;
    alone.deliver(tagged(rkey, BASE), &[1]);
    assert_eq!(alone.terminated().0, TerminateCode::TAGGED_STREAM);
}

#[test]
fn a_send_without_a_receive_waits_or_ends_the_connection() {
    let mut alone = Alone::new(RESPONDER);
    let qp = alone.qp;
    assert!(!alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1, 2]), "the FPDU stays with the driver");
    assert!(!alone.end().device.wants_stream(qp));
    alone.end().receive(qp, 1, 0, 2);
    assert!(alone.end().device.wants_stream(qp));
    assert!(alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1, 2]));
    assert_eq!(alone.end().statuses(), [(1, Status::Success)]);

    let mut alone = Alone::with(RESPONDER, &Link::default(), |config| {
        config.iwarp.without_receive = WithoutReceive::Terminate;
    });
    alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1, 2]);
    assert_eq!(alone.terminated().0, TerminateCode::NO_BUFFER);
}

#[test]
fn a_send_that_fits_no_receive_fails_it() {
    let mut alone = Alone::new(RESPONDER);
    let qp = alone.qp;
    alone.end().receive(qp, 1, 0, 2);
    alone.end().receive(qp, 2, 0, 2);
    alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1, 2, 3]);
    assert_eq!(alone.terminated().0, TerminateCode::TOO_LONG);
    assert_eq!(alone.end().statuses(), [(1, Status::LocalLength), (2, Status::Flushed)]);
    assert_eq!(alone.end().bytes(0, 2), [0, 0], "nothing of it is written");
}

#[test]
fn a_receive_without_memory_is_a_local_error() {
    let mut alone = Alone::new(RESPONDER);
    let qp = alone.qp;
    let buffers = [Sge { address: BASE, len: 8, lkey: LKey(1) }];
    alone.end().device.post_receive(qp, &ReceiveRequest { wr_id: 1, buffers: &buffers }).unwrap();
    alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1, 2, 3]);
    let (code, context) = alone.terminated();
    assert_eq!((code, context.len()), (TerminateCode::DDP_CATASTROPHIC, 0));
    assert_eq!(alone.end().statuses(), [(1, Status::LocalProtection)]);
}

#[test]
fn a_key_that_cannot_be_invalidated_ends_the_connection() {
    let mut alone = Alone::new(RESPONDER);
    let qp = alone.qp;
    alone.end().receive(qp, 1, 0, 8);
    let destination =
        SegmentDestination::Untagged { message: MessageNumber(1), offset: 0, invalidate: STag(3) };
    alone.deliver(Segment { is_last: true, opcode: Opcode::SendInvalidate, destination }, &[1]);
    assert_eq!(alone.terminated().0, TerminateCode::INVALIDATE);
    assert_eq!(alone.end().statuses(), [(1, Status::RemoteInvalidRequest)]);
}

#[test]
fn damage_is_found_by_the_crc() {
    let mut alone = Alone::new(RESPONDER);
    let mut bytes = fpdu(&alone.tagged(Opcode::Write, 0, true), &[1; 50], TERMS.crc);
    bytes[30] ^= 1;
    alone.deliver_bytes(&bytes);
    let (code, context) = alone.terminated();
    assert_eq!((code, context.len()), (TerminateCode::CRC, 0));
    assert_eq!(alone.end().device.counters().dropped_icrc, 1);
    assert_eq!(alone.end().bytes(0, 50), [0; 50]);
}

#[test]
fn a_misplaced_marker_ends_the_connection() {
    let crc = nichrome_wire::iwarp::Crc::Unused;
    let mut alone = Alone::new(Terms { markers_in: true, crc, ..RESPONDER });
    let mut bytes = vec![0, 0, 0, 9];
    bytes.extend(fpdu(&alone.tagged(Opcode::Write, 0, true), &[1], crc));
    alone.deliver_bytes(&bytes);
    assert_eq!(alone.terminated().0, TerminateCode::MARKER);
    assert_eq!(alone.end().device.counters().dropped_malformed, 1);
}

#[test]
fn the_first_segment_is_the_ready_to_receive_message() {
    for message in [RtrMessage::Send, RtrMessage::Write, RtrMessage::Read] {
        let mut alone = Alone::new(Terms { rtr: Some(message), ..RESPONDER });
        let qp = alone.qp;
        alone.end().receive(qp, 1, 0, 8);
        alone.deliver(untagged(Opcode::Send, 1, 0, true), &[1]);
        assert_eq!(alone.terminated().0, TerminateCode::RTR, "{message:?}");
    }
}

#[test]
fn peers_without_the_extensions_get_none_and_may_send_none() {
    let terms = Terms { extended: false, ..RESPONDER };
    for opcode in [Opcode::Immediate, Opcode::ImmediateSolicited, Opcode::AtomicRequest] {
        let mut alone = Alone::new(terms);
        alone.deliver(untagged(opcode, 1, 0, true), &[0; 8]);
        assert_eq!(alone.terminated().0, TerminateCode::OPCODE);
    }
    let mut alone = Alone::new(terms);
    let there = alone.end().remote(0);
    for operation in [
        Operation::WriteWithImmediate(there, ImmediateData([0; 4])),
        Operation::FetchAdd { remote: there, add: 1 },
        Operation::CompareSwap { remote: there, compare: 1, swap: 1 },
    ] {
        let buffers = [alone.end().sge(0, 8)];
        let qp = alone.qp;
        let posted = alone.end().device.post_send(qp, &SendRequest::new(1, operation, &buffers));
        assert_eq!(posted, Err(PostError::Transport));
    }
}

#[test]
fn deregistering_memory_during_a_read_refuses_it() {
    let mut alone = Alone::new(RESPONDER);
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let (region, keys) = alone.end().register(RegionConfig::new(BASE, 100, access));
    read(&mut alone, |request| request.source = STag(keys.rkey.0));
    alone.end().device.deregister(region).unwrap();
    let (code, context) = alone.terminated();
    assert_eq!(code, TerminateCode::STAG);
    assert_eq!(context.len(), 2 + Segment::UNTAGGED_LEN + ReadRequest::LEN, "the request's headers");
    assert_eq!(alone.end().events(), [Event::QpAccessError(alone.qp)]);
}

#[test]
fn deregistering_the_sink_fails_the_read() {
    let mut alone = Alone::new(RESPONDER);
    let (region, keys) = alone.end().register(RegionConfig::new(BASE, 100, Access::LOCAL_WRITE));
    let qp = alone.qp;
    alone.deliver(tagged(1, 0), &[]);
    let buffers = [Sge { address: BASE, len: 8, lkey: keys.lkey }];
    let there = Remote { address: 0, rkey: RKey(1) };
    alone.end().device.post_send(qp, &SendRequest::new(4, Operation::Read(there), &buffers)).unwrap();
    assert_eq!(alone.segments().len(), 1);
    alone.end().device.deregister(region).unwrap();
    alone.deliver(response(1, 0, true), &[1; 8]);
    assert_eq!(alone.terminated().0, TerminateCode::TAGGED_STAG);
    assert_eq!(alone.end().statuses(), [(4, Status::LocalProtection)]);
}

#[test]
fn a_request_without_memory_fails_and_ends_the_connection() {
    let mut alone = Alone::new(Terms { role: Role::Initiator, ..RESPONDER });
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    let buffers = [Sge { address: BASE, len: 8, lkey: LKey(1) }];
    alone.end().device.post_send(qp, &SendRequest::new(1, Operation::Write(there), &buffers)).unwrap();
    alone.end().post(qp, 2, Operation::Write(there), 0, 8);
    let (code, context) = alone.terminated();
    assert_eq!((code, context.len()), (TerminateCode::CATASTROPHIC, 0));
    assert_eq!(alone.end().statuses(), [(1, Status::LocalProtection), (2, Status::Flushed)]);
}

#[test]
fn a_terminate_of_the_peer_flushes_in_both_orders_of_bits() {
    let cause = TerminateCause { segment_len: 14, ddp: &[0; 14], rdmap: &[] };
    let mut standard = Vec::new();
    Terminated::write(TerminateCode::TAGGED_BOUNDS, Some(&cause), &mut standard);
    // siw on little-endian machines.
    let mut reversed = standard.clone();
    (reversed[0], reversed[2]) = (standard[0].rotate_left(4), standard[2].reverse_bits());
    for payload in [standard, reversed, vec![0x11, 1, 0, 0], vec![1]] {
        let mut alone = Alone::new(RESPONDER);
        let qp = alone.qp;
        post_read(&mut alone);
        alone.end().receive(qp, 1, 0, 8);
        alone.deliver(untagged(Opcode::Terminate, 1, 0, true), &payload);
        assert_eq!(alone.end().statuses(), [(9, Status::Flushed), (1, Status::Flushed)]);
        assert_eq!((alone.segments().len(), alone.ending), (0, Some(StreamShutdown::Orderly)));
        assert_eq!(alone.end().device.counters().terminates_received, 1);
        assert_eq!(alone.end().device.query_qp(qp).unwrap().state, QpState::Err);
    }
}

/// Within a message nothing else can be sent, not even responses that earlier requests wait for.
#[test]
fn a_request_that_fails_within_its_message_flushes_those_before() {
    let mut alone = Alone::new(Terms { role: Role::Initiator, max_ulpdu: 100, ..RESPONDER });
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    alone.end().post(qp, 1, Operation::Read(there), 0, 8);
    let buffers = [alone.end().sge(0, 80), Sge { address: BASE, len: 80, lkey: LKey(1) }];
    alone.end().device.post_send(qp, &SendRequest::new(2, Operation::Send, &buffers)).unwrap();
    alone.end().post(qp, 3, Operation::Send, 0, 8);
    let sent: Vec<_> = alone.segments().iter().map(|sent| sent.segment.opcode).collect();
    assert_eq!(sent, [Opcode::ReadRequest, Opcode::Send, Opcode::Terminate]);
    let failed = [(1, Status::Flushed), (2, Status::LocalProtection), (3, Status::Flushed)];
    assert_eq!(alone.end().statuses(), failed);
}

#[test]
fn a_program_that_disconnects_does_not_wait_until_the_peer_reads_a_terminate() {
    let mut alone = Alone::new(TERMS);
    let qp = alone.qp;
    alone.bytes();
    alone.end().device.hold_sends(qp);
    alone.deliver(tagged(1, BASE), &[1]);
    assert_eq!((alone.bytes().len(), alone.ending), (0, None));
    alone.end().device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap();
    assert_eq!((alone.bytes().len(), alone.ending), (0, Some(StreamShutdown::Orderly)));
}
