//! The byte stream below: splits, stalls, who sends first, how it ends.

use nichrome_rdma::iwarp::{Role, RtrMessage, Terms};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{Crc, Opcode, Segment, SegmentDestination};

use crate::common::{BASE, Link, pattern};
use crate::foreign::{Alone, untagged};
use crate::support::{TERMS, both, connected};

/// The stream of a peer with one operation of each kind, and the queue pair that receives it.
fn conversation(terms: Terms) -> (Vec<u8>, impl Fn() -> Alone) {
    let receiver = move || {
        let mut alone = Alone::new(Terms { role: Role::Responder, ..both(terms)[1] });
        let qp = alone.qp;
        alone.end().fill(0, &pattern(400, 3));
        alone.end().receive(qp, 1, 1000, 500);
        alone.end().receive(qp, 2, 2000, 500);
        alone
    };
    let (rkey, bytes) = (receiver().end().rkey, pattern(300, 1));
    let mut sender = Alone::new(terms);
    let qp = sender.qp;
    sender.end().fill(0, &bytes);
    let there = |at: u64| Remote { address: BASE + at, rkey };
    sender.end().post(qp, 1, Operation::Write(there(3000)), 0, 300);
    sender.end().post(qp, 2, Operation::Send, 0, 200);
    sender.end().post(qp, 3, Operation::Read(there(0)), 5000, 400);
    sender.end().post(qp, 4, Operation::WriteWithImmediate(there(4000), ImmediateData([7; 4])), 0, 100);
    sender.end().post(qp, 5, Operation::FetchAdd { remote: there(8), add: 1 }, 6000, 8);
    (sender.bytes(), receiver)
}

#[test]
fn a_stream_means_the_same_however_it_is_split() {
    for (crc, markers) in [(Crc::Used, false), (Crc::Unused, true), (Crc::Used, true)] {
        let terms = Terms { crc, markers_out: markers, markers_in: markers, max_ulpdu: 100, ..TERMS };
        let (stream, receiver) = conversation(terms);
        let mut whole = receiver();
        assert_eq!(whole.deliver_bytes(&stream), stream.len());
        let expected = whole.effects(8000);
        assert_eq!(expected.1.len(), 2);
        for split in 0..=stream.len() {
            let mut alone = receiver();
            let consumed = alone.deliver_bytes(&stream[..split]);
            let rest = alone.deliver_bytes(&stream[consumed..]);
            assert_eq!(consumed + rest, stream.len(), "split at {split}");
            assert_eq!(alone.effects(8000), expected, "split at {split}");
        }
        let mut alone = receiver();
        let mut from = 0;
        for to in 0..=stream.len() {
            from += alone.deliver_bytes(&stream[from..to]);
        }
        assert_eq!((from, alone.effects(8000)), (stream.len(), expected), "byte by byte");
    }
}

#[test]
fn a_full_stream_stops_the_sender_until_the_peer_posts_receives() {
    let (mut pair, qps) = connected(TERMS);
    pair.streams.carriage.capacity = 70_000;
    for nth in 0..100 {
        pair.ends[0].post(qps[0], nth, Operation::Send, 0, 4000);
    }
    pair.run();
    let done = pair.ends[0].completions().len();
    assert!((10..60).contains(&done), "{done} sends fit the stream and the driver's buffers");
    let waiting = pair.streams.waiting(0);
    assert!((70_000..170_000).contains(&waiting), "{waiting}");
    for nth in 0..100 {
        pair.ends[1].receive(qps[1], nth, 0, 4000);
    }
    pair.run();
    assert_eq!((pair.ends[0].completions().len(), pair.ends[1].completions().len()), (100 - done, 100));
}

