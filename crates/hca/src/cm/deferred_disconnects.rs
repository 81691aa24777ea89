//! Defers the end of a connection until the program has polled the completions that arrived before it.
//!
//! With RDMA hardware, the last messages are in the completion queue while the end of the connection still
//! passes the kernels of both machines. Programs rely on it: libfabric destroys the queue pair when it gets
//! the event, and never sees completions that it has not polled. Here one batch may hold the last messages
//! and the end.

use std::time::Duration;

use nichrome_rdma::{Device, ManagementDatagram, Memory, QpHandle, QpNumber};
use nichrome_wire::Instant;

/// How long an end waits for a program that does not poll: longer than the time slices of a busy machine.
const LIMIT: Duration = Duration::from_millis(100);

/// How often the completion queues are checked.
const INTERVAL: Duration = Duration::from_micros(200);

/// Maximum number of deferred ends. Further ones are reported at once.
const MAX_DEFERRED: usize = 64;

/// The end of a connection by its peer.
pub(super) enum Disconnect {
    /// A management datagram. Only a DREQ is an end; other messages never wait.
    Message(Box<ManagementDatagram>),
    /// The end of the stream of a queue pair.
    Stream(QpHandle),
}

struct Deferred {
    disconnect: Disconnect,
    qp: QpNumber,
    until: Instant,
}

/// The deferred ends, oldest first.
#[derive(Default)]
pub(super) struct DeferredDisconnects {
    deferred: Vec<Deferred>,
    /// When the completion queues are checked next.
    due: Instant,
}

impl DeferredDisconnects {
    /// Defers an end while the queue pair of its connection may have unpolled completions, until
    /// [`take_due`](Self::take_due) returns it. Returns an end that need not wait, or for which there is no
    /// place. `ended` is that queue pair; `None` for a message that ends no connection. Drops a further DREQ
    /// for a queue pair whose end is deferred: peers retransmit it.
    pub(super) fn defer<M: Memory>(
        &mut self,
        disconnect: Disconnect,
        ended: Option<QpNumber>,
        device: &Device<M>,
        now: Instant,
    ) -> Option<Disconnect> {
        let Some(qp) = ended.filter(|qp| device.may_have_unpolled_completions(*qp)) else {
            return Some(disconnect);
        };
        if matches!(disconnect, Disconnect::Message(_))
            && self.deferred.iter().any(|deferred| deferred.qp == qp)
        {
            return None;
        }
        if self.deferred.len() == MAX_DEFERRED {
            return Some(disconnect);
        }
        if self.deferred.is_empty() {
            self.due = now + INTERVAL;
        }
        self.deferred.push(Deferred { disconnect, qp, until: now + LIMIT });
        None
    }

    /// Returns the ends whose completions have been polled, and those that have waited long enough.
    pub(super) fn take_due<M: Memory>(&mut self, device: &Device<M>, now: Instant) -> Vec<Disconnect> {
        if self.deferred.is_empty() || now < self.due {
            return Vec::new();
        }
        self.due = now + INTERVAL;
        let is_due = |deferred: &mut Deferred| {
            deferred.until <= now || !device.may_have_unpolled_completions(deferred.qp)
        };
        self.deferred.extract_if(.., is_due).map(|deferred| deferred.disconnect).collect()
    }

    /// Deadline of the next check.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.deferred.is_empty()).then_some(self.due)
    }
}
