//! StaR's set-up of one connection: its engine, and what each step does to the device.
//!
//! | phase | ends when | input, bytes | time |
//! |---|---|---|---|
//! | opening (inbound) | the OFFER is complete | [`MAX_OPENING`] | [`OPENING_TIMEOUT`] |
//! | parked (inbound) | this side's program connects the queue pair | [`MAX_OPENING`] | [`PROGRAM_TIMEOUT`] |
//! | running, before the peer's OFFER (outbound) | the OFFER is complete | [`MAX_OPENING`] | [`PROGRAM_TIMEOUT`] |
//! | running | both sides know the result | [`MAX_INPUT`]; [`MAX_OPENING`] more at the stateless side | [`NEGOTIATION_TIMEOUT`] |
//!
//! An OFFER is for the connection that the TCP stream belongs to: its address must be that of the TCP peer.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nichrome_rdma::star::{
    MAX_REGIONS, Offer, Refusal, Setup, SetupError, SetupEvent, StarRole, Timers, Wish, peek_offer,
};
use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpState};
use nichrome_wire::star::STAR_PORT;
use nichrome_wire::{Instant, SeqNumber};

use super::pending::{Host, PROGRAM_TIMEOUT, Pending, Request, SetupFailure};
use crate::connect::{Cause, Handshake, Phase, Route};

/// How long an inbound peer may take to say which connection it wants.
const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long two sides that know each other may take to negotiate.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of input until the peer is known: an OFFER, and a REFUSAL behind it.
const MAX_OPENING: usize = 256;

/// Bytes of input in all: the largest ADMISSION, whose regions take 24 bytes each.
const MAX_INPUT: usize = 2 * MAX_OPENING + 24 * MAX_REGIONS;

/// Timers of a queue pair that is not in RTS yet: 67 ms, seven retries, RNR retries without end.
const DEFAULT_TIMERS: Timers = Timers { timeout: 14, retry_count: 7, rnr_retry: 7, min_rnr_timer: 12 };

/// Holds a queue pair that `change` brings to RTR until its transport is negotiated; `None` if there is nothing to
/// negotiate.
///
/// # Errors
/// The queue pair does not exist.
pub(super) fn hold<M: Memory>(
    device: &mut Device<M>,
    qp: QpHandle,
    change: &QpChange,
    (address, wish): (IpAddr, Wish),
) -> Result<Option<Request>, ModifyError> {
    // A program that only receives stops at RTR. Services other than RC are RoCE's.
    if change.state != Some(QpState::Rtr) || device.hold_qp(qp).is_err() {
        return Ok(None);
    }
    let report = device.query_qp(qp)?;
    let Some(peer) = report.path.map(|path| path.destination).zip(report.destination) else {
        return Ok(None);
    };
    let request = Request { qp, number: report.number, address, peer, wish };
    if request.is_loop() {
        // The queue pair exists: it was queried.
        let _ = device.release_qp(qp);
        return Ok(None);
    }
    Ok(Some(request))
}

/// One side of a set-up.
pub(super) struct StarHandshake<M> {
    /// The address of the TCP peer.
    peer: IpAddr,
    state: State<M>,
    deadline: Instant,
    /// Input before the peer is known.
    opening: Vec<u8>,
    /// Bytes of input that may follow.
    budget: usize,
    output: Vec<u8>,
}

enum State<M> {
    Opening,
    Parked(Offer),
    Running(Box<Running<M>>),
    Closing,
    Done,
}

/// A set-up whose request is known.
struct Running<M> {
    host: Arc<dyn Host<M>>,
    request: Request,
    ours: Offer,
    setup: Setup,
    /// The peer's OFFER is checked.
    knows_peer: bool,
}

/// Which side sent the last message of a complete set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastMessage {
    Ours,
    Theirs,
}

impl<M: Memory> StarHandshake<M> {
    fn new(peer: IpAddr, state: State<M>, deadline: Instant) -> Self {
        Self { peer, state, deadline, opening: Vec::new(), budget: MAX_INPUT, output: Vec::new() }
    }

