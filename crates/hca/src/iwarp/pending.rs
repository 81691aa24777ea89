//! Queue pairs whose connections are not set up yet.

use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::iwarp::setup::{Options, SetupError};
use nichrome_rdma::{ConnectError, QpHandle, QpNumber};
use nichrome_wire::Instant;
use rustix::io::Errno;
use thiserror::Error;

use super::counters::SharedCounters;
use crate::connect::{ConnectRequest, Context, Ends, PROGRAM_TIMEOUT, PreSharedKey, Requests};
use crate::connected_stream::ConnectedStream;
use crate::descriptors;

/// A queue pair that is held until its connection is set up.
pub(crate) type Request = ConnectRequest<Options>;

/// Why a connection could not be set up.
#[derive(Debug, Error)]
pub(super) enum SetupFailure {
    #[error(transparent)]
    Protocol(#[from] SetupError),
    #[error("the peer does not answer MPA's start-up ({0})")]
    Io(#[from] std::io::Error),
    #[error("the peer's program did not connect its queue pair within {} s", PROGRAM_TIMEOUT.as_secs())]
    NoPeer,
    #[error("the peer is not the queue pair that was to be connected")]
    WrongPeer,
    #[error("a queue pair cannot be connected to itself on iWARP")]
    Loop,
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The queue pair does not accept the stream.
#[derive(Debug, Error)]
pub(crate) enum AttachError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the kernel cannot watch the connection: {0}")]
    Watch(#[from] Errno),
}

/// The device of queue pairs that are being connected.
pub(crate) trait StreamHost: Send + Sync {
    /// Attaches a stream to its held queue pair.
    ///
    /// # Errors
    /// The queue pair does not exist, or the kernel cannot watch the socket.
    fn attach(&self, qp: QpHandle, terms: &Terms, connected: ConnectedStream) -> Result<(), AttachError>;

    /// Moves a queue pair to ERROR.
    fn fail(&self, qp: QpHandle);
}

/// The queue pairs of an adapter whose connections are not set up yet.
pub(super) struct Pending {
    pub(super) host: Arc<dyn StreamHost>,
    requests: Requests<Request>,
    pub(super) counters: Arc<SharedCounters>,
}

impl Pending {
    pub(super) fn new(
        host: Arc<dyn StreamHost>,
        open: Arc<AtomicUsize>,
        counters: Arc<SharedCounters>,
        report: fn(&str),
    ) -> Self {
        Self { host, requests: Requests::new(open, report), counters }
    }

    /// Takes the request of queue pair `ours` if it is for `peer`.
    pub(super) fn take(&mut self, ours: QpNumber, peer: (IpAddr, QpNumber)) -> Option<Request> {
        self.requests.take(ours, peer)
    }

    /// Counts a completed request.
    pub(super) fn complete(&self) {
        self.requests.complete();
    }

    /// Moves the queue pair to ERROR and reports why.
    pub(super) fn fail(&mut self, request: &Request, failure: &SetupFailure) {
        self.host.fail(request.qp);
        self.requests.fail(request, format_args!("{failure}{}", remedy(failure)));
    }
}

/// The remedy, if the failure's own text does not name it.
fn remedy(failure: &SetupFailure) -> String {
    match failure {
        SetupFailure::Io(error) => Errno::from_io_error(error).map(descriptors::remedy).unwrap_or_default(),
        _ => String::new(),
    }
}

impl Context for Pending {
    type Request = Request;

    fn request(&mut self, request: Request, now: Instant) -> QpNumber {
        if request.is_loop() {
            self.fail(&request, &SetupFailure::Loop);
        } else {
            self.requests.add(request, now);
        }
        request.number
    }

    fn next_outbound(&mut self, has_room: impl Fn(IpAddr) -> bool) -> Option<Request> {
        self.requests.next_outbound(has_room)
    }

    fn withdraw(&mut self, qp: QpNumber) {
        self.requests.withdraw(qp);
    }

    /// MPA has no encryption.
    fn key(&self) -> Option<&PreSharedKey> {
        None
    }

    /// MPA has no authentication: any peer that knows both queue pair numbers may connect, as on every RNIC.
    fn trusts(&self, _: &TcpStream) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.requests.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(request) = self.requests.pop_late(now) {
            self.fail(&request, &SetupFailure::NoPeer);
        }
    }
}
