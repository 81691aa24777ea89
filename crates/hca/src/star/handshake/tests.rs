//! StaR's handshake without sockets: two devices, and the bytes between them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nichrome_rdma::{
    Config, Operation, Payload, Psn, QpCapacity, QpConfig, QpType, SendRequest, Signaling, Status,
};

use super::*;
use crate::arena::Arena;
use crate::connect::{Context, HandshakeStream, PreSharedKey, Sealed};
use crate::testing::to_receive_from;

const NOW: Instant = Instant::from_nanos(1_000_000_000);

struct TestHost(Mutex<Device<Arena>>);

impl Host<Arena> for TestHost {
    fn with(&self, verbs: &mut dyn FnMut(&mut Device<Arena>)) {
        verbs(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// An adapter without a wire, with a held queue pair.
struct Side {
    host: Arc<TestHost>,
    pending: Pending<Arena>,
    open: Arc<AtomicUsize>,
    request: Request,
}

impl Side {
    fn new(address: IpAddr, peer: IpAddr, wish: Wish, key: Option<PreSharedKey>) -> Self {
        let mut device = Device::new(Config::new(vec![address]), Arena::default()).unwrap();
        let domain = device.create_domain().unwrap();
        let cq = device.create_cq(16).unwrap();
        let capacity = QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 };
        let kind = QpType::Rc;
        let signaling = Signaling::Requested;
        let (send_cq, receive_cq, srq) = (cq, cq, None);
        let config = QpConfig { kind, domain, send_cq, receive_cq, srq, capacity, signaling };
        let qp = device.create_qp(config).unwrap();
        let ready_to_receive = receive_from(&mut device, qp, peer);
        let request = hold(&mut device, qp, &ready_to_receive, (address, wish)).unwrap().unwrap();
        let host = Arc::new(TestHost(Mutex::new(device)));
        let open = Arc::new(AtomicUsize::new(1));
        let pending = Pending::new(Arc::clone(&host) as Arc<dyn Host<Arena>>, Arc::clone(&open), key, |_| {});
        Self { host, pending, open, request }
    }

    /// Moves the queue pair to RTS and posts a SEND.
    fn send(&self) {
        let ready_to_send = QpChange {
            sq_psn: Some(Psn::new(0)),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..QpChange::to(QpState::Rts)
        };
        self.host.with(&mut |device| {
            device.modify_qp(self.request.qp, &ready_to_send).unwrap();
            let request =
                SendRequest { payload: Payload::Inline(b""), ..SendRequest::new(1, Operation::Send, &[]) };
            device.post_send(self.request.qp, &request).unwrap();
        });
    }

    /// Returns true if the device has a packet to send.
    fn has_output(&self) -> bool {
        let device = &mut self.host.0.lock().unwrap();
        device.poll_transmit(NOW, 1, &mut [0; 1 << 17]).is_some()
    }

    /// The result of a set-up: requests left open, stateless connections, state of the queue pair.
    fn outcome(&self) -> (usize, usize, QpState) {
        let device = self.host.0.lock().unwrap();
        let state = device.query_qp(self.request.qp).unwrap().state;
        (self.open.load(Ordering::SeqCst), device.stateless_connections(), state)
    }
}

/// Moves a queue pair from RESET to RTR; returns the last change.
fn receive_from(device: &mut Device<Arena>, qp: QpHandle, peer: IpAddr) -> QpChange {
    // Two devices number their queue pairs alike.
    let [init, ready_to_receive] = to_receive_from(peer, device.qp_number(qp).unwrap());
    device.modify_qp(qp, &init).unwrap();
    device.modify_qp(qp, &ready_to_receive).unwrap();
    ready_to_receive
}

/// The side that connects, and the other.
fn sides(wishes: [Wish; 2]) -> [Side; 2] {
    keyed_sides(wishes, [None, None])
}

fn keyed_sides(wishes: [Wish; 2], keys: Keys) -> [Side; 2] {
    let [low, high] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
    let [ours, theirs] = keys.map(|key| key.map(|key| PreSharedKey::new(key.as_bytes())));
    [Side::new(low, high, wishes[0], ours), Side::new(high, low, wishes[1], theirs)]
}

/// The contents of the key files.
type Keys = [Option<&'static str>; 2];

const KEY: Option<&str> = Some("key");

/// Both handshakes of one connection, and the bytes that each has received.
struct SetUp {
    sides: [Side; 2],
    ends: [Sealed<StarHandshake<Arena>>; 2],
    received: [usize; 2],
}

impl SetUp {
    fn new(wishes: [Wish; 2]) -> Self {
        Self::keyed(wishes, [None, None])
    }

    fn keyed(wishes: [Wish; 2], keys: Keys) -> Self {
        let mut sides = keyed_sides(wishes, keys);
        let request = sides[1].request;
        sides[1].pending.request(request, NOW);
        let request = sides[0].request;
        let (_, out) = Sealed::outbound(request, &mut sides[0].pending, NOW).unwrap();
        let back = Sealed::inbound(sides[0].request.address, NOW);
        Self { sides, ends: [out, back], received: [0; 2] }
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        self.received[to] += bytes.len();
        let (end, pending) = (&mut self.ends[to], &mut self.sides[to].pending);
        end.receive(pending, bytes, NOW);
        if end.phase() == Phase::Parked {
            end.resume(pending, NOW);
        }
    }

    /// Carries all bytes both ways, those to `to` split behind the `at`th.
    fn run(&mut self, to: usize, at: usize) {
        loop {
            let outputs = self.ends.each_mut().map(Handshake::take_output);
            if outputs.iter().all(Vec::is_empty) {
                return;
            }
            for (from, bytes) in outputs.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
                let end = 1 - from;
                let split = at.checked_sub(self.received[end]).filter(|_| end == to).unwrap_or(0);
                let (first, rest) = bytes.split_at(split.min(bytes.len()));
                for part in [first, rest].into_iter().filter(|part| !part.is_empty()) {
                    self.deliver(end, part);
                }
            }
        }
    }

    fn result(&self) -> [(Phase, (usize, usize, QpState)); 2] {
        [0, 1].map(|end| (self.ends[end].phase(), self.sides[end].outcome()))
    }
}

const WISHES: [[Wish; 2]; 4] = [
    [Wish::Own, Wish::Automatic],
    [Wish::Automatic, Wish::Own],
    [Wish::Automatic, Wish::Automatic],
    [Wish::Own, Wish::Own],
];

#[test]
fn set_up_follows_the_wishes_of_both_sides() {
    let results = WISHES.map(|wishes| {
        let mut connection = SetUp::new(wishes);
        connection.run(0, 0);
        connection.result()
    });
    let state = QpState::Rtr;
    assert_eq!(results[0], [(Phase::Done, (0, 1, state)), (Phase::Closing, (0, 0, state))]);
    assert_eq!(results[1], [(Phase::Closing, (0, 0, state)), (Phase::Done, (0, 1, state))]);
    assert_eq!(results[2], [(Phase::Done, (0, 0, state)), (Phase::Closing, (1, 0, state))]);
    assert_eq!(results[3], [Phase::Done, Phase::Closing].map(|phase| (phase, (0, 0, QpState::Err))));
}

/// The peer would drop a packet that arrives before the ADMISSION, and this side would retransmit it only
/// after the ACK timeout.
#[test]
fn the_stateless_side_sends_nothing_before_its_peer_is_ready() {
    let mut set_up = SetUp::new([Wish::Own, Wish::Automatic]);
    set_up.sides[0].send();
    let offer = set_up.ends[0].take_output();
    set_up.deliver(1, &offer);
    let offer = set_up.ends[1].take_output();
    set_up.deliver(0, &offer);
    assert_eq!(set_up.sides[0].outcome(), (1, 1, QpState::Rts), "the ADMISSION is on its way");
    assert!(!set_up.sides[0].has_output());
    set_up.run(0, 0);
    assert!(set_up.sides[0].has_output());
}

/// The peer would drop a packet that arrives before the last OFFER, too.
#[test]
fn the_side_that_agrees_on_roce_last_sends_nothing_before_its_peer_has_read_that() {
    for cause in [Cause::Closed, Cause::Io(ErrorKind::ConnectionReset.into()), Cause::Deadline] {
        let mut set_up = SetUp::new([Wish::Automatic; 2]);
        set_up.sides[1].send();
        set_up.run(0, 0);
        assert!(!set_up.sides[1].has_output(), "{cause:?}");
        set_up.ends[1].close(&mut set_up.sides[1].pending, cause);
        assert!(set_up.sides[1].has_output());
        assert_eq!(set_up.sides[1].outcome(), (0, 0, QpState::Rts));
    }
}

#[test]
fn a_reset_before_the_peer_has_read_the_last_message_ends_the_set_up() {
    let mut set_up = SetUp::new([Wish::Automatic; 2]);
    set_up.run(0, 0);
    let Request { qp, number, .. } = set_up.sides[1].request;
    assert_eq!(set_up.ends[1].qp(), Some(number));
    set_up.sides[1].host.with(&mut |device| device.modify_qp(qp, &QpChange::to(QpState::Reset)).unwrap());
    set_up.ends[1].close(&mut set_up.sides[1].pending, Cause::Withdrawn);
    assert_eq!((set_up.ends[1].phase(), set_up.sides[1].outcome()), (Phase::Done, (0, 0, QpState::Reset)));
}

#[test]
fn a_queue_pair_that_is_reset_before_its_peers_message_sends_on_its_next_connection() {
    // The caller before the answer, and the called side before the OFFER.
    for (nth, wishes) in [(0, [Wish::Own, Wish::Automatic]), (1, [Wish::Automatic; 2])] {
        let mut set_up = SetUp::new(wishes);
        let Request { qp, peer: (peer, _), .. } = set_up.sides[nth].request;
        let reset = QpChange::to(QpState::Reset);
        set_up.sides[nth].host.with(&mut |device| device.modify_qp(qp, &reset).unwrap());
        set_up.run(0, 0);
        set_up.ends[nth].close(&mut set_up.sides[nth].pending, Cause::Withdrawn);
        let side = &set_up.sides[nth];
        assert_eq!(side.outcome(), (0, 0, QpState::Reset));
        side.host.with(&mut |device| _ = receive_from(device, qp, peer));
        side.send();
        assert!(side.has_output(), "{nth}");
    }
}

/// The stateless side closes its end first, with a packet that its peer acknowledges or does not.
#[test]
fn requests_of_an_admitted_queue_pair_are_flushed_if_its_peer_does_not_get_ready() {
    let mut set_up = SetUp::new([Wish::Own, Wish::Automatic]);
    set_up.sides[0].send();
    for end in [1, 0] {
        let offer = set_up.ends[1 - end].take_output();
        set_up.deliver(end, &offer);
    }
    let side = &mut set_up.sides[0];
    set_up.ends[0].close(&mut side.pending, Cause::Deadline);
    assert_eq!(side.outcome(), (0, 1, QpState::Err));
    let mut device = side.host.0.lock().unwrap();
    let cq = device.query_qp(side.request.qp).unwrap().config.send_cq;
    let mut now = NOW;
    let flushed = loop {
        while device.poll_transmit(now, 1, &mut [0; 1 << 17]).is_some() {}
        if let Some(completion) = device.poll_cq(cq) {
            break completion.status;
        }
        now = device.poll_timeout().expect("a timer runs");
        device.handle_timeout(now);
    };
    assert_eq!(flushed, Status::Flushed);
}

#[test]
fn input_split_anywhere_gives_the_same_result() {
    for (wishes, key) in WISHES.into_iter().flat_map(|wishes| [(wishes, None), (wishes, KEY)]) {
        let mut whole = SetUp::keyed(wishes, [key; 2]);
        whole.run(0, 0);
        for to in [0, 1] {
            for at in 1..whole.received[to] {
                let mut split = SetUp::keyed(wishes, [key; 2]);
                split.run(to, at);
                assert_eq!(split.result(), whole.result(), "{wishes:?}, to {to}, split at {at}");
            }
        }
    }
}

#[test]
fn a_peer_that_closes_early_fails_the_request_once_whatever_it_has_sent() {
    for wishes in &WISHES[..3] {
        let mut whole = SetUp::new(*wishes);
        whole.run(0, 0);
        for len in 0..whole.received[0] {
            let mut cut = SetUp::new(*wishes);
            let opening = cut.ends[0].take_output();
            cut.deliver(1, &opening);
            let answer = cut.ends[1].take_output();
            cut.deliver(0, &answer[..len.min(answer.len())]);
            cut.ends[0].close(&mut cut.sides[0].pending, Cause::Closed);
            let (phase, outcome) = cut.result()[0];
            let failed = (phase, outcome.0, outcome.2) == (Phase::Done, 0, QpState::Err);
            assert!(failed || len >= answer.len(), "{wishes:?} after {len}: {outcome:?}");
        }
    }
}

/// The bytes of an OFFER of `side`.
fn offer_of(side: &mut Side) -> Vec<u8> {
    StarHandshake::outbound(side.request, &mut side.pending, NOW).unwrap().1.take_output()
}

#[test]
fn input_before_the_peer_is_known_is_bounded() {
    let [mut caller, mut target] = sides([Wish::Automatic, Wish::Own]);
    let mut end = StarHandshake::inbound(caller.request.address, NOW);
    end.receive(&mut target.pending, &offer_of(&mut caller), NOW);
    assert_eq!(end.phase(), Phase::Parked, "the program has not connected the queue pair");
    let fill = MAX_OPENING - end.opening.len();
    end.receive(&mut target.pending, b"StaR", NOW);
    end.receive(&mut target.pending, &vec![0; fill], NOW);
    assert_eq!((end.phase(), end.opening.len() <= MAX_OPENING), (Phase::Done, true));
    // An ADMISSION of the largest size instead of an OFFER.
    let mut slow = StarHandshake::inbound(caller.request.address, NOW);
    slow.receive(&mut target.pending, b"StaR\x01\x02\0\0\0\x18\0\x28", NOW);
    let taken = (0..).find(|_| {
        slow.receive(&mut target.pending, &[0], NOW);
        slow.phase() == Phase::Done
    });
    assert!(taken.unwrap() <= MAX_OPENING);
}

#[test]
fn the_stateless_side_takes_no_second_large_message() {
    let mut connection = SetUp::new([Wish::Automatic, Wish::Own]);
    let opening = connection.ends[0].take_output();
    connection.deliver(1, &opening);
    connection.deliver(1, b"StaR\x01\x02\0\0\0\x18\0\x28");
    for _ in 0..=MAX_OPENING {
        connection.deliver(1, &[0]);
    }
    assert_eq!(connection.result()[1], (Phase::Closing, (0, 1, QpState::Err)));
}

#[test]
fn an_offer_must_name_its_tcp_peer_and_the_requested_queue_pair() {
    let [mut caller, mut target] = sides([Wish::Automatic, Wish::Own]);
    let mut end = StarHandshake::inbound("10.0.0.3".parse().unwrap(), NOW);
    let request = target.request;
    target.pending.request(request, NOW);
    end.receive(&mut target.pending, &offer_of(&mut caller), NOW);
    assert_eq!((end.phase(), target.outcome().0), (Phase::Done, 1), "the real peer may still come");
    let mut connection = SetUp::new([Wish::Automatic, Wish::Own]);
    let mut third = Side::new("10.0.0.3".parse().unwrap(), "10.0.0.1".parse().unwrap(), Wish::Own, None);
    connection.deliver(0, &offer_of(&mut third));
    assert_eq!(connection.result()[0], (Phase::Done, (0, 0, QpState::Err)));
}

/// The client would keep a copy of the server's queues.
#[test]
fn a_server_with_longer_queues_than_the_client_may_have_is_refused() {
    let mut connection = SetUp::new([Wish::Automatic, Wish::Own]);
    let limit = connection.sides[0].host.0.lock().unwrap().limits().wrs as u32;
    let opening = connection.ends[0].take_output();
    connection.deliver(1, &opening);
    let answer = connection.ends[1].take_output();
    // The numbers of sends and receives in the OFFER.
    for (at, depth, is_connected) in
        [(44, limit, true), (44, limit + 1, false), (48, limit, true), (48, limit + 1, false)]
    {
        let mut connection = SetUp::new([Wish::Automatic, Wish::Own]);
        let mut answer = answer.clone();
        answer[at..at + 4].copy_from_slice(&depth.to_be_bytes());
        connection.deliver(0, &answer);
        let is_refused = connection.result()[0] == (Phase::Done, (0, 0, QpState::Err));
        assert_eq!(is_refused, !is_connected, "{depth} at {at}");
    }
}

#[test]
fn without_the_key_no_queue_pair_is_connected_and_no_key_or_table_is_sent() {
    for keys in [[KEY, None], [None, KEY], [KEY, Some("another key")]] {
        let mut connection = SetUp::keyed([Wish::Automatic, Wish::Own], keys);
        connection.run(0, 0);
        let [caller, target] = connection.result();
        assert_eq!((target.0, target.1), (Phase::Done, (1, 0, QpState::Rtr)), "the real peer may still come");
        connection.ends[0].close(&mut connection.sides[0].pending, Cause::Closed);
        assert_eq!(connection.result()[0], (Phase::Done, (0, 0, QpState::Err)), "was {caller:?}");
        assert_eq!(connection.received[0], 0);
    }
}

#[test]
fn an_offer_that_was_withdrawn_before_it_is_read_leaves_the_request_to_the_next_one() {
    // Between two machines, the end of the stream may come later than the last message.
    for has_end in [true, false] {
        let mut connection = SetUp::keyed([Wish::Automatic; 2], [KEY; 2]);
        let SetUp { sides: [caller, target], ends: [out, _], .. } = &mut connection;
        let [mut theirs, ours] = sockets();
        let mut stream = End::accepted(ours, caller.request.address, NOW).unwrap();
        theirs.write_all(&out.take_output()).unwrap();
        stream.advance(&mut target.pending, NOW);
        let mut answer = [0; 256];
        let len = theirs.read(&mut answer).unwrap();
        out.receive(&mut caller.pending, &answer[..len], NOW);
        // The OFFER and a REFUSAL.
        theirs.write_all(&out.take_output()).unwrap();
        out.close(&mut caller.pending, Cause::Withdrawn);
        theirs.write_all(&out.take_output()).unwrap();
        if has_end {
            theirs.shutdown(Shutdown::Write).unwrap();
        }
        stream.advance(&mut target.pending, NOW);
        let found = (stream.handshake.phase(), target.outcome());
        assert_eq!(found, (Phase::Done, (1, 0, QpState::Rtr)), "{has_end}");
    }
}

/// An end of a set-up on its socket.
type End = HandshakeStream<Sealed<StarHandshake<Arena>>>;

/// A TCP connection: the side that connects, and the other.
fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    theirs.set_nodelay(true).unwrap();
    [theirs, listener.accept().unwrap().0]
}

/// Replaces the function that reports a side's failures.
fn reporting(side: &mut Side, report: fn(&str)) {
    let host = Arc::clone(&side.host) as Arc<dyn Host<Arena>>;
    side.pending = Pending::new(host, Arc::clone(&side.open), None, report);
}

#[test]
fn a_peer_that_has_closed_is_not_reported_as_one_of_another_user() {
    let [mut caller, mut target] = sides([Wish::Automatic; 2]);
    reporting(&mut target, |line| panic!("{line}"));
    target.pending.request(target.request, NOW);
    let [mut theirs, ours] = sockets();
    theirs.write_all(&offer_of(&mut caller)).unwrap();
    drop(theirs);
    let mut stream = End::accepted(ours, caller.request.address, NOW).unwrap();
    stream.advance(&mut target.pending, NOW);
    assert_eq!((stream.handshake.phase(), target.outcome()), (Phase::Done, (1, 0, QpState::Rtr)));
}

#[test]
fn the_side_that_connects_reports_why_the_other_refuses() {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let [mut caller, mut target] = sides([Wish::Own; 2]);
    reporting(&mut caller, |line| LINES.lock().unwrap().push(line.to_owned()));
    target.pending.request(target.request, NOW);
    let (route, out) = Sealed::outbound(caller.request, &mut caller.pending, NOW).unwrap();
    let [theirs, ours] = sockets();
    theirs.set_nonblocking(true).unwrap();
    let mut calling = End::connecting(theirs, route, out, NOW);
    calling.advance(&mut caller.pending, NOW);
    let mut called = Some(End::accepted(ours, caller.request.address, NOW).unwrap());
    let is_done = |stream: &mut End| {
        stream.advance(&mut target.pending, NOW);
        stream.handshake.phase() == Phase::Done
    };
    if let Some(done) = called.take_if(is_done) {
        done.end();
    }
    calling.advance(&mut caller.pending, NOW);
    assert_eq!(caller.outcome(), (0, 0, QpState::Err));
    let lines = LINES.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].ends_with("one of them must keep the state"), "{lines:?}");
}

