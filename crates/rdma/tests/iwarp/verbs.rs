//! Each operation between a pair.

use nichrome_rdma::iwarp::{Role, RtrMessage, Terms};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{Fpdu, Opcode, ReadRequest, STag, Segment, SegmentDestination};

use crate::common::{BASE, Link, Pair, address, changes, pattern};
use crate::foreign::{Alone, untagged};
use crate::support::{TERMS, both, connected};

#[test]
fn a_send_fills_a_receive() {
    for len in [0, 1, 7, 1000, 65_512, 65_513, 200_000] {
        let (mut pair, qps) = connected(TERMS);
        let bytes = pattern(len, 1);
        pair.ends[1].fill(0, &bytes);
        pair.ends[0].receive(qps[0], 5, 300_000, len);
        pair.ends[1].post(qps[1], 6, Operation::Send, 0, len);
        pair.run();
        assert_eq!(pair.ends[1].statuses(), [(6, Status::Success)]);
        let done = pair.ends[0].completions();
        assert_eq!((done[0].wr_id, done[0].status, done[0].len), (5, Status::Success, len as u32));
        assert_eq!(pair.ends[0].bytes(300_000, len), bytes);
    }
}

#[test]
fn a_write_and_a_read_reach_registered_memory() {
    for len in [0, 1, 7, 1000, 65_516, 65_517, 200_000] {
        let (mut pair, qps) = connected(TERMS);
        let bytes = pattern(len, 1);
        pair.ends[0].fill(0, &bytes);
        let there = pair.ends[1].remote(300_000);
        pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, len);
        pair.ends[0].post(qps[0], 2, Operation::Read(there), 600_000, len);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(pair.ends[1].bytes(300_000, len), bytes);
        assert_eq!(pair.ends[0].bytes(600_000, len), bytes);
    }
}

#[test]
fn sends_are_solicited_and_invalidate() {
    let (mut pair, qps) = connected(TERMS);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::INVALIDATE;
    let (_, keys) = pair.ends[1].register(RegionConfig::new(BASE, 100, access));
    let cq = pair.ends[1].cq;
    (0..3).for_each(|nth| pair.ends[1].receive(qps[1], nth, 0, 10));
    pair.ends[1].device.req_notify_cq(cq, Notify::Solicited).unwrap();
    let buffers = [pair.ends[0].sge(0, 10)];
    for (nth, (operation, flags)) in [
        (Operation::Send, SendFlags::NONE),
        (Operation::SendWithInvalidate(keys.rkey), SendFlags::NONE),
        (Operation::Send, SendFlags::SOLICITED),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(pair.ends[1].events(), []);
        let request = SendRequest { flags, ..SendRequest::new(9, operation, &buffers) };
        pair.ends[0].device.post_send(qps[0], &request).unwrap();
        pair.run();
        let done = pair.ends[1].completions();
        assert_eq!((done[0].wr_id, done[0].status), (nth as u64, Status::Success));
        assert_eq!(done[0].notice, (nth == 1).then_some(Notice::Invalidated(keys.rkey)));
    }
    assert_eq!(pair.ends[1].events(), [Event::Completion(cq)]);
    let there = Remote { address: BASE, rkey: keys.rkey };
    pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, 10);
    pair.run();
    assert_eq!(pair.ends[1].device.query_qp(qps[1]).unwrap().state, QpState::Err, "the key is no more");
}

#[test]
fn a_write_with_immediate_data_reports_its_length() {
    for len in [0, 10, 100_000] {
        let (mut pair, qps) = connected(TERMS);
        let (bytes, immediate) = (pattern(len, 4), ImmediateData([1, 2, 3, 4]));
        pair.ends[0].fill(0, &bytes);
        let there = pair.ends[1].remote(300_000);
        pair.ends[0].post(qps[0], 1, Operation::WriteWithImmediate(there, immediate), 0, len);
        pair.run();
        assert_eq!(pair.ends[1].bytes(300_000, len), bytes, "placed before a receive is there");
        pair.ends[1].receive(qps[1], 2, 0, 0);
        pair.run();
        let done = pair.ends[1].completions();
        assert_eq!((done[0].operation, done[0].len), (CompletedOperation::ReceiveWithWrite, len as u32));
        assert_eq!(done[0].notice, Some(Notice::Immediate(immediate)));
        assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    }
}

