//! Holds the end of a connection until the program has polled the completions that arrived before it.
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

/// The maximum number of ends that wait. Further ones are reported at once.
const MAX_WAITING: usize = 64;

/// The end of a connection by its peer.
pub(super) enum End {
    /// A management datagram. Only a DREQ is an end; other messages never wait.
    Message(Box<ManagementDatagram>),
    /// The end of the stream of a queue pair.
    Stream(QpHandle),
}

struct Waiting {
    end: End,
    qp: QpNumber,
    until: Instant,
}

/// The ends that wait, oldest first.
#[derive(Default)]
pub(super) struct WaitingEnds {
    waiting: Vec<Waiting>,
    /// When the completion queues are checked next.
    due: Instant,
}

impl WaitingEnds {
    /// Keeps an end while the queue pair of its connection may have unpolled completions, until
    /// [`take_due`](Self::take_due) returns it. Returns an end that need not wait, or for which there is no
    /// place. `ended` is that queue pair; `None` for a message that ends no connection. Drops a further DREQ
    /// for a queue pair whose end waits: peers retransmit it.
    pub(super) fn hold<M: Memory>(
        &mut self,
        end: End,
        ended: Option<QpNumber>,
        device: &Device<M>,
        now: Instant,
    ) -> Option<End> {
        let Some(qp) = ended.filter(|qp| device.may_have_unpolled_completions(*qp)) else { return Some(end) };
        if matches!(end, End::Message(_)) && self.waiting.iter().any(|waiting| waiting.qp == qp) {
            return None;
        }
        if self.waiting.len() == MAX_WAITING {
            return Some(end);
        }
        if self.waiting.is_empty() {
            self.due = now + INTERVAL;
        }
        self.waiting.push(Waiting { end, qp, until: now + LIMIT });
        None
    }

    /// Returns the ends whose completions have been polled, and those that have waited long enough.
    pub(super) fn take_due<M: Memory>(&mut self, device: &Device<M>, now: Instant) -> Vec<End> {
        if self.waiting.is_empty() || now < self.due {
            return Vec::new();
        }
        self.due = now + INTERVAL;
        let is_due =
            |waiting: &mut Waiting| waiting.until <= now || !device.may_have_unpolled_completions(waiting.qp);
        self.waiting.extract_if(.., is_due).map(|waiting| waiting.end).collect()
    }

    /// Deadline of the next check.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.due)
    }
}