#[test]
fn the_responder_is_silent_before_the_first_fpdu() {
    for rtr in [None, Some(RtrMessage::Send), Some(RtrMessage::Write), Some(RtrMessage::Read)] {
        let mut responder = Alone::new(both(Terms { rtr, ..TERMS })[1]);
        let qp = responder.qp;
        responder.end().post(qp, 1, Operation::Send, 0, 10);
        assert_eq!(responder.bytes(), [], "{rtr:?}");
        let mut initiator = Alone::new(Terms { rtr, ..TERMS });
        let first = initiator.bytes();
        assert_eq!(first.is_empty(), rtr.is_none());
        responder.deliver_bytes(&first);
        let sent = responder.segments();
        // The zero-length READ is answered like any other.
        let expected: &[Opcode] = match rtr {
            None => &[],
            Some(RtrMessage::Read) => &[Opcode::ReadResponse, Opcode::Send],
            Some(_) => &[Opcode::Send],
        };
        assert_eq!(sent.iter().map(|sent| sent.segment.opcode).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_ready_to_receive_message_takes_no_receive_and_completes_nothing() {
    for rtr in [RtrMessage::Send, RtrMessage::Write, RtrMessage::Read] {
        let (mut pair, qps) = connected(Terms { rtr: Some(rtr), ..TERMS });
        pair.ends[1].receive(qps[1], 1, 0, 100);
        pair.run();
        assert_eq!(pair.ends[0].completions().len() + pair.ends[1].completions().len(), 0, "{rtr:?}");
        pair.ends[0].post(qps[0], 2, Operation::Send, 0, 100);
        pair.run();
        assert_eq!(pair.ends[1].statuses(), [(1, Status::Success)]);
        assert_eq!(pair.ends[0].statuses(), [(2, Status::Success)]);
    }
}

#[test]
fn a_responder_that_sends_first_is_accepted() {
    // siw does so, against RFC 5044.
    let mut initiator = Alone::new(Terms { rtr: None, ..TERMS });
    let qp = initiator.qp;
    initiator.end().receive(qp, 1, 0, 10);
    assert!(initiator.deliver(untagged(Opcode::Send, 1, 0, true), &[1]));
    assert_eq!(initiator.end().statuses(), [(1, Status::Success)]);
}

#[test]
fn the_first_fpdu_establishes_a_queue_pair_in_rtr() {
    let (mut pair, terms) = (crate::common::Pair::new(), both(TERMS)[1]);
    let [qp, _] = pair.create(QpType::Rc);
    let peer = QpNumber::new(5).unwrap();
    let changes = crate::common::changes(QpType::Rc, crate::common::address(1), peer, &Link::default());
    let device = &mut pair.ends[0].device;
    changes[..2].iter().for_each(|change| device.modify_qp(qp, change).unwrap());
    device.connect(qp, &terms).unwrap();
    let segment = Segment {
        is_last: true,
        opcode: Opcode::Write,
        destination: SegmentDestination::Tagged { stag: nichrome_wire::iwarp::STag(1), offset: 0 },
    };
    let bytes = crate::foreign::fpdu(&segment, &[], terms.crc);
    for _ in 0..2 {
        assert_eq!(device.receive_stream(qp, &bytes, Instant::ZERO), Ok(bytes.len()));
    }
    assert_eq!(pair.ends[0].events(), [Event::Established(qp)], "once");
}

#[test]
fn an_idle_queue_pair_closes_in_order_and_a_busy_one_resets() {
    let (mut pair, qps) = connected(TERMS);
    pair.run();
    pair.ends[1].receive(qps[1], 1, 0, 10);
    pair.ends[0].device.modify_qp(qps[0], &QpChange::to(QpState::Err)).unwrap();
    pair.run();
    assert_eq!(pair.streams.endings, [(0, StreamShutdown::Orderly)]);
    assert_eq!(pair.ends[1].statuses(), [(1, Status::Flushed)]);
    assert_eq!(pair.ends[1].device.query_qp(qps[1]).unwrap().state, QpState::Err);

    let (mut pair, qps) = connected(TERMS);
    pair.run();
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(qps[0], 1, Operation::Read(there), 0, 10);
    pair.transmit();
    pair.ends[0].device.modify_qp(qps[0], &QpChange::to(QpState::Err)).unwrap();
    pair.run();
    assert_eq!(pair.streams.endings, [(0, StreamShutdown::Abort)]);
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Flushed)]);
    assert_eq!(pair.ends[1].device.query_qp(qps[1]).unwrap().state, QpState::Err);
}