#[test]
fn atomics_return_the_value_before() {
    let (mut pair, qps) = connected(TERMS);
    pair.ends[1].fill(64, &5u64.to_ne_bytes());
    let remote = pair.ends[1].remote(64);
    pair.ends[0].post(qps[0], 1, Operation::FetchAdd { remote, add: 3 }, 0, 8);
    pair.ends[0].post(qps[0], 2, Operation::CompareSwap { remote, compare: 8, swap: 100 }, 8, 8);
    pair.ends[0].post(qps[0], 3, Operation::CompareSwap { remote, compare: 8, swap: 200 }, 16, 8);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [1, 2, 3].map(|nth| (nth, Status::Success)));
    let word = |at| u64::from_ne_bytes(pair.ends[0].bytes(at, 8).try_into().unwrap());
    assert_eq!([word(0), word(8), word(16)], [5, 8, 100]);
    assert_eq!(pair.ends[1].bytes(64, 8), 100u64.to_ne_bytes());
}

#[test]
fn a_read_into_several_buffers_is_several_reads() {
    let (mut pair, qps) = connected(Terms { ord: 2, rtr: None, ..TERMS });
    let bytes = pattern(3000, 5);
    pair.ends[1].fill(0, &bytes);
    pair.streams.record = true;
    let end = &mut pair.ends[0];
    let buffers = [end.sge(10_000, 1000), end.sge(20_000, 0), end.sge(30_000, 500), end.sge(40_000, 1500)];
    let there = pair.ends[1].remote(0);
    let device = &mut pair.ends[0].device;
    device.post_send(qps[0], &SendRequest::new(1, Operation::Read(there), &buffers)).unwrap();
    pair.transmit();
    let requests = pair.streams.sent.iter().filter(|(end, _)| *end == 0).map(|(_, bytes)| bytes.len());
    assert_eq!(requests.sum::<usize>(), 2 * 52, "no more than the ORD");
    pair.run();
    let end = &mut pair.ends[0];
    assert_eq!(end.statuses(), [(1, Status::Success)], "one request, one completion");
    assert_eq!([end.bytes(10_000, 1000), end.bytes(30_000, 500), end.bytes(40_000, 1500)].concat(), bytes);
}

/// Runs the timers at this time; returns the payload lengths of the segments that are sent.
fn segments_at(alone: &mut Alone, millis: u64) -> Vec<usize> {
    alone.end().device.handle_timeout(Instant::from_nanos(millis * 1_000_000));
    alone.segments().iter().map(|sent| sent.payload.len()).collect()
}

/// siw may notice the first bytes only when more arrive.
#[test]
fn an_initiator_repeats_its_empty_write_while_the_peer_is_silent() {
    let mut alone = Alone::new(TERMS);
    assert_eq!(segments_at(&mut alone, 0), [0]);
    let repetitions = (1..5000).filter(|millis| !segments_at(&mut alone, *millis).is_empty());
    assert_eq!(repetitions.count(), 4);

    let mut alone = Alone::new(TERMS);
    assert_eq!(segments_at(&mut alone, 0), [0]);
    alone.deliver(alone.tagged(Opcode::Write, 0, true), &[1]);
    assert!((1..5000).all(|millis| segments_at(&mut alone, millis).is_empty()));
}

