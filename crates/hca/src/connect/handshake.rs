//! One side of a connection's set-up: takes and returns bytes, and has a deadline. No sockets, no clock.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use nichrome_rdma::QpNumber;
use nichrome_wire::Instant;

use super::key::{PreSharedKey, SealError};

/// The phase of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Inbound, and the peer has not named its connection yet. A newer connection may displace it.
    Opening,
    /// Inbound, for a connection that this side's program has not requested yet. May be displaced after a
    /// time.
    Parked,
    /// Negotiating.
    Running,
    /// Complete or refused. This side has sent the last message, and waits until the peer has read it and
    /// closes the stream.
    Closing,
    /// Complete. Once the output is written, the socket goes to [`Handshake::connected`].
    Connected,
    /// Complete or failed: the stream is closed once the output is written.
    Done,
}

/// Why a stream ends.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The peer closed its direction.
    Closed,
    /// The handshake's deadline has passed.
    Deadline,
    /// A newer connection takes its place.
    Displaced,
    /// The adapter closes.
    Shutdown,
    /// The program has reset or destroyed the queue pair.
    Withdrawn,
    /// The peer is not trusted: [`Context::trusts`].
    Untrusted,
    /// The bytes cannot be decrypted.
    Seal(SealError),
    /// The stream failed.
    Io(io::Error),
}

/// The addresses of an outbound stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The source, by which the peer knows this adapter.
    pub(crate) from: IpAddr,
    /// The destination.
    pub(crate) to: SocketAddr,
}

/// One side of the set-up of a connection. It bounds the input that it keeps.
pub(crate) trait Handshake: Sized {
    /// State that all handshakes of an adapter share.
    type Context: Context;

    /// Starts an inbound handshake with the TCP peer at `peer`.
    fn inbound(peer: IpAddr, now: Instant) -> Self;

    /// Starts the outbound handshake of a request; `None` if the request has failed.
    fn outbound(request: RequestOf<Self>, context: &mut Self::Context, now: Instant)
    -> Option<(Route, Self)>;

    /// Takes bytes from the peer.
    fn receive(&mut self, context: &mut Self::Context, bytes: &[u8], now: Instant);

    /// Checks for the program's request that a [`Phase::Parked`] handshake waits for. Called when all bytes
    /// that have arrived are read.
    fn resume(&mut self, context: &mut Self::Context, now: Instant);

    /// Ends the handshake. May leave output to be sent, such as a refusal.
    fn close(&mut self, context: &mut Self::Context, cause: Cause);

    /// Takes over the socket of a [`Phase::Connected`] handshake. The default closes it.
    fn connected(self, context: &mut Self::Context, socket: TcpStream) {
        let _ = (context, socket);
    }

    /// Takes the bytes to be sent to the peer.
    fn take_output(&mut self) -> Vec<u8>;

    /// The phase.
    fn phase(&self) -> Phase;

    /// This side's queue pair: the one that a parked peer names, or the request's. `None` while it is not
    /// known, and after the set-up.
    fn qp(&self) -> Option<QpNumber> {
        None
    }

    /// When the current phase ends by [`Cause::Deadline`].
    fn deadline(&self) -> Instant;
}

/// State that all handshakes of an adapter share: the connections that its program requests.
pub(crate) trait Context {
    /// A connection to be set up.
    type Request: Send + 'static;

    /// Takes a request of the program. Returns its queue pair.
    fn request(&mut self, request: Self::Request, now: Instant) -> QpNumber;

    /// Takes a request for which this side connects, to a peer for which `has_room` returns true. For other
    /// requests the peer connects.
    fn next_outbound(&mut self, has_room: impl Fn(IpAddr) -> bool) -> Option<Self::Request>;

    /// Forgets the request of a queue pair that the program has reset or destroyed, unless a handshake has
    /// it.
    fn withdraw(&mut self, qp: QpNumber) {
        let _ = qp;
    }

    /// The key of the set-up, which both sides know; `None` for plain bytes.
    fn key(&self) -> Option<&PreSharedKey>;

    /// Returns true if the peer of a stream may connect. Called when the peer's first bytes have arrived.
    fn trusts(&self, stream: &TcpStream) -> bool;

    /// Deadline of the next expected peer.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Fails the requests of expected peers whose deadline has passed.
    fn handle_timeout(&mut self, now: Instant);
}

/// The requests for handshakes of type `H`.
pub(crate) type RequestOf<H> = <<H as Handshake>::Context as Context>::Request;
