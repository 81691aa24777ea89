//! MPA's start-up of one connection, with the program's private data.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use nichrome_cm::{Errno, StreamFailure, StreamName, StreamParameters};
use nichrome_rdma::QpNumber;
use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::iwarp::setup::{Established, Initiator, Responder, SetupError};
use nichrome_wire::Instant;
use nichrome_wire::iwarp::Rtr;

use super::super::error::errno;
use crate::connect::{Cause, Context, Handshake, PROGRAM_TIMEOUT, Phase, PreSharedKey, Route};
use crate::connected_stream::{ConnectedStream, Sender};
use crate::iwarp::{IwarpOptions, Refused, SharedCounters};

/// A change of a connection.
#[derive(Debug)]
pub(in super::super) enum Outcome {
    /// A peer requests a connection.
    Requested {
        stream: u64,
        local: SocketAddr,
        peer: SocketAddr,
        parameters: StreamParameters,
    },
    /// The connection is set up and can be given to its queue pair.
    Ready(Ready),
    Failed(StreamName, StreamFailure),
}

/// A connection that is set up.
#[derive(Debug)]
pub(in super::super) struct Ready {
    pub(in super::super) name: StreamName,
    pub(in super::super) terms: Terms,
    /// The peer's private data.
    pub(in super::super) private_data: Vec<u8>,
    pub(in super::super) stream: ConnectedStream,
}

/// The outcomes that the connection manager has not taken.
pub(super) struct Outcomes {
    outcomes: Vec<Outcome>,
    /// Inbound connections that were refused.
    refused: Arc<SharedCounters>,
}

