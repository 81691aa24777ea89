//! Receives whose buffers cannot be written, on unreliable services: they complete with a local protection
//! error, and the queue pair enters ERROR (IBA 9.9.3).

use crate::common::{ALL, BASE, End, Fate, Link, Pair, address};
use nichrome_rdma::*;

/// Bytes of a message, and of the network header in front of a datagram.
const LEN: usize = 3000;
const HEADER: usize = 40;

/// Why a receive cannot be written.
#[derive(Clone, Copy, Debug)]
enum Fault {
    WrongKey,
    NoLocalWrite,
    Deregistered,
}

/// A buffer for one message, and the region to deregister once its receive is posted.
fn buffer(end: &mut End, fault: Fault) -> (Sge, Option<RegionHandle>) {
    let right = end.sge(8192, LEN + HEADER);
    match fault {
        Fault::WrongKey => (Sge { lkey: LKey(0xDEAD), ..right }, None),
        Fault::NoLocalWrite => {
            let (_, keys) = end.register(RegionConfig::new(BASE, 1 << 20, Access::NONE));
            (Sge { lkey: keys.lkey, ..right }, None)
        }
        Fault::Deregistered => {
            let (region, keys) = end.register(RegionConfig::new(BASE, 1 << 20, ALL));
            (Sge { lkey: keys.lkey, ..right }, Some(region))
        }
    }
}

/// Connects queue pairs, of which the second has its own receives or those of a shared queue.
fn connect(pair: &mut Pair, kind: QpType, srq: Option<SrqHandle>) -> [QpHandle; 2] {
    let config = QpConfig { srq, ..pair.ends[1].qp_config(kind) };
    let b = pair.ends[1].device.create_qp(config).unwrap();
    let a = pair.ends[0].device.create_qp(pair.ends[0].qp_config(kind)).unwrap();
    pair.bring_up(kind, [a, b], &Link::default());
    [a, b]
}

/// Posts a receive at the second end.
fn receive(end: &mut End, qp: QpHandle, srq: Option<SrqHandle>, wr_id: u64, buffer: Sge) {
    let request = ReceiveRequest { wr_id, buffers: &[buffer] };
    match srq {
        Some(srq) => end.device.post_srq_receive(srq, &request).unwrap(),
        None => end.device.post_receive(qp, &request).unwrap(),
    }
}

/// Sends a message of the first end, which completes.
fn send(pair: &mut Pair, [a, b]: [QpHandle; 2], kind: QpType, len: usize) {
    let buffers = [pair.ends[0].sge(0, len)];
    let mut request = SendRequest::new(1, Operation::Send, &buffers);
    if kind == QpType::Ud {
        let qp = pair.ends[1].device.qp_number(b).unwrap();
        let end = &mut pair.ends[0];
        let to = end.device.create_address(end.domain, AddressVector::to(address(1))).unwrap();
        request.recipient = Some(Recipient { address: to, qp, qkey: QKey(0x1234) });
    }
    pair.ends[0].device.post_send(a, &request).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
}

fn fails_its_queue_pair(kind: QpType, fault: Fault, is_shared: bool) {
    let mut pair = Pair::new();
    pair.record = true;
    let end = &mut pair.ends[1];
    let attributes = SrqAttributes { wrs: 8, sges: 1, limit: 0 };
    let srq = is_shared.then(|| end.device.create_srq(end.domain, attributes).unwrap());
    let qps = connect(&mut pair, kind, srq);
    let b = qps[1];
    let (wrong, region) = buffer(&mut pair.ends[1], fault);
    receive(&mut pair.ends[1], b, srq, 50, wrong);
    if let Some(region) = region {
        pair.ends[1].device.deregister(region).unwrap();
    }
    let right = pair.ends[1].sge(0, LEN + HEADER);
    receive(&mut pair.ends[1], b, srq, 51, right);
    send(&mut pair, qps, kind, LEN);
    let rest = srq.is_none().then_some((51, Status::Flushed));
    let ended: Vec<_> = [(50, Status::LocalProtection)].into_iter().chain(rest).collect();
    assert_eq!(pair.ends[1].statuses(), ended);
    assert_eq!(pair.ends[1].device.query_qp(b).unwrap().state, QpState::Err);
    let events = pair.ends[1].events();
    assert!(events.contains(&Event::QpFatal(b)), "{events:?}");
    assert_eq!(events.contains(&Event::LastReceiveReached(b)), is_shared);
    // Later messages are dropped.
    send(&mut pair, qps, kind, LEN);
    assert_eq!(pair.ends[1].statuses(), []);
    assert!(pair.sent.iter().all(|(end, _)| *end == 0), "no NAK");
    if is_shared {
        // Another queue pair takes the second receive.
        let others = connect(&mut pair, kind, srq);
        send(&mut pair, others, kind, LEN);
        assert_eq!(pair.ends[1].statuses(), [(51, Status::Success)]);
    }
}

#[test]
fn a_receive_that_cannot_be_written_fails_its_queue_pair() {
    for kind in [QpType::Ud, QpType::Uc] {
        for fault in [Fault::WrongKey, Fault::NoLocalWrite, Fault::Deregistered] {
            fails_its_queue_pair(kind, fault, false);
            fails_its_queue_pair(kind, fault, true);
        }
    }
}

/// The first packet of the message was written, and the region is deregistered before the next.
#[test]
fn a_region_deregistered_within_an_unreliable_message_fails_its_receive() {
    let mut pair = Pair::new();
    let mut late = 0;
    pair.fates = Some(Box::new(move |_, _| {
        late += 20_000;
        Fate::ArrivesLate(late)
    }));
    let qps = connect(&mut pair, QpType::Uc, None);
    let (sge, region) = buffer(&mut pair.ends[1], Fault::Deregistered);
    receive(&mut pair.ends[1], qps[1], None, 50, sge);
    pair.ends[0].post(qps[0], 1, Operation::Send, 0, LEN);
    pair.run_until(|pair| pair.ends[1].device.counters().received > 0);
    assert_eq!(pair.ends[1].statuses(), []);
    pair.ends[1].device.deregister(region.unwrap()).unwrap();
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(50, Status::LocalProtection)]);
    assert_eq!(pair.ends[1].device.query_qp(qps[1]).unwrap().state, QpState::Err);
}

/// A message that is too long for a receive is dropped before the receive's key is checked.
#[test]
fn a_message_too_long_for_an_unwritable_receive_leaves_it() {
    for kind in [QpType::Ud, QpType::Uc] {
        let mut pair = Pair::new();
        let qps = connect(&mut pair, kind, None);
        let (wrong, _) = buffer(&mut pair.ends[1], Fault::WrongKey);
        receive(&mut pair.ends[1], qps[1], None, 50, Sge { len: 100, ..wrong });
        send(&mut pair, qps, kind, 101);
        assert_eq!(pair.ends[1].statuses(), [], "{kind:?}");
        assert_eq!(pair.ends[1].device.counters().dropped_unreliable, 1);
        send(&mut pair, qps, kind, 10);
        assert_eq!(pair.ends[1].statuses(), [(50, Status::LocalProtection)], "{kind:?}");
    }
}
