//! Extended reliable connections (IBA annex A14).

use crate::common::{ALL, BASE, End, Faults, Link, Pair, address, datagram, pattern};
use nichrome_rdma::*;
use nichrome_wire::rdma::{
    Aeth, Bth, BthFlags, Credit, Message, Msn, NakCode, PKey, RcMessage, ReadResponse, Repr, Syndrome,
};

/// A pair whose first end has an initiator, and whose second end has its target and two shared receive
/// queues, each with a completion queue, a protection domain and a region of its own.
struct Xrc {
    pair: Pair,
    initiator: QpHandle,
    target: QpHandle,
    domain: XrcHandle,
    queues: [Queue; 2],
}

#[derive(Clone, Copy)]
struct Queue {
    srq: SrqHandle,
    number: SrqNumber,
    cq: CqHandle,
    region: RegionReport,
}

const SRQ: SrqAttributes = SrqAttributes { wrs: 64, sges: 2, limit: 0 };

fn queue(end: &mut End, xrc: XrcHandle) -> Queue {
    let domain = end.device.create_domain().unwrap();
    let cq = end.device.create_cq(256).unwrap();
    let srq = end.device.create_xrc_srq(xrc, domain, cq, SRQ).unwrap();
    let number = end.device.srq_number(srq).unwrap();
    let config = RegionConfig::new(BASE, crate::common::MEMORY as u64, ALL);
    let (_, region) = crate::common::register(&mut end.device, domain, config);
    Queue { srq, number, cq, region }
}

impl Xrc {
    fn new(pair: Pair) -> Self {
        Self::linked(pair, &Link::default())
    }

    fn linked(mut pair: Pair, link: &Link) -> Self {
        let [one, two] = &mut pair.ends;
        let initiator = one.device.create_qp(one.qp_config(QpType::XrcSend)).unwrap();
        let domain = two.device.create_xrc_domain().unwrap();
        let target = two.device.create_xrc_target(domain).unwrap();
        let queues = [0, 1].map(|_| queue(two, domain));
        let numbers = [one.device.qp_number(initiator).unwrap(), two.device.qp_number(target).unwrap()];
        crate::common::bring_up(&mut one.device, QpType::XrcSend, initiator, address(1), numbers[1], link);
        crate::common::bring_up(&mut two.device, QpType::XrcReceive, target, address(0), numbers[0], link);
        Self { pair, initiator, target, domain, queues }
    }

    fn receive(&mut self, queue: usize, wr_id: u64, at: usize, len: usize) {
        let Queue { srq, region, .. } = self.queues[queue];
        let buffers = [Sge { address: BASE + at as u64, len: len as u32, lkey: region.lkey }];
        self.pair.ends[1].device.post_srq_receive(srq, &ReceiveRequest { wr_id, buffers: &buffers }).unwrap();
    }

    /// Posts a request that names the queue.
    fn post(&mut self, number: SrqNumber, wr_id: u64, operation: Operation, at: usize, len: usize) {
        let buffers = [self.pair.ends[0].sge(at, len)];
        let request = SendRequest { srq: Some(number), ..SendRequest::new(wr_id, operation, &buffers) };
        self.pair.ends[0].device.post_send(self.initiator, &request).unwrap();
    }

    fn remote(&self, queue: usize, at: usize) -> Remote {
        Remote { address: BASE + at as u64, rkey: self.queues[queue].region.rkey }
    }

    fn received(&mut self, queue: usize) -> Vec<Completion> {
        let (device, cq) = (&mut self.pair.ends[1].device, self.queues[queue].cq);
        std::iter::from_fn(|| device.poll_cq(cq)).collect()
    }

    fn states(&self) -> [QpState; 2] {
        let state = |end: usize, qp| self.pair.ends[end].device.query_qp(qp).unwrap().state;
        [state(0, self.initiator), state(1, self.target)]
    }
}

#[test]
fn messages_fill_receives_of_the_queue_that_they_name_whatever_is_lost() {
    for seed in 0..10 {
        let faults = Faults { loss: 0.1, duplicate: 0.1, reorder: 0.2, corrupt: 0.05, mark: 0.1 };
        let mut xrc = Xrc::new(Pair::new().seeded(seed, faults));
        let data = pattern(5000, seed);
        xrc.pair.ends[0].fill(0, &data);
        for n in 0..20 {
            let queue = n % 2;
            xrc.receive(queue, n as u64, 5000 * n, 5000);
            let number = xrc.queues[queue].number;
            let immediate = Operation::SendWithImmediate(ImmediateData([n as u8; 4]));
            xrc.post(number, n as u64, immediate, 0, 5000 - n);
        }
        xrc.pair.run();
        assert_eq!(xrc.pair.ends[0].statuses(), (0..20).map(|id| (id, Status::Success)).collect::<Vec<_>>());
        let target = xrc.pair.ends[1].device.qp_number(xrc.target).unwrap();
        for queue in 0..2 {
            let received = xrc.received(queue);
            assert_eq!(received.len(), 10);
            for (wc, n) in received.iter().zip((queue..20).step_by(2)) {
                assert_eq!(
                    (wc.wr_id, wc.status, wc.len, wc.qp),
                    (n as u64, Status::Success, 5000 - n as u32, target)
                );
                assert_eq!(wc.notice, Some(Notice::Immediate(ImmediateData([n as u8; 4]))));
                assert_eq!(*xrc.pair.ends[1].bytes(5000 * n, 5000 - n), data[..5000 - n]);
            }
        }
    }
}

