//! The requests of an adapter whose connection is not set up.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nichrome_rdma::QpNumber;
use nichrome_wire::Instant;

use super::expected::{Ends, Expected};

/// How long one side waits for the program of the other.
pub(crate) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Failures that are reported one by one.
const MAX_REPORTS: usize = 8;

/// The requests of an adapter whose connection is not set up: counts them, keeps those whose peer connects, and reports those
/// that fail.
pub(crate) struct Requests<R> {
    expected: Expected<R>,
    /// Requests that are not complete.
    open: Arc<AtomicUsize>,
    failures: usize,
    report: fn(&str),
}

impl<R: Ends> Requests<R> {
    /// No request yet. The caller adds each to `open`; `report` takes a line per failed request.
    pub(crate) fn new(open: Arc<AtomicUsize>, report: fn(&str)) -> Self {
        Self { expected: Expected::default(), open, failures: 0, report }
    }

    /// Returns the request if this side connects; otherwise expects the peer to connect within [`PROGRAM_TIMEOUT`].
    pub(crate) fn route(&mut self, request: R, now: Instant) -> Option<R> {
        if request.connects() {
            return Some(request);
        }
        if self.expected.insert(request, now + PROGRAM_TIMEOUT).is_some() {
            // The program has reset the queue pair and connects it again.
            self.complete();
        }
        None
    }

    /// Takes the request of queue pair `ours` if it is for `peer`.
    pub(crate) fn take(&mut self, ours: QpNumber, peer: (IpAddr, QpNumber)) -> Option<R> {
        self.expected.take(ours, peer)
    }

    /// Counts a completed request.
    pub(crate) fn complete(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a failed request, and reports why.
    pub(crate) fn fail(&mut self, request: &R, why: impl Display) {
        self.complete();
        self.failures += 1;
        if self.failures > MAX_REPORTS {
            if self.failures == MAX_REPORTS + 1 {
                (self.report)("more queue pairs could not be connected: not reported one by one");
            }
            return;
        }
        let (number, (address, theirs)) = (request.number().value(), request.peer());
        let theirs = theirs.value();
        (self.report)(&format!(
            "queue pair {number:#x} has no connection with {theirs:#x} at {address}: {why}"
        ));
    }

    /// Deadline of the next expected peer.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.expected.poll_timeout()
    }

    /// Removes a request whose peer has not connected in time.
    pub(crate) fn pop_late(&mut self, now: Instant) -> Option<R> {
        self.expected.pop_late(now)
    }
}
