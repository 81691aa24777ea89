//! Delayed acknowledgements, which leave together with the program's answer.
//!
//! Where programs answer each message by one of their own, a delayed acknowledgement leaves in the same
//! transmit, behind the answer: one system call and one wake-up less at either end. As in TCP, the responder
//! delays an ACK only if the program has just answered in time (RFC 1122 section 4.2.3.2; Linux's "pingpong"
//! mode); all other ACKs leave at once. Behind the answer, the shorter ACK fits in one train with it; the
//! peer's driver processes it before requests, as if it had left at once.

use nichrome_wire::Instant;

/// Whether the program of a queue pair answers messages in time, and the end of the current delay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DelayedAck {
    /// Arrival time of the last request that the program has not answered.
    unanswered: Option<Instant>,
    /// The program answered the last message in time.
    is_answering: bool,
    /// The end of the delay.
    held_until: Option<Instant>,
}

impl DelayedAck {
    /// Records a request that must be acknowledged.
    #[inline]
    pub(super) fn arrived(&mut self, delay: u64, now: Instant) {
        if delay > 0 {
            self.unanswered = Some(now);
            self.held_until = self.is_answering.then(|| now.plus_nanos(delay));
        }
    }

    /// Records that a request of the program, which is its answer, was sent.
    #[inline]
    pub(super) fn answered(&mut self, delay: u64, now: Instant) {
        if let Some(arrived) = self.unanswered.take() {
            self.is_answering = now.nanos_since(arrived) <= delay;
        }
    }

    /// Records that the ACK was sent. If its delay had expired, further ACKs are not delayed.
    #[inline]
    pub(super) fn acknowledged(&mut self, now: Instant) {
        if self.held_until.take().is_some_and(|until| until <= now) {
            self.is_answering = false;
        }
    }

    /// Ends the delay.
    #[inline]
    pub(super) fn release(&mut self) {
        self.held_until = None;
    }

    /// Returns the end of the delay, if it is later than `now`.
    #[inline]
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.held_until.filter(|until| *until > now)
    }
}