/// siw connects in client-server mode, and some of its programs let the server send first.
#[test]
fn a_responder_in_client_server_mode_waits_for_a_silent_initiator_for_a_while() {
    let terms = Terms { role: Role::Responder, rtr: None, ..TERMS };
    let mut alone = Alone::new(terms);
    let qp = alone.qp;
    alone.end().post(qp, 1, Operation::Send, 0, 7);
    assert!((0..100).all(|millis| segments_at(&mut alone, millis).is_empty()));
    assert_eq!(segments_at(&mut alone, 101), [7]);
    assert!((102..5000).all(|millis| segments_at(&mut alone, millis).is_empty()));

    // In peer-to-peer mode the initiator begins.
    let mut alone = Alone::new(Terms { rtr: Some(RtrMessage::Write), ..terms });
    let qp = alone.qp;
    alone.end().post(qp, 1, Operation::Send, 0, 7);
    assert!((0..5000).all(|millis| segments_at(&mut alone, millis).is_empty()));
}

#[test]
fn a_repeated_empty_write_leaves_between_messages() {
    let mut alone = Alone::new(Terms { max_ulpdu: 1000, ..TERMS });
    assert_eq!(segments_at(&mut alone, 0), [0]);
    let qp = alone.qp;
    alone.end().post(qp, 1, Operation::Send, 0, 3000);
    let mut buffer = [0; 2000];
    assert!(alone.end().device.poll_transmit(Instant::ZERO, 16, &mut buffer).is_some());
    let rest = segments_at(&mut alone, 50);
    assert!(rest.len() > 1 && rest.iter().position(|len| *len == 0) == Some(rest.len() - 1), "{rest:?}");
}

