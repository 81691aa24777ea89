//! StaR's set-up of one connection: drives its engine, and applies each step to the device.
//!
//! | phase | ends when | input, bytes | time |
//! |---|---|---|---|
//! | opening (inbound) | the OFFER is complete | [`MAX_OPENING`] | [`OPENING_TIMEOUT`] |
//! | parked (inbound) | this side's program connects the queue pair | none | [`PROGRAM_TIMEOUT`] |
//! | running, before the peer's OFFER (outbound) | the OFFER is complete | [`MAX_OPENING`] | [`PROGRAM_TIMEOUT`] |
//! | running | both sides know the result | [`MAX_INPUT`]; [`MAX_OPENING`] more at the stateless side | [`NEGOTIATION_TIMEOUT`] |
//! | closing, after this side's last message | the peer has read it, and closed | discarded | 1 s |
//!
//! An OFFER must name the address of the TCP peer that sends it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nichrome_rdma::star::{
    Admit, Connect, MAX_REGIONS, MakeOffer, Offer, Refusal, Setup, SetupError, SetupEvent, StarRole, Timers,
    Wish, peek_offer,
};
use nichrome_rdma::{ConnectError, Device, Memory, ModifyError, QpChange, QpHandle, QpNumber, QpState};
use nichrome_wire::{Instant, SeqNumber};

use super::pending::{Host, PROGRAM_TIMEOUT, Pending, Request, SetupFailure, SetupParameters};
use super::slots::port_of;
use crate::connect::{Cause, Ends, Handshake, Phase, Route};

/// How long an inbound peer may take to name its connection.
const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long two sides that know each other may take to negotiate.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of input until the peer is known: an OFFER, and a REFUSAL behind it.
const MAX_OPENING: usize = 256;

/// Bytes of input in all: the largest ADMISSION, whose regions take 32 bytes each.
const MAX_INPUT: usize = 2 * MAX_OPENING + 32 * MAX_REGIONS;

/// Timers of a queue pair that is not in RTS yet: 67 ms, seven retries, RNR retries without end.
const DEFAULT_TIMERS: Timers = Timers { timeout: 14, retry_count: 7, rnr_retry: 7, min_rnr_timer: 12 };

/// Holds a queue pair that `change` has moved to RTR until its transport is negotiated; `None` if there is
/// nothing to negotiate.
///
/// # Errors
/// The queue pair does not exist.
pub(super) fn hold<M: Memory>(
    device: &mut Device<M>,
    qp: QpHandle,
    change: &QpChange,
    (address, wish): (IpAddr, Wish),
) -> Result<Option<Request>, ModifyError> {
    let parameters = SetupParameters { wish, slot: None };
    let Some(request) = Request::hold(device, qp, change, address, |_| parameters)? else { return Ok(None) };
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
    /// If there is a request, its queue pair's sends are held until the peer has read the last message.
    Closing(Option<Request>),
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
    /// This side. The peer drops packets until it has read the message, so the queue pair's sends are held.
    OursAwaited,
    Theirs,
}

impl<M: Memory> StarHandshake<M> {
    fn new(peer: IpAddr, state: State<M>, deadline: Instant) -> Self {
        Self { peer, state, deadline, opening: Vec::new(), budget: MAX_INPUT, output: Vec::new() }
    }

