//! The completion queue.

use std::collections::VecDeque;

use nichrome_wire::Instant;
use nichrome_wire::rdma::QpNumber;

use super::completion::{Completion, Status};

/// Which completions make an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notify {
    /// The next, whichever it is.
    Any,
    /// The next that the sender has marked as solicited, or that is an error.
    Solicited,
}

/// How many completions are gathered before an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// An event after so many completions; 0 and 1 mean after each.
    pub count: u16,
    /// An event so many microseconds after the first completion, if there are fewer.
    pub period_us: u16,
}

impl Moderation {
    fn applies(self) -> bool {
        self.count > 1 && self.period_us > 0
    }
}

/// Whether the sender of a message wants its receiver told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Plain,
    Solicited,
}

/// What adding a completion brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Quietly,
    /// The program is to be told now.
    Event,
    /// The program is to be told then, unless more completions come before.
    EventAt(Instant),
    /// There was no room: the queue is in error and keeps no more completions.
    Overflow,
    /// The queue was in error already.
    Lost,
}

/// Completions in order, up to a number of them.
pub(crate) struct CompletionQueue {
    entries: VecDeque<Completion>,
    pub(crate) capacity: usize,
    armed: Option<Notify>,
    pub(crate) moderation: Moderation,
    /// Completions that an event is being held back for.
    gathered: u16,
    overflowed: bool,
    /// Queue pairs that complete here.
    pub(crate) users: u32,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            capacity,
            armed: None,
            moderation: Moderation::default(),
            gathered: 0,
            overflowed: false,
            users: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Asks for one event. What is already in the queue makes none; an event for any completion is not narrowed to
    /// solicited ones (IBA 11.4.2.2).
    pub(crate) fn arm(&mut self, notify: Notify) {
        if self.armed != Some(Notify::Any) {
            self.armed = Some(notify);
        }
    }

    pub(crate) fn add(&mut self, completion: Completion, urgency: Urgency) -> Added {
        if self.overflowed {
            return Added::Lost;
        }
        if self.entries.len() >= self.capacity {
            self.overflowed = true;
            return Added::Overflow;
        }
        let at = completion.at;
        let wanted = match self.armed {
            None => false,
            Some(Notify::Any) => true,
            Some(Notify::Solicited) => urgency == Urgency::Solicited || completion.status != Status::Success,
        };
        self.entries.push_back(completion);
        if wanted { self.gather(at) } else { Added::Quietly }
    }

    fn gather(&mut self, at: Instant) -> Added {
        self.gathered = self.gathered.saturating_add(1);
        if !self.moderation.applies() || self.gathered >= self.moderation.count {
            self.disarm();
            return Added::Event;
        }
        if self.gathered == 1 {
            return Added::EventAt(at.plus_nanos(u64::from(self.moderation.period_us) * 1000));
        }
        Added::Quietly
    }

    fn disarm(&mut self) {
        (self.armed, self.gathered) = (None, 0);
    }

    /// The time of moderation is over: whether an event is due.
    pub(crate) fn release(&mut self) -> bool {
        let due = self.gathered > 0;
        if due {
            self.disarm();
        }
        due
    }

    /// Removes the completions of a queue pair that begins anew: they would be taken for those of what it does then.
    pub(crate) fn forget(&mut self, qp: QpNumber) {
        self.entries.retain(|completion| completion.qp != qp);
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::completion::CompletedOperation;

    fn completion(status: Status, us: u64) -> Completion {
        let at = Instant::from_nanos(us * 1000);
        let qp = QpNumber::new(17).unwrap();
        let operation = CompletedOperation::Receive;
        Completion { wr_id: us, status, operation, qp, len: 0, notice: None, source: None, at }
    }

    fn add(cq: &mut CompletionQueue, us: u64) -> Added {
        cq.add(completion(Status::Success, us), Urgency::Plain)
    }

    #[test]
    fn an_event_is_asked_for_each_time() {
        let mut cq = CompletionQueue::new(8);
        assert_eq!(add(&mut cq, 1), Added::Quietly);
        cq.arm(Notify::Any);
        assert_eq!([add(&mut cq, 2), add(&mut cq, 3)], [Added::Event, Added::Quietly]);
    }

    #[test]
    fn solicited_waits_for_solicited_or_an_error() {
        let mut cq = CompletionQueue::new(8);
        cq.arm(Notify::Solicited);
        assert_eq!(add(&mut cq, 1), Added::Quietly);
        assert_eq!(cq.add(completion(Status::Success, 2), Urgency::Solicited), Added::Event);
        cq.arm(Notify::Solicited);
        assert_eq!(cq.add(completion(Status::Flushed, 3), Urgency::Plain), Added::Event);
        cq.arm(Notify::Any);
        cq.arm(Notify::Solicited);
        assert_eq!(add(&mut cq, 4), Added::Event);
    }

    #[test]
    fn moderation_gathers_up_to_a_count_or_a_time() {
        let mut cq = CompletionQueue::new(8);
        cq.moderation = Moderation { count: 3, period_us: 10 };
        cq.arm(Notify::Any);
        let due = Instant::from_nanos(11_000);
        assert_eq!([add(&mut cq, 1), add(&mut cq, 2)], [Added::EventAt(due), Added::Quietly]);
        assert_eq!(add(&mut cq, 3), Added::Event);
        assert!(!cq.release());
        cq.arm(Notify::Any);
        add(&mut cq, 4);
        assert!(cq.release());
    }

    #[test]
    fn completions_of_a_queue_pair_that_begins_anew_are_forgotten() {
        let mut cq = CompletionQueue::new(8);
        let other = Completion { qp: QpNumber::new(18).unwrap(), ..completion(Status::Success, 2) };
        add(&mut cq, 1);
        cq.add(other, Urgency::Plain);
        cq.forget(QpNumber::new(17).unwrap());
        assert_eq!((cq.poll(), cq.len()), (Some(other), 0));
    }

    #[test]
    fn a_full_queue_is_in_error_for_good() {
        let mut cq = CompletionQueue::new(1);
        assert_eq!([add(&mut cq, 1), add(&mut cq, 2)], [Added::Quietly, Added::Overflow]);
        assert!(cq.poll().is_some_and(|completion| completion.wr_id == 1));
        assert_eq!(add(&mut cq, 3), Added::Lost);
    }
}