impl Outcomes {
    pub(super) const fn new(refused: Arc<SharedCounters>) -> Self {
        Self { outcomes: Vec::new(), refused }
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    pub(super) fn take(&mut self) -> Vec<Outcome> {
        mem::take(&mut self.outcomes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }
}

impl Context for Outcomes {
    /// None: [`Call::outgoing`] starts outbound connections.
    type Request = Infallible;

    fn request(&mut self, request: Infallible, _: Instant) -> QpNumber {
        match request {}
    }

    fn next_outbound(&mut self, _: impl Fn(IpAddr) -> bool) -> Option<Infallible> {
        None
    }

    /// MPA has no encryption.
    fn key(&self) -> Option<&PreSharedKey> {
        None
    }

    /// Every peer: the program decides whether to accept it.
    fn trusts(&self, _: &TcpStream) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

/// One side of a start-up.
pub(super) struct Call {
    name: StreamName,
    /// The ends of an inbound connection: this one and the peer.
    ends: (SocketAddr, SocketAddr),
    state: State,
    deadline: Instant,
    output: Vec<u8>,
    /// The bytes of both sides in order, for the capture.
    transcript: Vec<(Sender, Vec<u8>)>,
}

enum State {
    /// Inbound: the Request is not complete.
    Opening(Responder),
    /// Inbound: the program has the Request.
    Waiting(Responder),
    /// Outbound: the Reply is not complete.
    Calling(Initiator),
    Connected(Established),
    Done,
}

impl Call {
    fn new(name: StreamName, state: State, deadline: Instant) -> Self {
        let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let ends = (unknown, unknown);
        Self { name, ends, state, deadline, output: Vec::new(), transcript: Vec::new() }
    }

    /// Starts an outbound connection, in peer-to-peer mode, so that either program may send first.
    pub(super) fn outgoing(
        name: StreamName,
        options: &IwarpOptions,
        parameters: &StreamParameters,
        now: Instant,
    ) -> Self {
        let options = options.of(parameters.ird.into(), parameters.ord.into());
        let options =
            nichrome_rdma::iwarp::setup::Options { rtr: Rtr { write: true, ..Rtr::default() }, ..options };
        let mut initiator = Initiator::new(options, &parameters.private_data, now);
        let output = initiator.take_output();
        let mut call = Self::new(name, State::Calling(initiator), now + PROGRAM_TIMEOUT);
        call.queue_output(output);
        call
    }

    /// Sets the name of an inbound connection and its ends: this one and the peer.
    pub(super) fn name_inbound(&mut self, token: u64, ends: (SocketAddr, SocketAddr)) {
        (self.name, self.ends) = (StreamName::Incoming(token), ends);
    }

    pub(super) const fn name(&self) -> StreamName {
        self.name
    }

    pub(super) fn accept(
        &mut self,
        options: &IwarpOptions,
        parameters: &StreamParameters,
        outcomes: &mut Outcomes,
    ) {
        let State::Waiting(responder) = &mut self.state else { return };
        let options = options.of(parameters.ird.into(), parameters.ord.into());
        let accepted = responder.accept(&options, &parameters.private_data);
        let output = responder.take_output();
        self.queue_output(output);
        match accepted {
            Ok(established) => self.state = State::Connected(established),
            Err(error) => self.fail(outcomes, setup_failure(error)),
        }
    }

    pub(super) fn reject(&mut self, private_data: &[u8]) {
        if let State::Waiting(responder) = &mut self.state {
            responder.reject(private_data);
            let output = responder.take_output();
            self.queue_output(output);
        }
        self.state = State::Done;
    }

    /// Ends without an outcome. Rejects a peer that waits for the program's answer.
    pub(super) fn forget(&mut self) {
        self.reject(&[]);
    }

    fn queue_output(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.transcript.push((Sender::Local, bytes.clone()));
            self.output.extend(bytes);
        }
    }

    /// Ends, and reports the failure unless the Request is incomplete: the manager does not know such a
    /// connection.
    fn fail(&mut self, outcomes: &mut Outcomes, failure: StreamFailure) {
        if !matches!(self.state, State::Opening(_) | State::Done) {
            outcomes.add(Outcome::Failed(self.name, failure));
        }
        self.state = State::Done;
    }

    /// Takes bytes of a Request.
    fn take_request(
        &mut self,
        mut responder: Responder,
        bytes: &[u8],
        outcomes: &mut Outcomes,
        now: Instant,
    ) {
        let private_data = match responder.receive(bytes) {
            Ok(None) => {
                self.state = State::Opening(responder);
                return;
            }
            Ok(Some(private_data)) => private_data.to_vec(),
            Err(error) => return outcomes.refused.count((&error).into()),
        };
        let StreamName::Incoming(stream) = self.name else { return };
        let (ird, ord) = responder.depths();
        let parameters = StreamParameters { private_data, ird: depth(ird), ord: depth(ord) };
        let (local, peer) = self.ends;
        outcomes.add(Outcome::Requested { stream, local, peer, parameters });
        self.state = State::Waiting(responder);
        self.deadline = now + PROGRAM_TIMEOUT;
    }

    /// Takes bytes of a Reply.
    fn take_reply(&mut self, bytes: &[u8], outcomes: &mut Outcomes) {
        let State::Calling(initiator) = &mut self.state else { return };
        let outcome = initiator.receive(bytes);
        // A TERMINATE if this side cannot accept the Reply.
        let output = initiator.take_output();
        self.queue_output(output);
        match outcome {
            Ok(None) => {}
            Ok(Some(established)) => self.state = State::Connected(established),
            Err(error) => self.fail(outcomes, setup_failure(error)),
        }
    }
}

impl Handshake for Call {
    type Context = Outcomes;

    fn inbound(_: IpAddr, now: Instant) -> Self {
        let responder = Responder::new(now);
        let deadline = responder.deadline();
        Self::new(StreamName::Incoming(0), State::Opening(responder), deadline)
    }

    fn outbound(request: Infallible, _: &mut Outcomes, _: Instant) -> Option<(Route, Self)> {
        match request {}
    }

    fn receive(&mut self, outcomes: &mut Outcomes, bytes: &[u8], now: Instant) {
        self.transcript.push((Sender::Peer, bytes.to_vec()));
        match mem::replace(&mut self.state, State::Done) {
            State::Opening(responder) => self.take_request(responder, bytes, outcomes, now),
            waiting @ State::Waiting(_) => {
                // RFC 5044 section 7.1.3: the initiator waits for the Reply.
                self.state = waiting;
                outcomes.refused.count(Refused::EarlyData);
                self.fail(outcomes, setup_failure(SetupError::EarlyData));
            }
            calling @ State::Calling(_) => {
                self.state = calling;
                self.take_reply(bytes, outcomes);
            }
            other @ (State::Connected(_) | State::Done) => self.state = other,
        }
    }

    fn resume(&mut self, _: &mut Outcomes, _: Instant) {}

    fn close(&mut self, outcomes: &mut Outcomes, cause: Cause) {
        if matches!(self.state, State::Opening(_) | State::Waiting(_)) {
            outcomes.refused.count(match cause {
                Cause::Deadline => Refused::TimedOut,
                Cause::Displaced => Refused::Displaced,
                _ => Refused::Closed,
            });
        }
        let failure = match cause {
            Cause::Deadline => StreamFailure::TimedOut,
            Cause::Io(error) => failure(&error),
            _ => StreamFailure::Refused(Errno::ECONNRESET),
        };
        self.fail(outcomes, failure);
    }

    fn connected(self, outcomes: &mut Outcomes, socket: TcpStream) {
        let State::Connected(Established { terms, private_data, rest }) = self.state else { return };
        let stream = ConnectedStream::new(socket, self.transcript, rest);
        outcomes.add(Outcome::Ready(Ready { name: self.name, terms, private_data, stream }));
    }

    fn take_output(&mut self) -> Vec<u8> {
        mem::take(&mut self.output)
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Opening(_) => Phase::Opening,
            State::Waiting(_) => Phase::Parked,
            State::Calling(_) => Phase::Running,
            State::Connected(_) => Phase::Connected,
            State::Done => Phase::Done,
        }
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

fn depth(depth: Option<u16>) -> u8 {
    depth.map_or(0, |depth| depth.min(u8::MAX.into()) as u8)
}

fn setup_failure(error: SetupError) -> StreamFailure {
    match error {
        SetupError::Rejected(private_data) => StreamFailure::Rejected(private_data),
        SetupError::Closed => StreamFailure::Refused(Errno::ECONNRESET),
        SetupError::Timeout => StreamFailure::TimedOut,
        _ => StreamFailure::Other(Errno::EPROTO),
    }
}

/// The failure that the connection manager reports to its program for an error of the socket.
pub(super) fn failure(error: &io::Error) -> StreamFailure {
    match error.kind() {
        ErrorKind::TimedOut => StreamFailure::TimedOut,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => StreamFailure::Refused(errno(error)),
        _ => StreamFailure::Other(errno(error)),
    }
}