    /// Takes input before the peer is known; returns the peer's OFFER when it is complete. Input behind the
    /// OFFER is an error: before this side has answered, the peer can only send a REFUSAL.
    fn receive_opening(&mut self, bytes: &[u8]) -> Result<Option<Offer>, SetupError> {
        if self.opening.len() + bytes.len() > MAX_OPENING {
            return Err(SetupError::Garbage);
        }
        self.opening.extend(bytes);
        match peek_offer(&self.opening)? {
            Some((offer, 0)) => Ok(Some(offer)),
            Some(_) => Err(SetupError::OutOfTurn),
            None => Ok(None),
        }
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
                Ok(())
            }
            State::Parked(_) => self.receive_opening(bytes).map(drop).map_err(SetupFailure::from),
            State::Running(running) if !running.knows_peer => {
                let (opening, rest) = bytes.split_at(bytes.len().min(MAX_OPENING - self.opening.len()));
                self.opening.extend(opening);
                match peek_offer(&self.opening) {
                    Ok(None) if self.opening.len() < MAX_OPENING => return Ok(()),
                    Ok(None) => return Err(SetupError::Garbage.into()),
                    Ok(Some((offer, _))) => running.check_peer(&offer)?,
                    // A REFUSAL, or no OFFER: the engine reports which.
                    Err(_) => {}
                }
                self.deadline = now + NEGOTIATION_TIMEOUT;
                let opening = std::mem::take(&mut self.opening);
                self.negotiate(pending, &opening)?;
                self.negotiate(pending, rest)
            }
            State::Running(_) => self.negotiate(pending, bytes),
            State::Closing(_) | State::Done => Ok(()),
        }
    }

    /// Starts to negotiate if the program has requested the parked peer's connection.
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

    /// Passes input to the engine, and executes its outputs.
    fn negotiate(&mut self, pending: &Pending<M>, bytes: &[u8]) -> Result<(), SetupFailure> {
        let State::Running(running) = &mut self.state else { return Ok(()) };
        self.budget = self.budget.checked_sub(bytes.len()).ok_or(SetupError::Garbage)?;
        let event = running.setup.receive(bytes)?;
        let request = running.request;
        if let Some(SetupEvent::Admit(_)) = event {
            // Only READY or REFUSAL may follow.
            self.budget = MAX_OPENING;
        }
        let last = event.map_or(Ok(None), |event| running.act(event))?;
        self.collect_output();
        let Some(last) = last else { return Ok(()) };
        self.state = match last {
            LastMessage::Ours => State::Closing(None),
            LastMessage::OursAwaited => State::Closing(Some(request)),
            LastMessage::Theirs => State::Done,
        };
        if last != LastMessage::OursAwaited {
            pending.complete();
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
        let State::Running(running) = &mut self.state else {
            self.state = State::Done;
            return;
        };
        running.setup.refuse(match failure {
            SetupFailure::Connect(ConnectError::Depth { .. }) => Refusal::Resources,
            _ => Refusal::Connection,
        });
        let request = running.request;
        self.collect_output();
        pending.fail(&request, failure);
        // The side that connects looks up the owner of this side's socket when the first bytes arrive, and
        // finds none if this side has closed it. So this side waits for the peer to close.
        self.state = if request.connects() { State::Done } else { State::Closing(None) };
    }
}

impl<M: Memory> Handshake for StarHandshake<M> {
    type Context = Pending<M>;

    fn inbound(peer: IpAddr, now: Instant) -> Self {
        Self::new(peer, State::Opening, now + OPENING_TIMEOUT)
    }