#[test]
fn a_fence_waits_for_reads() {
    let mut alone = Alone::new(Terms { rtr: None, ..TERMS });
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    let buffers = [alone.end().sge(0, 8)];
    alone.end().post(qp, 1, Operation::Read(there), 0, 8);
    alone.end().post(qp, 2, Operation::Write(there), 0, 8);
    let fenced = SendRequest { flags: SendFlags::FENCE, ..SendRequest::new(3, Operation::Send, &buffers) };
    alone.end().device.post_send(qp, &fenced).unwrap();
    let opcodes = |alone: &mut Alone| -> Vec<Opcode> {
        alone.segments().iter().map(|sent| sent.segment.opcode).collect()
    };
    assert_eq!(opcodes(&mut alone), [Opcode::ReadRequest, Opcode::Write]);
    assert_eq!(alone.end().statuses(), [], "the WRITE completes behind the READ");
    let destination = SegmentDestination::Tagged { stag: STag(1), offset: 0 };
    alone.deliver(Segment { is_last: true, opcode: Opcode::ReadResponse, destination }, &[7; 8]);
    assert_eq!(opcodes(&mut alone), [Opcode::Send]);
    assert_eq!(alone.end().statuses(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(alone.end().bytes(0, 8), [7; 8]);
}

#[test]
fn no_more_reads_than_the_ord_are_outstanding() {
    for (ord, rd_atomic, expected) in [(2, 4, 2), (4, 1, 1), (3, 3, 3)] {
        let link = Link { rd_atomic, ..Link::default() };
        let mut alone = Alone::with(Terms { ord, rtr: None, ..TERMS }, &link, |_| {});
        let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
        (0..6).for_each(|nth| alone.end().post(qp, nth, Operation::Read(there), 0, 8));
        assert_eq!(alone.segments().len(), expected);
        let destination = SegmentDestination::Tagged { stag: STag(1), offset: 0 };
        alone.deliver(Segment { is_last: true, opcode: Opcode::ReadResponse, destination }, &[7; 8]);
        assert_eq!(alone.segments().len(), 1);
    }
}

#[test]
fn a_connection_without_ord_has_no_reads() {
    let terms = Terms { ord: 0, rtr: None, ..TERMS };
    let mut alone = Alone::new(terms);
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    let buffers = [alone.end().sge(0, 8)];
    let read = SendRequest::new(1, Operation::Read(there), &buffers);
    assert_eq!(alone.end().device.post_send(qp, &read), Err(PostError::NoReads));
}

/// A queue pair in RTS that waits for its stream.
fn on_hold() -> (Pair, QpHandle) {
    let mut pair = Pair::new();
    let [qp, _] = pair.create(QpType::Rc);
    let peer = QpNumber::new(5).unwrap();
    let [init, rtr, rts] = changes(QpType::Rc, address(1), peer, &Link::default());
    let device = &mut pair.ends[0].device;
    [init, rtr].iter().for_each(|change| device.modify_qp(qp, change).unwrap());
    device.hold_qp(qp).unwrap();
    device.modify_qp(qp, &rts).unwrap();
    (pair, qp)
}

#[test]
fn requests_that_were_posted_before_the_connection_follow_it() {
    let immediate =
        Operation::WriteWithImmediate(Remote { address: 0, rkey: RKey(1) }, ImmediateData([0; 4]));
    let read = Operation::Read(Remote { address: 0, rkey: RKey(1) });
    for (operation, ord, extended) in [(read, 0, true), (immediate, 4, false)] {
        let (mut pair, qp) = on_hold();
        pair.ends[0].post(qp, 1, Operation::Send, 0, 8);
        pair.ends[0].post(qp, 2, operation, 0, 8);
        let mut alone = Alone::on(pair, qp, Terms { ord, extended, rtr: None, ..TERMS });
        let sent: Vec<_> = alone.segments().iter().map(|sent| sent.segment.opcode).collect();
        assert_eq!(sent, [Opcode::Send, Opcode::Terminate]);
        assert_eq!(alone.end().statuses(), [(1, Status::Success), (2, Status::LocalQpOperation)]);
    }
}

#[test]
fn responses_leave_room_for_requests() {
    let mut alone = Alone::new(Terms { ird: 16, rtr: None, ..TERMS });
    let qp = alone.qp;
    let request = alone.read_request(0, 8).to_bytes();
    (1..=12).for_each(|nth| {
        alone.deliver(untagged(Opcode::ReadRequest, nth, 0, true), &request);
    });
    (0..2).for_each(|nth| alone.end().post(qp, nth, Operation::Send, 0, 8));
    let sent = alone.segments();
    let sends = sent.iter().enumerate().filter(|(_, sent)| sent.segment.opcode == Opcode::Send);
    assert_eq!(sends.map(|(nth, _)| nth).collect::<Vec<_>>(), [4, 9]);
    assert_eq!(sent.len(), 14);
}

#[test]
fn shared_receives_are_taken_and_waited_for() {
    let (mut pair, end) = (Pair::new(), 1);
    let attributes = SrqAttributes { wrs: 4, sges: 1, limit: 0 };
    let srq = pair.ends[end].device.create_srq(pair.ends[end].domain, attributes).unwrap();
    let qps: [QpHandle; 2] = std::array::from_fn(|at| {
        let config = pair.ends[at].qp_config(QpType::Rc);
        let capacity = QpCapacity { receive_wrs: 0, receive_sges: 0, ..config.capacity };
        let shared = QpConfig { srq: Some(srq), capacity, ..config };
        pair.ends[at].device.create_qp(if at == end { shared } else { config }).unwrap()
    });
    pair.bring_up(QpType::Rc, qps, &Link::default());
    pair.put_on_iwarp(qps, both(TERMS));
    pair.ends[0].post(qps[0], 1, Operation::Send, 0, 10);
    pair.run();
    assert!(!pair.ends[1].device.wants_stream(qps[1]));
    let buffers = [pair.ends[1].sge(0, 10)];
    pair.ends[1].device.post_srq_receive(srq, &ReceiveRequest { wr_id: 5, buffers: &buffers }).unwrap();
    assert!(pair.ends[1].device.wants_stream(qps[1]));
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(5, Status::Success)]);
    pair.ends[1].device.modify_qp(qps[1], &QpChange::to(QpState::Err)).unwrap();
    assert_eq!(pair.ends[1].events(), [Event::LastReceiveReached(qps[1])]);
}

