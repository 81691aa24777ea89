//! Time at the client: what is sent again, what is given up, how long an operation waits for a receive.

use nichrome_wire::Instant;
use nichrome_wire::rdma::RnrTimer;

use super::flight::Initiator;
use super::pipeline::Transfer;
use super::shared::StarShared;
use super::stateful::Stateful;
use super::timer::{Awaited, Expiry};
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;

/// Retries for a receiver that is not ready that never end.
const FOR_EVER: u8 = 7;

impl Stateful {
    /// When time alone changes something.
    pub(super) fn next_timeout(&self, shared: &StarShared, now: Instant) -> Option<Instant> {
        let paced =
            Some(self.gd.free_at()).filter(|free_at| *free_at > now && self.is_up() && self.has_work());
        let timers = [
            self.outbox.timer.due(),
            self.rdp.timer.due(),
            self.gd.timer.due(),
            self.rdp.lost_until(shared.config.packet_lifetime),
            paced,
            self.look_again,
            self.try_again,
        ];
        timers.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn handle_timeout<M: Memory>(&mut self, shared: &StarShared, verbs: &mut Verbs<M>) {
        let (settings, now) = (self.qp.settings, verbs.now);
        self.look_again.take_if(|at| *at <= now);
        self.try_again.take_if(|at| *at <= now);
        while let Some(place) = self.rdp.expired(shared.config.packet_lifetime, now) {
            self.pipeline_mut(place.initiator).copy_gone(place.nth);
        }
        if let Some(expiry) = self.outbox.timer.expire(&settings, now) {
            count(expiry, verbs);
            match expiry {
                Expiry::GivenUp => self.driver_is_silent(verbs),
                Expiry::Probe | Expiry::Timeout => {
                    self.outbox.repeat();
                    self.outbox.timer.start(self.outbox.outstanding(), &settings, now);
                }
            }
        }
        for transfer in [Transfer::ToServer, Transfer::FromServer] {
            let flight = self.flight(transfer);
            if let Some(expiry) = flight.timer.expire(&settings, now) {
                count(expiry, verbs);
                flight.repeat(expiry);
                if expiry == Expiry::GivenUp {
                    self.peer_gone(verbs);
                } else {
                    let awaited = if flight.repeats.is_empty() { flight.awaited() } else { Awaited::Answer };
                    flight.timer.start(awaited, &settings, now);
                }
            }
        }
        self.complete(verbs);
    }

    /// Nanoseconds that an operation waits for a receive, at most; `None` where it waits for ever.
    pub(super) fn readiness(&self, initiator: Initiator) -> Option<u64> {
        let (retries, timer) = match initiator {
            Initiator::Client => (self.qp.settings.rnr_retry, RnrTimer::new(self.peer_timers.min_rnr_timer)),
            Initiator::Server => (self.peer_timers.rnr_retry, Some(self.qp.settings.min_rnr_timer)),
        };
        let each = timer.unwrap_or_default().nanos() + self.rdp.timer.patience();
        (retries != FOR_EVER).then(|| (u64::from(retries) + 1) * each)
    }
}

/// Counts what a timer has asked for.
pub(super) fn count<M>(expiry: Expiry, verbs: &mut Verbs<M>) {
    match expiry {
        Expiry::Probe => verbs.counters.probes += 1,
        Expiry::Timeout | Expiry::GivenUp => verbs.counters.timeouts += 1,
    }
}