    fn outbound(request: Request, pending: &mut Pending<M>, now: Instant) -> Option<(Route, Self)> {
        let route = Route {
            from: request.address,
            to: SocketAddr::new(request.peer.0, port_of(request.parameters.slot)),
        };
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
            (State::Running(running), Cause::Withdrawn) => {
                running.setup.refuse(Refusal::Connection);
                self.collect_output();
                pending.complete();
            }
            (State::Running(running), Cause::Closed | Cause::Displaced) => {
                let failure = running.setup.end().err().unwrap_or(SetupError::Truncated);
                self.fail(pending, &failure.into());
            }
            (State::Running(running), Cause::Deadline) => {
                let failure = if running.knows_peer { SetupFailure::Timeout } else { SetupFailure::NoPeer };
                self.fail(pending, &failure);
            }
            (State::Running(running), Cause::Io(error))
                if error.kind() == ErrorKind::ConnectionRefused
                    && running.request.parameters.slot.is_none() =>
            {
                pending.retry_at_slot(&running.request);
            }
            (State::Running(_), Cause::Io(error)) => self.fail(pending, &error.into()),
            (State::Running(_), Cause::Untrusted) => self.fail(pending, &SetupFailure::OtherUser),
            (State::Running(_), Cause::Seal(error)) => self.fail(pending, &error.into()),
            (State::Opening | State::Parked(_), Cause::Untrusted) => {
                pending.refuse(self.peer, &SetupFailure::OtherUser);
            }
            (State::Opening | State::Parked(_), Cause::Seal(error)) => {
                pending.refuse(self.peer, &error.into());
            }
            (State::Closing(Some(request)), _) => {
                // Also if the program has reset the queue pair: the hold may have come after that.
                pending.host.with(&mut |device| device.release_sends(request.qp));
                pending.complete();
            }
            (State::Opening | State::Parked(_) | State::Closing(None) | State::Done, _) => {}
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
            State::Closing(_) => Phase::Closing,
            State::Done => Phase::Done,
        }
    }

    fn qp(&self) -> Option<QpNumber> {
        match &self.state {
            State::Parked(offer) => offer.peer_connection,
            State::Running(running) => Some(running.request.number),
            State::Closing(request) => request.map(|request| request.number),
            State::Opening | State::Done => None,
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
        let mut offer = device.ask(request.qp, MakeOffer { wish: request.parameters.wish, first_element })?;
        if device.query_qp(request.qp).is_ok_and(|report| report.state == QpState::Rtr) {
            let Timers { min_rnr_timer, .. } = offer.timers;
            offer.timers = Timers { min_rnr_timer, ..DEFAULT_TIMERS };
        }
        Ok(offer)
    }

    /// Refuses an OFFER for another queue pair than the requested one.
    fn check_peer(&mut self, offer: &Offer) -> Result<(), SetupFailure> {
        self.knows_peer = (offer.address, offer.connection) == self.request.peer;
        if self.knows_peer { Ok(()) } else { Err(SetupFailure::WrongPeer) }
    }

    /// Executes an event of the engine; returns which side sent the last message if the set-up is complete.
    fn act(&mut self, event: SetupEvent) -> Result<Option<LastMessage>, SetupFailure> {
        let Self { host, request, ours, setup, .. } = self;
        let mut result = Ok(());
        match event {
            SetupEvent::Roce(_) => {
                // The side that connected sent its OFFER first.
                let last = if request.connects() { LastMessage::Theirs } else { LastMessage::OursAwaited };
                host.with(&mut |device| {
                    if last == LastMessage::OursAwaited {
                        device.hold_sends(request.qp);
                    }
                    result = device.release_qp(request.qp);
                });
                result?;
                Ok(Some(last))
            }
            SetupEvent::Admit(theirs) => {
                let agreed = Connect { ours, theirs: &theirs, role: &StarRole::Stateless };
                let mut admission = None;
                host.with(&mut |device| {
                    admission = Some(device.ask(request.qp, Admit(&theirs)));
                    result = device.connect(request.qp, &agreed);
                    if result.is_ok() {
                        // The peer drops packets until it has the ADMISSION. A packet of the peer that
                        // arrives before its READY ends the hold, too.
                        device.hold_sends(request.qp);
                    }
                });
                result?;
                if let Some(admission) = admission {
                    setup.admit(admission?)?;
                }
                Ok(None)
            }
            SetupEvent::Accept(theirs, admission) => {
                let role = StarRole::Stateful(admission);
                let agreed = Connect { ours, theirs: &theirs, role: &role };
                host.with(&mut |device| result = device.connect(request.qp, &agreed));
                result?;
                setup.accept()?;
                Ok(Some(LastMessage::Ours))
            }
            SetupEvent::Ready(_) => {
                host.with(&mut |device| device.release_sends(request.qp));
                Ok(Some(LastMessage::Theirs))
            }
        }
    }
}

#[cfg(test)]
mod tests;