#[test]
fn windows_are_bound_and_written_through() {
    let (mut pair, qps) = connected(TERMS);
    pair.run();
    let (_, window) = pair.ends[1].window(WindowKind::Two);
    let access = Access::REMOTE_WRITE;
    let bind = Bind { window, key_byte: 7, region: pair.ends[1].lkey, address: BASE + 100, len: 50, access };
    pair.ends[1].post_local(qps[1], 1, Operation::BindWindow(bind));
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(1, Status::Success)]);
    let rkey = RKey(window.0 & !0xFF | 7);
    pair.ends[0].fill(0, &[9; 50]);
    pair.ends[0].post(qps[0], 2, Operation::Write(Remote { address: BASE + 100, rkey }), 0, 50);
    pair.run();
    assert_eq!(pair.ends[1].bytes(100, 50), [9; 50]);
    pair.ends[1].post_local(qps[1], 3, Operation::LocalInvalidate(rkey));
    pair.run();
    pair.ends[0].fill(0, &[8; 50]);
    pair.ends[0].post(qps[0], 4, Operation::Write(Remote { address: BASE + 100, rkey }), 0, 50);
    pair.run();
    assert_eq!(pair.ends[1].bytes(100, 50), [9; 50]);
    assert_eq!(pair.ends[0].device.query_qp(qps[0]).unwrap().state, QpState::Err);
}

#[test]
fn requests_behind_a_failed_one_are_flushed_and_not_executed() {
    let bad = Operation::LocalInvalidate(RKey(5));
    let not_carried = Operation::Read(Remote { address: 0, rkey: RKey(1) });
    for (operation, len) in [(bad, 0), (not_carried, 8)] {
        let terms = Terms { ord: 0, rtr: None, ..TERMS };
        let (mut pair, qp) = on_hold();
        let access = Access::LOCAL_WRITE | Access::INVALIDATE;
        let (_, keys) = pair.ends[0].register(RegionConfig::new(BASE, 100, access));
        let buffers = [pair.ends[0].sge(0, len)];
        let payload = if len == 0 { &[][..] } else { &buffers };
        for wr_id in [1, 2] {
            let request = SendRequest::new(wr_id, operation, payload);
            pair.ends[0].device.post_send(qp, &request).unwrap();
        }
        pair.ends[0].post_local(qp, 3, Operation::LocalInvalidate(keys.rkey));
        let mut alone = Alone::on(pair, qp, terms);
        alone.bytes();
        let flushed = [2, 3].map(|wr_id| (wr_id, Status::Flushed));
        assert_eq!(alone.end().statuses(), [[(1, Status::LocalQpOperation)].as_slice(), &flushed].concat());
    }
}

#[test]
fn a_request_that_fails_behind_a_read_ends_the_connection_with_the_response() {
    let mut alone = Alone::new(Terms { rtr: None, ..TERMS });
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    alone.end().receive(qp, 3, 0, 8);
    alone.end().post(qp, 1, Operation::Read(there), 0, 8);
    let unregistered = [Sge { lkey: LKey(5), ..alone.end().sge(0, 8) }];
    let send = SendRequest::new(2, Operation::Send, &unregistered);
    alone.end().device.post_send(qp, &send).unwrap();
    assert_eq!((alone.segments().len(), alone.end().statuses()), (1, vec![]));
    let destination = SegmentDestination::Tagged { stag: STag(1), offset: 0 };
    alone.deliver(Segment { is_last: true, opcode: Opcode::ReadResponse, destination }, &[7; 8]);
    assert_eq!(alone.segments()[0].segment.opcode, Opcode::Terminate);
    let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
    assert_eq!(alone.end().statuses(), expected);
}

