//! Queue pairs whose set-up is not complete.

use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use nichrome_port::{TcpOwner, tcp_peer_owner};
use nichrome_rdma::star::{SetupError, Wish};
use nichrome_rdma::{Device, Memory, QpNumber};
use nichrome_wire::Instant;
use rustix::process::geteuid;
use thiserror::Error;

use super::slots::slot_of;
pub(super) use crate::connect::PROGRAM_TIMEOUT;
use crate::connect::{ConnectRequest, Context, PreSharedKey, Requests, SealError, fail};

/// A queue pair that is held until its transport is negotiated.
pub(crate) type Request = ConnectRequest<SetupParameters>;

/// The requested set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetupParameters {
    pub(super) wish: Wish,
    /// The peer's slot, whose port is tried after the port of unshared addresses has refused the connection.
    pub(super) slot: Option<usize>,
}

/// Why a connection could not be set up.
#[derive(Debug, Error)]
pub(super) enum SetupFailure {
    #[error(transparent)]
    Protocol(#[from] SetupError),
    #[error(transparent)]
    Connect(#[from] nichrome_rdma::ConnectError),
    #[error("the peer does not answer StaR's set-up ({0})")]
    Io(#[from] std::io::Error),
    #[error("the peer's program did not connect its queue pair within {} s", PROGRAM_TIMEOUT.as_secs())]
    NoPeer,
    #[error("the peer did not complete StaR's set-up in time")]
    Timeout,
    #[error("the peer is not the queue pair that was to be connected")]
    WrongPeer,
    #[error("the peer is a process of another user: give both sides the same --key-file")]
    OtherUser,
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Access to the device.
pub(crate) trait Host<M>: Send + Sync {
    /// Calls verbs, then sends the packets that they have queued.
    fn with(&self, verbs: &mut dyn FnMut(&mut Device<M>));
}

/// The queue pairs of an adapter whose set-up is not complete.
pub(super) struct Pending<M> {
    pub(super) host: Arc<dyn Host<M>>,
    requests: Requests<Request>,
    key: Option<PreSharedKey>,
}

impl<M: Memory> Pending<M> {
    pub(super) fn new(
        host: Arc<dyn Host<M>>,
        open: Arc<AtomicUsize>,
        key: Option<PreSharedKey>,
        report: fn(&str),
    ) -> Self {
        Self { host, requests: Requests::new(open, report), key }
    }

    /// Takes the request of queue pair `ours` if it is for `peer`.
    pub(super) fn take(&mut self, ours: QpNumber, peer: (IpAddr, QpNumber)) -> Option<Request> {
        self.requests.take(ours, peer)
    }

    /// Retries a request at the port of the peer's slot.
    pub(super) fn retry_at_slot(&mut self, request: &Request) {
        let slot = Some(slot_of(request.peer.1));
        self.requests
            .retry(Request { parameters: SetupParameters { slot, ..request.parameters }, ..*request });
    }

    /// Counts a completed request.
    pub(super) fn complete(&self) {
        self.requests.complete();
    }

    /// Reports the refusal of a peer that has not named its request yet.
    pub(super) fn refuse(&mut self, peer: IpAddr, failure: &SetupFailure) {
        self.requests.refuse(peer, failure);
    }

    /// Moves the queue pair to ERROR and reports why.
    pub(super) fn fail(&mut self, request: &Request, failure: &SetupFailure) {
        self.host.with(&mut |device| {
            fail(device, request.qp);
            // A stateless side sends the end of the connection, and flushes its requests behind it.
            device.release_sends(request.qp);
        });
        self.requests.fail(request, failure);
    }
}

impl<M: Memory> Context for Pending<M> {
    type Request = Request;

    fn request(&mut self, request: Request, now: Instant) -> QpNumber {
        self.requests.add(request, now);
        request.number
    }

    fn next_outbound(&mut self, has_room: impl Fn(IpAddr) -> bool) -> Option<Request> {
        self.requests.next_outbound(has_room)
    }

    fn withdraw(&mut self, qp: QpNumber) {
        self.requests.withdraw(qp);
    }

    fn key(&self) -> Option<&PreSharedKey> {
        self.key.as_ref()
    }

    /// Without a key, only processes of this user on this machine may connect; if the kernel does not report
    /// the socket's owner, all processes.
    fn trusts(&self, stream: &TcpStream) -> bool {
        self.key.is_some()
            || match tcp_peer_owner(stream) {
                Ok(TcpOwner::User(user)) => user == geteuid().as_raw(),
                Ok(TcpOwner::Nobody) => false,
                Ok(TcpOwner::Unknown) | Err(_) => true,
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use std::net::TcpListener;

    struct NoHost;

    impl Host<Arena> for NoHost {
        fn with(&self, _: &mut dyn FnMut(&mut Device<Arena>)) {}
    }

    #[test]
    fn without_a_key_the_peer_must_be_an_open_socket_of_the_same_user() {
        let trusts = |key: Option<PreSharedKey>, stream: &TcpStream| {
            Pending::new(Arc::new(NoHost), Arc::default(), key, |_| {}).trusts(stream)
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(trusts(None, &accepted));
        drop(caller);
        let key = Some(PreSharedKey::new(b"key"));
        assert_eq!([trusts(None, &accepted), trusts(key, &accepted)], [false, true]);
    }
}