    /// Takes input before the peer is known; returns the peer's OFFER when it is complete.
    fn receive_opening(&mut self, bytes: &[u8]) -> Result<Option<Offer>, SetupError> {
        if self.opening.len() + bytes.len() > MAX_OPENING {
            return Err(SetupError::Garbage);
        }
        self.opening.extend(bytes);
        peek_offer(&self.opening)
    }

    /// Takes input; an error ends the set-up.
    fn take(&mut self, pending: &mut Pending<M>, bytes: &[u8], now: Instant) -> Result<(), SetupFailure> {
        match &mut self.state {
            State::Opening => {
                let Some(offer) = self.receive_opening(bytes)? else { return Ok(()) };
                if offer.address != self.peer || offer.peer_connection.is_none() {
                    return Err(SetupFailure::WrongPeer);
                }
                self.state = State::Parked(offer);
                self.deadline = now + PROGRAM_TIMEOUT;
                self.match_request(pending, now)
            }
            State::Parked(_) => self.receive_opening(bytes).map(drop).map_err(SetupFailure::from),
            State::Running(running) if !running.knows_peer => {
                let (opening, rest) = bytes.split_at(bytes.len().min(MAX_OPENING - self.opening.len()));
                self.opening.extend(opening);
                match peek_offer(&self.opening) {
                    Ok(None) if self.opening.len() < MAX_OPENING => return Ok(()),
                    Ok(None) => return Err(SetupError::Garbage.into()),
                    Ok(Some(offer)) => running.check_peer(&offer)?,
                    // A REFUSAL, or no OFFER: the engine reports which.
                    Err(_) => {}
                }
                self.deadline = now + NEGOTIATION_TIMEOUT;
                let opening = std::mem::take(&mut self.opening);
                self.negotiate(pending, &opening)?;
                self.negotiate(pending, rest)
            }
            State::Running(_) => self.negotiate(pending, bytes),
            State::Closing | State::Done => Ok(()),
        }
    }

    /// Starts to negotiate if the program has requested what the parked peer wants.
    fn match_request(&mut self, pending: &mut Pending<M>, now: Instant) -> Result<(), SetupFailure> {
        let State::Parked(offer) = &self.state else { return Ok(()) };
        let peer = (self.peer, offer.connection);
        let Some(request) = offer.peer_connection.and_then(|ours| pending.take(ours, peer)) else {
            return Ok(());
        };
        match Running::new(request, pending) {
            Ok(running) => self.state = State::Running(Box::new(Running { knows_peer: true, ..running })),
            Err(failure) => {
                pending.fail(&request, &failure);
                return Err(failure);
            }
        }
        self.deadline = now + NEGOTIATION_TIMEOUT;
        let opening = std::mem::take(&mut self.opening);
        self.negotiate(pending, &opening)
    }

    /// Gives the engine input, and does what it asks for.
    fn negotiate(&mut self, pending: &Pending<M>, bytes: &[u8]) -> Result<(), SetupFailure> {
        let State::Running(running) = &mut self.state else { return Ok(()) };
        self.budget = self.budget.checked_sub(bytes.len()).ok_or(SetupError::Garbage)?;
        let event = running.setup.receive(bytes)?;
        if let Some(SetupEvent::Admit(_)) = event {
            // Only READY or REFUSAL may follow.
            self.budget = MAX_OPENING;
        }
        let last = event.map_or(Ok(None), |event| running.act(event))?;
        self.collect_output();
        if let Some(last) = last {
            pending.complete();
            self.state = if last == LastMessage::Ours { State::Closing } else { State::Done };
        }
        Ok(())
    }

    fn collect_output(&mut self) {
        if let State::Running(running) = &mut self.state {
            self.output.extend(running.setup.take_output());
        }
    }