#[test]
fn a_draining_queue_starts_nothing() {
    let mut alone = Alone::new(Terms { rtr: None, ..TERMS });
    let (qp, there) = (alone.qp, Remote { address: 0, rkey: RKey(1) });
    alone.end().post(qp, 1, Operation::Read(there), 0, 8);
    assert_eq!(alone.segments().len(), 1);
    let drain = QpChange { drain_notice: Some(DrainNotice::Event), ..QpChange::to(QpState::Sqd) };
    alone.end().device.modify_qp(qp, &drain).unwrap();
    alone.end().post(qp, 2, Operation::Send, 0, 8);
    assert_eq!((alone.segments().len(), alone.end().events()), (0, vec![]));
    let destination = SegmentDestination::Tagged { stag: STag(1), offset: 0 };
    alone.deliver(Segment { is_last: true, opcode: Opcode::ReadResponse, destination }, &[7; 8]);
    assert_eq!(alone.end().events(), [Event::SendQueueDrained(qp)]);
    alone.end().device.modify_qp(qp, &QpChange::to(QpState::Rts)).unwrap();
    assert_eq!(alone.segments().len(), 1);
}

#[test]
fn operations_without_messages_are_refused() {
    let mut alone = Alone::new(TERMS);
    let (qp, there) = (alone.qp, alone.end().remote(0));
    for operation in [Operation::SendWithImmediate(ImmediateData([0; 4])), Operation::AtomicWrite(there)] {
        let buffers = [alone.end().sge(0, 8)];
        let posted = alone.end().device.post_send(qp, &SendRequest::new(1, operation, &buffers));
        assert_eq!(posted, Err(PostError::Transport));
    }
}

/// The sink of a READ is not a key of the program, so that a peer cannot use it for anything else.
#[test]
fn a_read_shows_no_key() {
    let mut alone = Alone::new(Terms { rtr: None, ..TERMS });
    let (qp, there) = (alone.qp, Remote { address: 3, rkey: RKey(1) });
    alone.end().post(qp, 1, Operation::Read(there), 0, 8);
    let sent = alone.segments();
    let request = ReadRequest::from_bytes(sent[0].payload[..].try_into().unwrap());
    assert_eq!((request.sink, request.sink_offset), (STag(1), 0));
    assert_eq!((request.source, request.source_offset, request.len), (STag(1), 3, 8));
}

#[test]
fn messages_do_not_interleave() {
    let mut alone = Alone::new(Terms { ird: 16, rtr: None, max_ulpdu: 100, ..TERMS });
    let qp = alone.qp;
    let request = alone.read_request(0, 1000).to_bytes();
    (1..=8).for_each(|nth| {
        alone.deliver(untagged(Opcode::ReadRequest, nth, 0, true), &request);
    });
    let (mut within, mut buffer) = (None, [0; 300]);
    let (mut messages, mut is_posted) = (0, false);
    while let Some(Transmit::Stream(StreamBytes { len, .. })) =
        alone.end().device.poll_transmit(Instant::ZERO, 16, &mut buffer)
    {
        let mut rest = &buffer[..len];
        while let Some(fpdu) = Fpdu::parse(rest, TERMS.crc).unwrap() {
            let (segment, _) = Segment::parse(fpdu.ulpdu).unwrap();
            assert!(within.is_none_or(|opcode| opcode == segment.opcode));
            within = Some(segment.opcode).filter(|_| !segment.is_last);
            messages += usize::from(segment.is_last);
            rest = &rest[fpdu.len..];
        }
        // More responses than a burst were sent, and one is incomplete: requests follow, but not within it.
        if messages > 5 && within.is_some() && !is_posted {
            is_posted = true;
            (0..4).for_each(|nth| alone.end().post(qp, nth, Operation::Send, 0, 1000));
        }
    }
    assert_eq!(messages, 12);
}
