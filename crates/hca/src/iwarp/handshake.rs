//! MPA's start-up of a queue pair's connection.
//!
//! | phase | ends when | time |
//! |---|---|---|
//! | opening (inbound) | the Request is complete | [`REQUEST_TIMEOUT`](nichrome_rdma::iwarp::setup::REQUEST_TIMEOUT) |
//! | parked (inbound) | this side's program connects the queue pair | [`PROGRAM_TIMEOUT`] |
//! | running (outbound) | the Reply is complete, which waits for the peer's program | [`PROGRAM_TIMEOUT`] |
//! | connected | the queue pair has the stream | |
//!
//! Input is bounded by a start frame, 532 bytes.

use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream};

use nichrome_rdma::QpNumber;
use nichrome_rdma::iwarp::setup::{Established, Identity, Initiator, Options, Responder, SetupError};
use nichrome_wire::Instant;
use nichrome_wire::iwarp::Rtr;

use super::counters::Refused;
use super::pending::{Pending, Request, SetupFailure};
use super::port_of;
use crate::connect::{Cause, Handshake, PROGRAM_TIMEOUT, Phase, Route};
use crate::connected_stream::{ConnectedStream, Sender};

/// One side of a start-up.
pub(super) struct IwarpHandshake {
    /// The address of the TCP peer.
    peer: IpAddr,
    state: State,
    deadline: Instant,
    output: Vec<u8>,
    /// The bytes of both sides in order, for the capture.
    transcript: Vec<(Sender, Vec<u8>)>,
}

enum State {
    Opening(Responder),
    Parked(Responder, Identity),
    Running(Initiator, Request),
    Connected(Request, Established),
    Done,
}

impl IwarpHandshake {
    const fn new(peer: IpAddr, state: State, deadline: Instant) -> Self {
        Self { peer, state, deadline, output: Vec::new(), transcript: Vec::new() }
    }

    fn queue_output(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.transcript.push((Sender::Local, bytes.clone()));
            self.output.extend(bytes);
        }
    }

    /// Takes bytes of an inbound peer; returns the queue pairs that it names when its Request is complete.
    fn take_request(responder: &mut Responder, bytes: &[u8]) -> Result<Option<Identity>, Refused> {
        match responder.receive(bytes) {
            Ok(None) => Ok(None),
            Ok(Some(private_data)) => Identity::parse(private_data).map(Some).ok_or(Refused::Foreign),
            Err(error) => Err((&error).into()),
        }
    }

    /// Accepts the parked Request if the program has requested the connection that it names.
    fn match_request(&mut self, pending: &mut Pending) {
        let State::Parked(responder, Identity { from, to }) = &mut self.state else { return };
        let (from, to) = (*from, *to);
        let Some(request) = pending.take(to, (self.peer, from)) else { return };
        let answer = Identity { from: request.number, to: from }.to_bytes();
        let accepted = responder.accept(&request.parameters, &answer);
        let output = responder.take_output();
        self.queue_output(output);
        self.state = match accepted {
            Ok(established) => State::Connected(request, established),
            Err(error) => {
                pending.fail(&request, &error.into());
                State::Done
            }
        };
    }

    /// Refuses an inbound connection.
    fn refuse(&mut self, pending: &Pending, why: Refused) {
        pending.counters.count(why);
        if let State::Opening(responder) | State::Parked(responder, _) = &mut self.state {
            responder.reject(&[]);
            let output = responder.take_output();
            self.queue_output(output);
        }
        self.state = State::Done;
    }

    /// Takes bytes of the Reply.
    fn take_reply(&mut self, pending: &mut Pending, bytes: &[u8]) {
        let State::Running(initiator, request) = &mut self.state else { return };
        let request = *request;
        let outcome = match initiator.receive(bytes) {
            Ok(None) => return,
            Ok(Some(established)) => {
                let expected = Identity { from: request.peer.1, to: request.number };
                match Identity::parse(&established.private_data) == Some(expected) {
                    true => Ok(established),
                    false => Err(SetupFailure::WrongPeer),
                }
            }
            Err(error) => Err(error.into()),
        };
        let output = initiator.take_output();
        self.queue_output(output);
        self.state = match outcome {
            Ok(established) => State::Connected(request, established),
            Err(failure) => {
                pending.fail(&request, &failure);
                State::Done
            }
        };
    }
}