#[test]
fn every_operation_uses_the_domain_of_the_queue_that_it_names() {
    let mut xrc = Xrc::new(Pair::new());
    let data = pattern(5000, 1);
    xrc.pair.ends[0].fill(0, &data);
    let scope = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Range };
    for queue in 0..2 {
        let (number, at) = (xrc.queues[queue].number, 10_000 * (queue + 1));
        let remote = xrc.remote(queue, at);
        let word = xrc.remote(queue, 8 * queue);
        xrc.receive(queue, 9, 0, 0);
        xrc.post(number, 1, Operation::Write(remote), 0, 5000);
        xrc.post(number, 2, Operation::Read(remote), 100_000 + at, 5000);
        xrc.post(number, 3, Operation::FetchAdd { remote: word, add: 5 }, 50_000, 8);
        xrc.post(number, 4, Operation::CompareSwap { remote: word, compare: 5, swap: 7 }, 50_008, 8);
        xrc.post(number, 5, Operation::WriteWithImmediate(remote, ImmediateData([1; 4])), 0, 5000);
        xrc.post(number, 6, Operation::AtomicWrite(word), 0, 8);
        xrc.post(number, 7, Operation::Flush { remote, len: 5000, scope }, 0, 0);
    }
    xrc.pair.run();
    let expected = (0..2).flat_map(|_| (1..8).map(|id| (id, Status::Success)));
    assert_eq!(xrc.pair.ends[0].statuses(), expected.collect::<Vec<_>>());
    for queue in 0..2 {
        let at = 10_000 * (queue + 1);
        assert_eq!(*xrc.pair.ends[1].bytes(at, 5000), data);
        assert_eq!(*xrc.pair.ends[0].bytes(100_000 + at, 5000), data);
        assert_eq!(*xrc.pair.ends[1].bytes(8 * queue, 8), data[..8]);
        let received = xrc.received(queue);
        assert_eq!(received[0].operation, CompletedOperation::ReceiveWithWrite);
    }
}

/// A key of one queue's protection domain is not valid in the other's.
#[test]
fn a_key_of_another_domain_is_refused() {
    for operation in [Operation::Write as fn(Remote) -> Operation, Operation::Read] {
        let mut xrc = Xrc::new(Pair::new());
        let (remote, number) = (xrc.remote(1, 0), xrc.queues[0].number);
        xrc.post(number, 1, operation(remote), 0, 100);
        xrc.pair.run();
        assert_eq!(xrc.pair.ends[0].statuses(), [(1, Status::RemoteAccess)]);
        assert_eq!(xrc.states(), [QpState::Err; 2]);
    }
}

