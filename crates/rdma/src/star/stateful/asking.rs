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
    pub(super) fn ask_for_receives(&mut self) {
        let Some(asking) = self.asking.as_mut().filter(|_| self.qp.state == QpState::Rts) else { return };
        asking.request.take_if(|request| self.outbox.is_acknowledged(*request));
        if asking.request.is_some() || asking.needed == asking.asked {
            return;
        }
        asking.asked = asking.needed;
        let needed = asking.needed;
        let request = self.request_receives(needed);
        if let Some(asking) = &mut self.asking {
            asking.request = Some(request);
        }
    }

    /// Queues a CQEP that requests all receives before `number`.
    fn request_receives(&mut self, number: u64) -> SeqNumber {
        let (status, completed) = (StatusCode::SUCCESS, Completed::ReceivesWanted);
        self.report(Cqe { wr_id: number, status, completed, len: 0, notice: None })
    }

    /// Checks whether the server is alive, while an operation waits for a receive and nothing else shows it:
    /// repeats the request for receives once per timeout of the queue pair, since any driver acknowledges a
    /// CQEP. Returns the time of the next check; `None` without a timeout.
    pub(super) fn ask_whether_alive(&mut self, now: Instant) -> Option<Instant> {
        let settings = &self.qp.settings;
        if settings.timeout == 0 {
            return None;
        }
        let next = now.plus_nanos(settings.retry_timeout(0).max(SHORTEST_SILENCE));
        let due = *self.next_question.get_or_insert(next);
        if now < due {
            return Some(due);
        }
        self.next_question = Some(next);
        if self.outbox.is_empty() {
            let asked = self.asking.as_ref().map_or(0, |asking| asking.asked);
            self.request_receives(asked);
        }
        Some(next)
    }

    /// Returns true if the server has not acknowledged the request for receives.
    pub(super) fn is_asking(&self) -> bool {
        let asking = self.asking.as_ref();
        asking.and_then(|asking| asking.request).is_some_and(|request| !self.outbox.is_acknowledged(request))
    }

    /// Returns true if the client may be the cause of the lack of a receive: the server has not acknowledged
    /// the request, or lends no more until an operation that holds a receive is complete.
    pub(super) fn may_be_lent_more(&self) -> bool {
        let holds = || self.own.operations.iter().any(|operation| operation.mirrored.is_some());
        self.asking.is_some() && (self.is_asking() || holds())
    }
}
