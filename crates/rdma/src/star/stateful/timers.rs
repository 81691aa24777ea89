//! The client's timers: retransmission, departures, lost copies, and waiting for a receive.

use nichrome_wire::Instant;
use nichrome_wire::rdma::RnrTimer;

use super::Stateful;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::star::flight::{Flight, Initiator};
use crate::star::pipeline::Transfer;
use crate::star::timer::{Awaited, Expiry};

/// The RNR retry count that means no limit (IBA 9.7.5.2.8).
const UNLIMITED: u8 = 7;

impl Stateful {
    /// Returns the deadline of the next timer; may be early.
    pub(in crate::star) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let sends = self.is_up() && self.has_work();
        let departures = [&self.rdp, &self.gd].map(Flight::departure);
        let next_departure = departures.into_iter().filter(|departure| sends && *departure > now).min();
        let timers = [
            self.outbox.timer.due(),
            self.rdp.timer.due(),
            self.gd.timer.due(),
            self.rdp.lost_until(),
            next_departure,
            self.rnr_poll,
            self.grace.due(),
            self.egress_wait.due(),
            self.lease.as_ref().filter(|_| sends).and_then(|lease| lease.next_request(now)),
        ];
        timers.into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub(in crate::star) fn handle_timeout<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let (settings, now) = (self.qp.settings, verbs.now);
        self.rnr_poll.take_if(|at| *at <= now);
        if self.egress_wait.due().is_some_and(|at| at <= now) {
            self.retry_blocked();
        }
        if self.grace.expire(now) {
            self.fail_closed(verbs);
        }
        while let Some(chunk_id) = self.rdp.expire(now) {
            self.pipeline_mut(chunk_id.initiator).copy_gone(chunk_id.nth);
        }
        if let Some(expiry) = self.outbox.timer.expire(&settings, now) {
            expiry.count(&mut verbs.counters);
            match expiry {
                Expiry::Exhausted => self.server_timed_out(verbs),
                Expiry::Probe | Expiry::Timeout => {
                    self.outbox.retransmit();
                    self.outbox.timer.start(self.outbox.outstanding(), &settings, now);
                }
            }
        }
        for transfer in [Transfer::ToServer, Transfer::FromServer] {
            let flight = self.flight_mut(transfer);
            if let Some(expiry) = flight.timer.expire(&settings, now) {
                expiry.count(&mut verbs.counters);
                flight.retransmit(expiry);
                if expiry == Expiry::Exhausted {
                    self.card_gone(verbs);
                } else {
                    let awaited =
                        if flight.retransmissions.is_empty() { flight.awaited() } else { Awaited::Answer };
                    flight.timer.start(awaited, &settings, now);
                }
            }
        }
        self.complete(verbs);
    }

    /// Returns the maximum nanoseconds that an operation waits for a receive; `None` for no limit.
    pub(super) fn rnr_limit(&self, initiator: Initiator) -> Option<u64> {
        let (retries, timer) = match initiator {
            Initiator::Client => (self.qp.settings.rnr_retry, RnrTimer::new(self.peer_timers.min_rnr_timer)),
            Initiator::Server => (self.peer_timers.rnr_retry, Some(self.qp.settings.min_rnr_timer)),
        };
        let each = timer.unwrap_or_default().nanos() + self.rdp.timer.patience();
        (retries != UNLIMITED).then(|| (u64::from(retries) + 1) * each)
    }
}