/// The responder answers a READ in the protection domain of the queue that it named, even if the next request
/// names another.
#[test]
fn a_response_keeps_the_domain_of_its_request() {
    let mut xrc = Xrc::new(Pair::new());
    let data = pattern(3000, 2);
    xrc.pair.ends[1].fill(0, &data);
    xrc.receive(1, 1, 50_000, 100);
    let (remote, numbers) = (xrc.remote(0, 0), xrc.queues.map(|queue| queue.number));
    xrc.post(numbers[0], 1, Operation::Read(remote), 10_000, 3000);
    xrc.post(numbers[1], 2, Operation::Send, 0, 100);
    // Both requests arrive before an answer leaves.
    xrc.pair.run();
    assert_eq!(xrc.pair.ends[0].statuses(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(*xrc.pair.ends[0].bytes(10_000, 3000), data);
}

#[test]
fn a_number_of_no_queue_of_the_targets_domain_is_refused() {
    for nth in 0..4 {
        let mut xrc = Xrc::new(Pair::new());
        let end = &mut xrc.pair.ends[1];
        let plain = end.device.create_srq(end.domain, SRQ).unwrap();
        assert_eq!(end.device.srq_number(plain), Err(ObjectError::Unknown(ObjectKind::Srq)));
        let other = end.device.create_xrc_domain().unwrap();
        let of_other = queue(end, other).number;
        end.device.destroy_srq(xrc.queues[1].srq).unwrap();
        let unused = [0, 0xFF_FFFF].map(|number| SrqNumber::new(number).unwrap());
        let number = [unused[0], unused[1], of_other, xrc.queues[1].number][nth];
        xrc.post(number, 1, Operation::Send, 0, 10);
        xrc.pair.run();
        assert_eq!(xrc.pair.ends[0].statuses(), [(1, Status::RemoteInvalidRequest)], "{nth}");
        assert_eq!(xrc.states(), [QpState::Err; 2]);
    }
}

/// No standard requester sends packets of one message that name two queues.
#[test]
fn a_message_that_changes_its_queue_is_refused() {
    let mut xrc = Xrc::new(Pair::new());
    xrc.receive(0, 1, 0, 5000);
    xrc.pair.record = true;
    xrc.post(xrc.queues[0].number, 1, Operation::Send, 0, 5000);
    xrc.pair.transmit();
    let sent: Vec<_> = xrc.pair.sent.iter().map(|(_, bytes)| bytes.clone()).collect();
    let number = xrc.queues[1].number;
    xrc.pair.inject(1, &sent[0]);
    xrc.pair.inject(1, &crate::common::with_srq(&sent[1], &Pair::flow(0), number));
    assert_eq!(xrc.states()[1], QpState::Err);
    assert_eq!(xrc.received(0)[0].status, Status::RemoteInvalidRequest);
}

#[test]
fn a_queue_without_receives_answers_not_ready_and_the_other_goes_on() {
    let mut xrc = Xrc::linked(Pair::new(), &Link { rnr_retry: 0, ..Link::default() });
    xrc.receive(1, 7, 0, 100);
    let numbers = xrc.queues.map(|queue| queue.number);
    xrc.post(numbers[1], 1, Operation::Send, 0, 100);
    xrc.post(numbers[0], 2, Operation::Send, 0, 100);
    xrc.pair.run();
    assert_eq!(xrc.pair.ends[0].statuses(), [(1, Status::Success), (2, Status::RnrRetryExceeded)]);
    assert_eq!(xrc.received(1)[0].wr_id, 7);
}

/// IBA annex A14: the initiator has no responder, the target no requester.
#[test]
fn an_initiator_receives_nothing_and_a_target_sends_nothing() {
    let mut xrc = Xrc::new(Pair::new());
    let buffers = [xrc.pair.ends[0].sge(0, 10)];
    let plain = SendRequest::new(1, Operation::Send, &buffers);
    let named = SendRequest { srq: Some(xrc.queues[0].number), ..plain };
    let post = |end: &mut End, qp, request| end.device.post_send(qp, request);
    assert_eq!(post(&mut xrc.pair.ends[0], xrc.initiator, &plain), Err(PostError::Recipient));
    assert!(post(&mut xrc.pair.ends[1], xrc.target, &named).is_err());
    let receive = ReceiveRequest { wr_id: 1, buffers: &[] };
    assert!(xrc.pair.ends[1].device.post_receive(xrc.target, &receive).is_err());
    xrc.pair.record = true;
    xrc.receive(0, 1, 0, 100);
    xrc.post(xrc.queues[0].number, 1, Operation::Send, 0, 10);
    xrc.pair.run();
    let (_, sent) = xrc.pair.sent[0].clone();
    // XRC SEND only, with the number of the queue behind the base header; answered by an XRC ACK without one.
    assert_eq!((sent[0], sent.len()), (0xA4, 12 + 4 + 12 + 4));
    assert_eq!(sent[12..16], xrc.queues[0].number.value().to_be_bytes());
    assert_eq!((xrc.pair.sent[1].1[0], xrc.pair.sent[1].1.len()), (0xB1, 20));
    // The same request at an initiator is dropped.
    let [one, two] = &mut xrc.pair.ends;
    let second = two.device.create_qp(two.qp_config(QpType::XrcSend)).unwrap();
    let (to, link) = (two.device.qp_number(second).unwrap(), Link::default());
    let from = one.device.qp_number(xrc.initiator).unwrap();
    crate::common::bring_up(&mut two.device, QpType::XrcSend, second, address(0), from, &link);
    let bytes = crate::common::readdressed(&sent, &Pair::flow(0), to);
    let before = xrc.pair.ends[1].device.counters().dropped_unknown;
    xrc.pair.inject(1, &bytes);
    assert_eq!(xrc.pair.ends[1].device.counters().dropped_unknown, before + 1);
}

#[test]
fn an_answer_to_a_target_is_dropped() {
    let mut xrc = Xrc::new(Pair::new());
    let target = xrc.pair.ends[1].device.qp_number(xrc.target).unwrap();
    let aeth = |syndrome| Aeth { syndrome, msn: Msn::new(0) };
    let ack = aeth(Syndrome::Ack(Credit::UNLIMITED));
    let answers = [
        RcMessage::Acknowledge(ack),
        RcMessage::Acknowledge(aeth(Syndrome::Nak(NakCode::RemoteAccess))),
        RcMessage::ReadResponse(ReadResponse::Only(ack)),
        RcMessage::AtomicAcknowledge(ack, 0),
    ];
    for (message, dropped) in answers.into_iter().zip(1..) {
        let psn = Psn::new(Link::default().psn);
        let bth = Bth { flags: BthFlags::MIGRATED, pkey: PKey::default(), dest_qp: target, psn };
        let repr = Repr { bth, message: Message::Xrc(SrqNumber::default(), message) };
        xrc.pair.inject(1, &datagram(0, &repr, &[]));
        assert_eq!(xrc.pair.ends[1].device.counters().dropped_unknown, dropped);
        assert_eq!(xrc.states(), [QpState::Rts; 2]);
    }
    assert_eq!(xrc.pair.ends[1].events(), []);
    xrc.receive(0, 7, 0, 100);
    xrc.post(xrc.queues[0].number, 1, Operation::Send, 0, 100);
    xrc.pair.run();
    assert_eq!(xrc.pair.ends[0].statuses(), [(1, Status::Success)]);
}

/// DCQCN: the target sends the READ responses, so it reacts.
#[test]
fn a_target_slows_down_if_its_responses_are_marked() {
    let took = |mark| {
        let dcqcn = Congestion::Dcqcn(Dcqcn { line_rate: 10_000_000_000, ..Dcqcn::default() });
        let pair = Pair::with(|config| config.roce.congestion = dcqcn);
        let mut xrc = Xrc::new(pair.seeded(5, Faults { mark, ..Faults::default() }));
        let (number, remote) = (xrc.queues[0].number, xrc.remote(0, 0));
        xrc.post(number, 1, Operation::Read(remote), 0, 1 << 20);
        xrc.pair.run();
        let [done] = xrc.pair.ends[0].completions()[..] else { panic!() };
        assert_eq!(done.status, Status::Success);
        done.at.as_nanos()
    };
    let (free, marked) = (took(0.0), took(0.1));
    assert!(2 * free < marked, "{free} {marked}");
}

#[test]
fn a_domain_is_in_use_while_it_has_queues_or_targets() {
    let mut xrc = Xrc::new(Pair::new());
    let device = &mut xrc.pair.ends[1].device;
    let in_use = Err(ObjectError::InUse(ObjectKind::Xrc));
    assert_eq!(device.destroy_cq(xrc.queues[0].cq), Err(ObjectError::InUse(ObjectKind::Cq)));
    device.destroy_srq(xrc.queues[0].srq).unwrap();
    device.destroy_srq(xrc.queues[1].srq).unwrap();
    device.destroy_cq(xrc.queues[0].cq).unwrap();
    assert_eq!(device.destroy_xrc_domain(xrc.domain), in_use);
    device.destroy_qp(xrc.target).unwrap();
    assert_eq!(device.destroy_xrc_domain(xrc.domain), Ok(()));
    assert_eq!(device.destroy_xrc_domain(xrc.domain), Err(ObjectError::Unknown(ObjectKind::Xrc)));
}

/// After a message, a target has the objects again that it was created with.
#[test]
fn a_target_that_has_received_is_destroyed_or_reset() {
    let mut xrc = Xrc::new(Pair::new());
    xrc.receive(0, 1, 0, 100);
    xrc.post(xrc.queues[0].number, 1, Operation::Send, 0, 10);
    xrc.pair.run();
    assert_eq!(xrc.received(0).len(), 1);
    let device = &mut xrc.pair.ends[1].device;
    device.modify_qp(xrc.target, &QpChange::to(QpState::Reset)).unwrap();
    device.destroy_qp(xrc.target).unwrap();
    for queue in xrc.queues {
        device.destroy_srq(queue.srq).unwrap();
        device.destroy_cq(queue.cq).unwrap();
    }
    device.destroy_xrc_domain(xrc.domain).unwrap();
}

/// The receives belong to the queue, which other targets fill too.
#[test]
fn a_target_that_is_reset_or_destroyed_leaves_the_completions_of_shared_receives() {
    for is_reset in [true, false] {
        let mut xrc = Xrc::new(Pair::new());
        xrc.receive(0, 1, 0, 100);
        xrc.post(xrc.queues[0].number, 1, Operation::Send, 0, 10);
        xrc.pair.run();
        let device = &mut xrc.pair.ends[1].device;
        match is_reset {
            true => device.modify_qp(xrc.target, &QpChange::to(QpState::Reset)).unwrap(),
            false => device.destroy_qp(xrc.target).unwrap(),
        }
        let received: Vec<_> = xrc.received(0).iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(received, [(1, Status::Success)], "reset: {is_reset}");
    }
}