impl Handshake for IwarpHandshake {
    type Context = Pending;

    fn inbound(peer: IpAddr, now: Instant) -> Self {
        let responder = Responder::new(now);
        let deadline = responder.deadline();
        Self::new(peer, State::Opening(responder), deadline)
    }

    fn outbound(request: Request, _: &mut Pending, now: Instant) -> Option<(Route, Self)> {
        let (address, number) = request.peer;
        let route = Route { from: request.address, to: SocketAddr::new(address, port_of(number)) };
        let identity = Identity { from: request.number, to: number }.to_bytes();
        // Either program may send first.
        let options = Options { rtr: Rtr { write: true, ..Rtr::default() }, ..request.parameters };
        let mut initiator = Initiator::new(options, &identity, now);
        let output = initiator.take_output();
        let mut handshake = Self::new(address, State::Running(initiator, request), now + PROGRAM_TIMEOUT);
        handshake.queue_output(output);
        Some((route, handshake))
    }

    fn receive(&mut self, pending: &mut Pending, bytes: &[u8], now: Instant) {
        self.transcript.push((Sender::Peer, bytes.to_vec()));
        match &mut self.state {
            State::Opening(responder) => match Self::take_request(responder, bytes) {
                Ok(None) => {}
                Ok(Some(identity)) => {
                    if let State::Opening(responder) = mem::replace(&mut self.state, State::Done) {
                        self.state = State::Parked(responder, identity);
                        self.deadline = now + PROGRAM_TIMEOUT;
                    }
                }
                Err(why) => self.refuse(pending, why),
            },
            State::Parked(..) => self.refuse(pending, Refused::EarlyData),
            State::Running(..) => self.take_reply(pending, bytes),
            State::Connected(..) | State::Done => {}
        }
    }

    fn resume(&mut self, pending: &mut Pending, _: Instant) {
        self.match_request(pending);
    }

    fn close(&mut self, pending: &mut Pending, cause: Cause) {
        let refused = match &cause {
            Cause::Deadline => Refused::TimedOut,
            Cause::Displaced => Refused::Displaced,
            _ => Refused::Closed,
        };
        match (&self.state, cause) {
            (State::Running(_, request) | State::Connected(request, _), cause) => {
                let request = *request;
                self.state = State::Done;
                match cause {
                    // The program has closed the adapter.
                    Cause::Shutdown => {}
                    Cause::Withdrawn => pending.complete(),
                    Cause::Deadline => pending.fail(&request, &SetupFailure::NoPeer),
                    Cause::Io(error) => pending.fail(&request, &error.into()),
                    _ => pending.fail(&request, &SetupError::Closed.into()),
                }
            }
            (State::Opening(_) | State::Parked(..), Cause::Shutdown) => self.state = State::Done,
            (State::Opening(_) | State::Parked(..), _) => self.refuse(pending, refused),
            (State::Done, _) => {}
        }
    }

    fn connected(self, pending: &mut Pending, socket: TcpStream) {
        let State::Connected(request, Established { terms, rest, .. }) = self.state else { return };
        let stream = ConnectedStream::new(socket, self.transcript, rest);
        match pending.host.attach(request.qp, &terms, ConnectedStream { by_number: true, ..stream }) {
            Ok(()) => pending.complete(),
            Err(error) => pending.fail(&request, &error.into()),
        }
    }

    fn take_output(&mut self) -> Vec<u8> {
        mem::take(&mut self.output)
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Opening(_) => Phase::Opening,
            State::Parked(..) => Phase::Parked,
            State::Running(..) => Phase::Running,
            State::Connected(..) => Phase::Connected,
            State::Done => Phase::Done,
        }
    }

    fn qp(&self) -> Option<QpNumber> {
        match &self.state {
            State::Parked(_, identity) => Some(identity.to),
            State::Running(_, request) | State::Connected(request, _) => Some(request.number),
            State::Opening(_) | State::Done => None,
        }
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}