#[test]
fn a_blocked_stream_is_reset_nevertheless() {
    let mut alone = Alone::new(TERMS);
    let qp = alone.qp;
    alone.bytes();
    alone.end().device.hold_sends(qp);
    alone.end().post(qp, 1, Operation::Send, 0, 10);
    assert_eq!((alone.bytes().len(), alone.ending), (0, None));
    alone.end().device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap();
    assert_eq!((alone.bytes().len(), alone.ending), (0, Some(StreamShutdown::Abort)));
}

#[test]
fn an_idle_queue_pair_leaves_a_stream_that_is_blocked() {
    let mut alone = Alone::new(TERMS);
    let qp = alone.qp;
    alone.bytes();
    alone.end().device.hold_sends(qp);
    alone.end().device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap();
    assert_eq!((alone.bytes().len(), alone.ending), (0, Some(StreamShutdown::Orderly)));
}

#[test]
fn messages_sent_before_an_orderly_end_arrive() {
    let (mut pair, qps) = connected(TERMS);
    pair.streams.carriage.capacity = 70_000;
    pair.ends[1].receive(qps[1], 1, 0, 200_000);
    pair.ends[0].post(qps[0], 2, Operation::Send, 0, 200_000);
    pair.run_until(|pair| pair.ends[0].device.query_qp(qps[0]).is_ok_and(|_| pair.streams.waiting(0) > 0));
    pair.run();
    pair.ends[0].device.modify_qp(qps[0], &QpChange::to(QpState::Err)).unwrap();
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(1, Status::Success)]);
}

#[test]
fn a_lost_stream_flushes_everything() {
    let mut alone = Alone::new(TERMS);
    let qp = alone.qp;
    let there = alone.end().remote(0);
    alone.end().receive(qp, 1, 0, 10);
    alone.end().post(qp, 2, Operation::Read(there), 0, 10);
    alone.bytes();
    alone.end().post(qp, 3, Operation::Send, 0, 10);
    alone.end().device.stream_closed(qp, StreamEnd::Lost, Instant::ZERO);
    assert_eq!(alone.end().statuses(), [(2, Status::Flushed), (3, Status::Flushed), (1, Status::Flushed)]);
    assert_eq!((alone.bytes().len(), alone.ending), (0, None), "the driver knows");
    alone.end().post(qp, 4, Operation::Send, 0, 10);
    alone.end().receive(qp, 5, 0, 10);
    assert_eq!(alone.end().statuses(), [(4, Status::Flushed), (5, Status::Flushed)]);
}

#[test]
fn the_end_of_its_former_stream_is_nothing_to_a_queue_pair_that_was_reset() {
    let mut alone = Alone::with(TERMS, &Link::default(), |config| config.native = Native::Iwarp);
    let qp = alone.qp;
    for state in [QpState::Reset, QpState::Init] {
        let device = &mut alone.end().device;
        device.modify_qp(qp, &QpChange::to(state)).unwrap();
        device.stream_closed(qp, StreamEnd::Closed, Instant::ZERO);
        assert_eq!(device.query_qp(qp).unwrap().state, state);
    }
    alone.end().receive(qp, 1, 0, 10);
    assert_eq!((alone.end().statuses(), alone.end().events()), (vec![], vec![]));
}

#[test]
fn segments_have_the_agreed_size() {
    let mut alone = Alone::new(Terms { rtr: None, max_ulpdu: 1442, ..TERMS });
    let qp = alone.qp;
    alone.end().post(qp, 1, Operation::Send, 0, 10_000);
    let sent = alone.segments();
    assert!(sent.iter().all(|sent| sent.segment.header_len() + sent.payload.len() <= 1442));
    assert_eq!((sent.len(), sent[0].payload.len()), (8, 1424));
    let offsets = sent.iter().map(|sent| match sent.segment.destination {
        SegmentDestination::Untagged { offset, .. } => offset,
        SegmentDestination::Tagged { .. } => panic!(),
    });
    assert_eq!(offsets.collect::<Vec<_>>(), (0..8).map(|nth| nth * 1424).collect::<Vec<_>>());
    assert_eq!(sent.iter().map(|sent| sent.segment.is_last).position(|is_last| is_last), Some(7));
}
