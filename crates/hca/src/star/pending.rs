//! Queue pairs whose set-up is not complete.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nichrome_port::{TcpOwner, tcp_peer_owner};
use nichrome_rdma::star::{SetupError, Wish};
use nichrome_rdma::{Device, Memory, QpChange, QpHandle, QpNumber, QpState};
use nichrome_wire::Instant;
use rustix::process::geteuid;
use thiserror::Error;

use super::slots::slot_of;
use crate::connect::{Context, PreSharedKey, SealError};

/// How long one side waits for the program of the other.
pub(super) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Failures that are reported one by one.
const MAX_REPORTS: usize = 8;

/// A queue pair that is held until its transport is negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(super) qp: QpHandle,
    pub(super) number: QpNumber,
    pub(super) address: IpAddr,
    pub(super) peer: (IpAddr, QpNumber),
    pub(super) wish: Wish,
    /// The slot whose port is called, after nobody listened at the port of an address that one process has to itself.
    pub(super) slot: Option<usize>,
}

impl Request {
    /// Returns true if this side connects: the one with the lower address and number does.
    pub(super) fn connects(&self) -> bool {
        (self.address, self.number) < self.peer
    }

    /// Returns true if the queue pair is connected to itself.
    pub(super) fn is_loop(&self) -> bool {
        (self.address, self.number) == self.peer
    }
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
    #[error("the peer is another queue pair than the one to be connected to")]
    WrongPeer,
    #[error("the peer is a process of another user: with the same --key-file at both sides it may connect")]
    OtherUser,
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Access to the device.
pub(crate) trait Host<M>: Send + Sync {
    /// Calls verbs and sends what they have queued.
    fn with(&self, verbs: &mut dyn FnMut(&mut Device<M>));
}

/// The queue pairs of an adapter whose set-up is not complete.
pub(super) struct Pending<M> {
    pub(super) host: Arc<dyn Host<M>>,
    /// Requests whose peer connects.
    expected: HashMap<QpNumber, (Request, Instant)>,
    /// Deadlines of expected requests in order, also of those that are no longer expected.
    deadlines: VecDeque<(Instant, QpNumber)>,
    /// Requests that are not complete.
    open: Arc<AtomicUsize>,
    key: Option<PreSharedKey>,
    /// Requests whose first port was refused.
    refused: VecDeque<Request>,
    failures: usize,
    report: fn(&str),
}

impl<M: Memory> Pending<M> {
    pub(super) fn new(
        host: Arc<dyn Host<M>>,
        open: Arc<AtomicUsize>,
        key: Option<PreSharedKey>,
        report: fn(&str),
    ) -> Self {
        let (expected, deadlines, refused) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        Self { host, expected, deadlines, open, key, refused, failures: 0, report }
    }

    /// Takes the request of queue pair `ours` if it is for `peer`.
    pub(super) fn take(&mut self, ours: QpNumber, peer: (IpAddr, QpNumber)) -> Option<Request> {
        let (request, _) = self.expected.get(&ours).filter(|(request, _)| request.peer == peer)?;
        let request = *request;
        self.expected.remove(&ours);
        let expected = &self.expected;
        let is_stale = |(_, number): &mut (Instant, QpNumber)| !expected.contains_key(number);
        while self.deadlines.pop_front_if(is_stale).is_some() {}
        Some(request)
    }

    /// Has a request tried again at the port of the peer's slot.
    pub(super) fn call_slot(&mut self, request: &Request) {
        self.refused.push_back(Request { slot: Some(slot_of(request.peer.1)), ..*request });
    }

    /// Counts a completed request.
    pub(super) fn complete(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Moves the queue pair to ERROR and reports why.
    pub(super) fn fail(&mut self, request: &Request, failure: &SetupFailure) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        // The program may have destroyed it.
        self.host.with(&mut |device| _ = device.modify_qp(request.qp, &QpChange::to(QpState::Err)));
        self.failures += 1;
        if self.failures > MAX_REPORTS {
            if self.failures == MAX_REPORTS + 1 {
                (self.report)("more queue pairs could not be connected: not reported one by one");
            }
            return;
        }
        let Request { number, peer: (address, theirs), .. } = request;
        (self.report)(&format!(
            "queue pair {:#x} has no connection with {:#x} at {address}: {failure}",
            number.value(),
            theirs.value()
        ));
    }
}

impl<M: Memory> Context for Pending<M> {
    type Request = Request;

    /// Expects the peer to connect within [`PROGRAM_TIMEOUT`], unless this side does.
    fn request(&mut self, request: Request, now: Instant) -> Option<Request> {
        if request.connects() {
            return Some(request);
        }
        let until = now + PROGRAM_TIMEOUT;
        if self.expected.insert(request.number, (request, until)).is_some() {
            // The program has reset the queue pair and connects it again.
            self.complete();
        }
        self.deadlines.push_back((until, request.number));
        None
    }

    fn retry(&mut self) -> Option<Request> {
        self.refused.pop_front()
    }

    fn key(&self) -> Option<&PreSharedKey> {
        self.key.as_ref()
    }

    /// Without a key, only processes of this machine's same user may connect; of a kernel that does not tell the owner, all.
    fn trusts(&self, stream: &TcpStream) -> bool {
        self.key.is_some()
            || match tcp_peer_owner(stream) {
                Ok(TcpOwner::User(user)) => user == geteuid().as_raw(),
                Ok(TcpOwner::Nobody) => false,
                Ok(TcpOwner::Unknown) | Err(_) => true,
            }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(until, _)| *until)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((until, number)) = self.deadlines.pop_front_if(|(until, _)| *until <= now) {
            // A queue pair may have been requested again since.
            let is_late = |(_, latest): &&(Request, Instant)| *latest == until;
            if let Some((request, _)) = self.expected.get(&number).filter(is_late) {
                let request = *request;
                self.expected.remove(&number);
                self.fail(&request, &SetupFailure::NoPeer);
            }
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
