//! Acknowledgements that leave together with what the program answers.
//!
//! Where programs answer each message by one of their own, an acknowledgement that waits a moment leaves in the same
//! transmit, behind the answer: one system call and one wake-up less at either end. As TCP does it, only a program that has
//! just answered in time is waited for (RFC 1122 section 4.2.3.2; Linux's "pingpong" mode); everyone else is
//! acknowledged at once.

use nichrome_wire::Instant;

/// Whether the program of a queue pair answers what arrives, and what waits for its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conversation {
    /// When the last request arrived that the program has not answered.
    unanswered: Option<Instant>,
    /// The program answers in time.
    is_answering: bool,
    /// Until when an acknowledgement waits.
    held_until: Option<Instant>,
}

impl Conversation {
    /// A request is to be acknowledged.
    #[inline]
    pub(crate) fn arrived(&mut self, delay: u64, now: Instant) {
        if delay > 0 {
            self.unanswered = Some(now);
            self.held_until = self.is_answering.then(|| now.plus_nanos(delay));
        }
    }

    /// A request of the program has left.
    #[inline]
    pub(crate) fn answered(&mut self, delay: u64, now: Instant) {
        if let Some(arrived) = self.unanswered.take() {
            self.is_answering = now.nanos_since(arrived) <= delay;
        }
    }

    /// The acknowledgement has left, or need not any more.
    #[inline]
    pub(crate) fn acknowledged(&mut self, now: Instant) {
        if self.held_until.take().is_some_and(|until| until <= now) {
            self.is_answering = false;
        }
    }

    /// What waits is to leave now.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.held_until = None;
    }

    /// Until when an acknowledgement waits that waits now.
    #[inline]
    pub(crate) fn held(&self, now: Instant) -> Option<Instant> {
        self.held_until.filter(|until| *until > now)
    }
}