    /// Ends the set-up. If it was for a request, that fails, and the peer gets a REFUSAL.
    fn fail(&mut self, pending: &mut Pending<M>, failure: &SetupFailure) {
        if let State::Running(running) = &mut self.state {
            running.setup.refuse(Refusal::Connection);
            let request = running.request;
            self.collect_output();
            pending.fail(&request, failure);
        }
        self.state = State::Done;
    }
}

impl<M: Memory> Handshake for StarHandshake<M> {
    type Context = Pending<M>;

    fn inbound(peer: IpAddr, now: Instant) -> Self {
        Self::new(peer, State::Opening, now + OPENING_TIMEOUT)
    }

    fn outbound(request: Request, pending: &mut Pending<M>, now: Instant) -> Option<(Route, Self)> {
        let route = Route { from: request.address, to: SocketAddr::new(request.peer.0, STAR_PORT) };
        match Running::new(request, pending) {
            Ok(running) => {
                let state = State::Running(Box::new(running));
                let mut handshake = Self::new(request.peer.0, state, now + PROGRAM_TIMEOUT);
                // This side's OFFER.
                handshake.collect_output();
                Some((route, handshake))
            }
            Err(failure) => {
                pending.fail(&request, &failure);
                None
            }
        }
    }

    fn receive(&mut self, pending: &mut Pending<M>, bytes: &[u8], now: Instant) {
        if let Err(failure) = self.take(pending, bytes, now) {
            self.fail(pending, &failure);
        }
    }

    fn resume(&mut self, pending: &mut Pending<M>, now: Instant) {
        if let Err(failure) = self.match_request(pending, now) {
            self.fail(pending, &failure);
        }
    }

    fn close(&mut self, pending: &mut Pending<M>, cause: Cause) {
        match (&mut self.state, cause) {
            (State::Running(running), Cause::Shutdown) => {
                running.setup.refuse(Refusal::Shutdown);
                self.collect_output();
            }
            (State::Running(running), Cause::Closed | Cause::Displaced) => {
                let failure = running.setup.end().err().unwrap_or(SetupError::Truncated);
                self.fail(pending, &failure.into());
            }
            (State::Running(running), Cause::Deadline) => {
                let failure = if running.knows_peer { SetupFailure::Timeout } else { SetupFailure::NoPeer };
                self.fail(pending, &failure);
            }
            (State::Running(_), Cause::Io(error)) => self.fail(pending, &error.into()),
            (State::Opening | State::Parked(_) | State::Closing | State::Done, _) => {}
        }
        self.state = State::Done;
    }

    fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Opening => Phase::Opening,
            State::Parked(_) => Phase::Parked,
            State::Running(_) => Phase::Running,
            State::Closing => Phase::Closing,
            State::Done => Phase::Done,
        }
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl<M: Memory> Running<M> {
    /// Makes the OFFER of a requested queue pair.
    fn new(request: Request, pending: &Pending<M>) -> Result<Self, SetupFailure> {
        let host = Arc::clone(&pending.host);
        let first_element = SeqNumber(RandomState::new().build_hasher().finish() as u32);
        let mut offer = None;
        host.with(&mut |device| offer = Some(Self::offer(device, &request, first_element)));
        // The host calls the closure.
        let ours = offer.unwrap_or(Err(SetupError::OutOfTurn.into()))?;
        Ok(Self { host, request, ours, setup: Setup::new(ours), knows_peer: false })
    }

    fn offer(device: &Device<M>, request: &Request, first_element: SeqNumber) -> Result<Offer, SetupFailure> {
        let mut offer = device.star_offer(request.qp, request.wish, first_element)?;
        if device.query_qp(request.qp).is_ok_and(|report| report.state == QpState::Rtr) {
            let Timers { min_rnr_timer, .. } = offer.timers;
            offer.timers = Timers { min_rnr_timer, ..DEFAULT_TIMERS };
        }
        Ok(offer)
    }

    /// Refuses the OFFER of another queue pair than the requested one.
    fn check_peer(&mut self, offer: &Offer) -> Result<(), SetupFailure> {
        self.knows_peer = (offer.address, offer.connection) == self.request.peer;
        if self.knows_peer { Ok(()) } else { Err(SetupFailure::WrongPeer) }
    }

    /// Does what the engine asks for; returns who sent the last message if the set-up is complete.
    fn act(&mut self, event: SetupEvent) -> Result<Option<LastMessage>, SetupFailure> {
        let Self { host, request, ours, setup, .. } = self;
        let mut result = Ok(());
        match event {
            SetupEvent::Roce(_) => {
                host.with(&mut |device| result = device.release_qp(request.qp));
                result?;
                // The side that connected sent its OFFER first.
                Ok(Some(if request.connects() { LastMessage::Theirs } else { LastMessage::Ours }))
            }
            SetupEvent::Admit(theirs) => {
                let role = StarRole::Stateless;
                let mut admission = None;
                host.with(&mut |device| {
                    admission = Some(device.star_admission(request.qp, &theirs));
                    result = device.connect_star(request.qp, ours, &theirs, &role);
                });
                result?;
                if let Some(admission) = admission {
                    setup.admit(admission?)?;
                }
                Ok(None)
            }
            SetupEvent::Accept(theirs, admission) => {
                let role = StarRole::Stateful(admission);
                host.with(&mut |device| result = device.connect_star(request.qp, ours, &theirs, &role));
                result?;
                setup.accept()?;
                Ok(Some(LastMessage::Ours))
            }
            SetupEvent::Ready(_) => Ok(Some(LastMessage::Theirs)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    use nichrome_rdma::{
        Access, AddressVector, Config, PathMtu, Psn, QpCapacity, QpConfig, QpType, RnrTimer, Signaling,
    };

    use super::*;
    use crate::arena::Arena;
    use crate::connect::Context;

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
        fn new(address: IpAddr, peer: IpAddr, wish: Wish) -> Self {
            let mut device = Device::new(Config::new(vec![address]), Arena::default()).unwrap();
            let domain = device.create_domain().unwrap();
            let cq = device.create_cq(16).unwrap();
            let capacity =
                QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 };
            let kind = QpType::Rc;
            let signaling = Signaling::Requested;
            let (send_cq, receive_cq, srq) = (cq, cq, None);
            let config = QpConfig { kind, domain, send_cq, receive_cq, srq, capacity, signaling };
            let qp = device.create_qp(config).unwrap();
            // Two devices number their queue pairs alike.
            let destination = Some(device.qp_number(qp).unwrap());
            let init = QpChange {
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::REMOTE_WRITE),
                ..QpChange::to(QpState::Init)
            };
            let ready_to_receive = QpChange {
                path: Some(AddressVector::to(peer)),
                path_mtu: Some(PathMtu::B1024),
                destination,
                rq_psn: Some(Psn::new(0)),
                max_dest_rd_atomic: Some(1),
                min_rnr_timer: RnrTimer::new(12),
                ..QpChange::to(QpState::Rtr)
            };
            device.modify_qp(qp, &init).unwrap();
            device.modify_qp(qp, &ready_to_receive).unwrap();
            let request = hold(&mut device, qp, &ready_to_receive, (address, wish)).unwrap().unwrap();
            let host = Arc::new(TestHost(Mutex::new(device)));
            let open = Arc::new(AtomicUsize::new(1));
            let pending = Pending::new(Arc::clone(&host) as Arc<dyn Host<Arena>>, Arc::clone(&open), |_| {});
            Self { host, pending, open, request }
        }

        /// What a set-up has done: requests left open, stateless connections, state of the queue pair.
        fn outcome(&self) -> (usize, usize, QpState) {
            let device = self.host.0.lock().unwrap();
            let state = device.query_qp(self.request.qp).unwrap().state;
            (self.open.load(Ordering::SeqCst), device.stateless_connections(), state)
        }
    }

    /// The side that connects, and the other.
    fn sides(wishes: [Wish; 2]) -> [Side; 2] {
        let [low, high] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        [Side::new(low, high, wishes[0]), Side::new(high, low, wishes[1])]
    }

    /// Both handshakes of one connection, and the bytes that each has received.
    struct Connection {
        sides: [Side; 2],
        ends: [StarHandshake<Arena>; 2],
        received: [usize; 2],
    }

    impl Connection {
        fn new(wishes: [Wish; 2]) -> Self {
            let mut sides = sides(wishes);
            let request = sides[1].request;
            sides[1].pending.request(request, NOW);
            let request = sides[0].request;
            let (_, out) = StarHandshake::outbound(request, &mut sides[0].pending, NOW).unwrap();
            let back = StarHandshake::inbound(sides[0].request.address, NOW);
            Self { sides, ends: [out, back], received: [0; 2] }
        }

        fn deliver(&mut self, to: usize, bytes: &[u8]) {
            self.received[to] += bytes.len();
            self.ends[to].receive(&mut self.sides[to].pending, bytes, NOW);
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
    fn set_up_leads_to_what_both_sides_wish() {
        let results = WISHES.map(|wishes| {
            let mut connection = Connection::new(wishes);
            connection.run(0, 0);
            connection.result()
        });
        let state = QpState::Rtr;
        assert_eq!(results[0], [(Phase::Done, (0, 1, state)), (Phase::Closing, (0, 0, state))]);
        assert_eq!(results[1], [(Phase::Closing, (0, 0, state)), (Phase::Done, (0, 1, state))]);
        assert_eq!(results[2], [(Phase::Done, (0, 0, state)), (Phase::Closing, (0, 0, state))]);
        assert_eq!(results[3], [(Phase::Done, (0, 0, QpState::Err)); 2]);
    }

    #[test]
    fn input_split_anywhere_gives_the_same_result() {
        for wishes in WISHES {
            let mut whole = Connection::new(wishes);
            whole.run(0, 0);
            for to in [0, 1] {
                for at in 1..whole.received[to] {
                    let mut split = Connection::new(wishes);
                    split.run(to, at);
                    assert_eq!(split.result(), whole.result(), "{wishes:?}, to {to}, split at {at}");
                }
            }
        }
    }

    #[test]
    fn a_peer_that_closes_early_fails_the_request_once_whatever_it_has_sent() {
        for wishes in &WISHES[..3] {
            let mut whole = Connection::new(*wishes);
            whole.run(0, 0);
            for len in 0..whole.received[0] {
                let mut cut = Connection::new(*wishes);
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
        let mut connection = Connection::new([Wish::Automatic, Wish::Own]);
        let opening = connection.ends[0].take_output();
        connection.deliver(1, &opening);
        connection.deliver(1, b"StaR\x01\x02\0\0\0\x18\0\x28");
        for _ in 0..=MAX_OPENING {
            connection.deliver(1, &[0]);
        }
        assert_eq!(connection.result()[1].0, Phase::Done);
    }

    #[test]
    fn an_offer_must_name_its_tcp_peer_and_the_requested_queue_pair() {
        let [mut caller, mut target] = sides([Wish::Automatic, Wish::Own]);
        let mut end = StarHandshake::inbound("10.0.0.3".parse().unwrap(), NOW);
        let request = target.request;
        target.pending.request(request, NOW);
        end.receive(&mut target.pending, &offer_of(&mut caller), NOW);
        assert_eq!((end.phase(), target.outcome().0), (Phase::Done, 1), "the real peer may still come");
        let mut connection = Connection::new([Wish::Automatic, Wish::Own]);
        let mut third = Side::new("10.0.0.3".parse().unwrap(), "10.0.0.1".parse().unwrap(), Wish::Own);
        connection.deliver(0, &offer_of(&mut third));
        assert_eq!(connection.result()[0], (Phase::Done, (0, 0, QpState::Err)));
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
}
