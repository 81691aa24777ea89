//! Requests for receives from a server's shared receive queue, and the liveness check of any server by such
//! requests.

use nichrome_wire::star::{Completed, Cqe, StatusCode};
use nichrome_wire::{Instant, SeqNumber};

use super::Stateful;
use crate::core::attributes::QpState;

/// Minimum nanoseconds between two liveness checks.
const SHORTEST_SILENCE: u64 = 10_000_000;

impl Stateful {
    /// Queues a CQEP that requests receives for the requests posted since the last one.
    pub(super) fn request_receives(&mut self) {
        let Some(demand) = self.demand.as_mut().filter(|_| self.qp.state == QpState::Rts) else { return };
        demand.request.take_if(|request| self.outbox.is_acknowledged(*request));
        if demand.request.is_some() || demand.needed == demand.requested {
            return;
        }
        demand.requested = demand.needed;
        let needed = demand.needed;
        let request = self.queue_receive_request(needed);
        if let Some(demand) = &mut self.demand {
            demand.request = Some(request);
        }
    }

    /// Queues a CQEP that requests all receives before `number`.
    fn queue_receive_request(&mut self, number: u64) -> SeqNumber {
        let (status, completed) = (StatusCode::SUCCESS, Completed::ReceiveRequest);
        self.report(Cqe { wr_id: number, status, completed, len: 0, notice: None })
    }

    /// Checks whether the server is alive, while an operation waits for a receive and nothing else shows it:
    /// repeats the request for receives once per timeout of the queue pair, since any driver acknowledges a
    /// CQEP. Returns the time of the next check; `None` without a timeout.
    pub(super) fn check_liveness(&mut self, now: Instant) -> Option<Instant> {
        let settings = &self.qp.settings;
        if settings.timeout == 0 {
            return None;
        }
        let next = now.plus_nanos(settings.retry_timeout(0).max(SHORTEST_SILENCE));
        let due = *self.next_liveness_check.get_or_insert(next);
        if now < due {
            return Some(due);
        }
        self.next_liveness_check = Some(next);
        if self.outbox.is_empty() {
            let requested = self.demand.as_ref().map_or(0, |demand| demand.requested);
            self.queue_receive_request(requested);
        }
        Some(next)
    }

    /// Returns true if the server has not acknowledged the request for receives.
    pub(super) fn is_request_outstanding(&self) -> bool {
        let demand = self.demand.as_ref();
        demand.and_then(|demand| demand.request).is_some_and(|request| !self.outbox.is_acknowledged(request))
    }

    /// Returns true if the client may be the cause of the lack of a receive: the server has not acknowledged
    /// the request, or lends no more until an operation that holds a receive is complete.
    pub(super) fn may_be_lent_more(&self) -> bool {
        let holds = || self.client_ops.operations.iter().any(|operation| operation.mirrored.is_some());
        self.demand.is_some() && (self.is_request_outstanding() || holds())
    }
}