#[test]
fn each_phase_has_a_deadline_that_input_does_not_move() {
    let [mut caller, mut target] = sides([Wish::Automatic, Wish::Own]);
    let offer = offer_of(&mut caller);
    let mut end = StarHandshake::inbound(caller.request.address, NOW);
    for (at, byte) in offer.iter().enumerate() {
        assert_eq!(end.deadline(), NOW + OPENING_TIMEOUT);
        end.receive(&mut target.pending, &[*byte], NOW + Duration::from_millis(10 * at as u64));
    }
    let parked = NOW + Duration::from_millis(10 * (offer.len() as u64 - 1));
    assert_eq!((end.phase(), end.deadline()), (Phase::Parked, parked + PROGRAM_TIMEOUT));
    let (later, request) = (parked + Duration::from_secs(1), target.request);
    target.pending.request(request, later);
    end.resume(&mut target.pending, later);
    assert_eq!((end.phase(), end.deadline()), (Phase::Running, later + NEGOTIATION_TIMEOUT));
    end.receive(&mut target.pending, b"S", later + Duration::from_secs(9));
    assert_eq!(end.deadline(), later + NEGOTIATION_TIMEOUT);
    end.close(&mut target.pending, Cause::Deadline);
    assert_eq!(target.outcome(), (0, 1, QpState::Err));
    // A program that never connects its queue pair leaves nothing behind.
    let mut parked = StarHandshake::inbound(caller.request.address, NOW);
    parked.receive(&mut target.pending, &offer, NOW);
    parked.close(&mut target.pending, Cause::Deadline);
    assert_eq!((parked.phase(), parked.take_output()), (Phase::Done, vec![]));
}

#[test]
fn a_peer_that_never_connects_fails_the_request() {
    let [_, mut target] = sides([Wish::Automatic, Wish::Own]);
    let request = target.request;
    target.pending.request(request, NOW);
    assert_eq!(target.pending.poll_timeout(), Some(NOW + PROGRAM_TIMEOUT));
    target.pending.handle_timeout(NOW + PROGRAM_TIMEOUT);
    assert_eq!((target.outcome(), target.pending.poll_timeout()), ((0, 0, QpState::Err), None));
}
