//! Completion queues.

use std::collections::VecDeque;

use nichrome_wire::Instant;
use nichrome_wire::rdma::QpNumber;

use super::completion::{Completion, Status};

/// The completions that raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next completion of a solicited message, or in error.
    Solicited,
}

/// Event moderation of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// Number of completions per event; 0 and 1 disable moderation.
    pub count: u16,
    /// Maximum delay of an event after the first completion, in microseconds; 0 disables moderation.
    pub period_us: u16,
}

/// Whether a message was sent with the solicited event bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Plain,
    Solicited,
}

/// The result of adding a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// Added, without an event.
    WithoutEvent,
    /// Added; an event is due now.
    Event,
    /// Added; an event is due at this time, or earlier by further completions.
    EventAt(Instant),
    /// Dropped: the queue was full and is now in error.
    Overflow,
    /// Dropped: the queue was already in error.
    Lost,
}

/// The result of a moderation timer that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// No event: no period has begun.
    Nothing,
    /// An event is due now.
    Event,
    /// The timer fired early: an event is due at this time.
    Later(Instant),
}

/// Maximum number of entries searched for a completion of one queue pair. A longer queue is assumed to hold
/// one: peers decide how often it is searched.
const MAX_SEARCHED: usize = 1024;

/// A bounded FIFO of completions.
pub(crate) struct CompletionQueue {
    entries: VecDeque<Completion>,
    pub(crate) capacity: usize,
    armed: Option<Notify>,
    pub(crate) moderation: Moderation,
    /// Completions since the last event, while moderation delays the next.
    gathered: u16,
    /// End of the moderation period, while `gathered` is above 0.
    due: Option<Instant>,
    overflowed: bool,
    /// Number of send and receive queues that complete here.
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
            due: None,
            overflowed: false,
            users: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Requests one event for future completions. [`Notify::Solicited`] does not replace [`Notify::Any`] (IBA
    /// 11.4.2.2).
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
        if wanted { self.gather(at) } else { Added::WithoutEvent }
    }

    fn gather(&mut self, at: Instant) -> Added {
        self.gathered = self.gathered.saturating_add(1);
        if self.moderation.period_us == 0 || self.gathered >= self.moderation.count {
            self.disarm();
            return Added::Event;
        }
        if self.gathered == 1 {
            let due = at.plus_nanos(u64::from(self.moderation.period_us) * 1000);
            self.due = Some(due);
            return Added::EventAt(due);
        }
        Added::WithoutEvent
    }

    fn disarm(&mut self) {
        (self.armed, self.gathered, self.due) = (None, 0, None);
    }

    /// Ends the moderation period, if it ends at or before `now`.
    pub(crate) fn release(&mut self, now: Instant) -> Released {
        match self.due {
            None => Released::Nothing,
            Some(due) if due > now => Released::Later(due),
            Some(_) => {
                self.disarm();
                Released::Event
            }
        }
    }

    /// Removes the completions of a queue pair that is reset or destroyed: programs would take them for
    /// completions of later requests.
    pub(crate) fn forget(&mut self, qp: QpNumber) {
        self.entries.retain(|completion| completion.qp != qp);
    }

    /// Returns true if the queue may hold a completion of the queue pair other than of a flushed request.
    pub(crate) fn may_hold(&self, qp: QpNumber) -> bool {
        let mut entries = self.entries.iter();
        self.entries.len() > MAX_SEARCHED
            || entries.any(|completion| completion.qp == qp && completion.status != Status::Flushed)
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
    fn each_event_is_requested() {
        let mut cq = CompletionQueue::new(8);
        assert_eq!(add(&mut cq, 1), Added::WithoutEvent);
        cq.arm(Notify::Any);
        assert_eq!([add(&mut cq, 2), add(&mut cq, 3)], [Added::Event, Added::WithoutEvent]);
    }

    #[test]
    fn solicited_waits_for_solicited_or_an_error() {
        let mut cq = CompletionQueue::new(8);
        cq.arm(Notify::Solicited);
        assert_eq!(add(&mut cq, 1), Added::WithoutEvent);
        assert_eq!(cq.add(completion(Status::Success, 2), Urgency::Solicited), Added::Event);
        cq.arm(Notify::Solicited);
        assert_eq!(cq.add(completion(Status::Flushed, 3), Urgency::Plain), Added::Event);
        cq.arm(Notify::Any);
        cq.arm(Notify::Solicited);
        assert_eq!(add(&mut cq, 4), Added::Event);
    }

    #[test]
    fn moderation_delays_events_up_to_a_count_or_a_period() {
        let mut cq = CompletionQueue::new(8);
        cq.moderation = Moderation { count: 3, period_us: 10 };
        cq.arm(Notify::Any);
        let due = Instant::from_nanos(11_000);
        assert_eq!([add(&mut cq, 1), add(&mut cq, 2)], [Added::EventAt(due), Added::WithoutEvent]);
        assert_eq!(add(&mut cq, 3), Added::Event);
        assert_eq!(cq.release(due), Released::Nothing);
        cq.arm(Notify::Any);
        assert_eq!(add(&mut cq, 4), Added::EventAt(Instant::from_nanos(14_000)));
        assert_eq!(cq.release(due), Released::Later(Instant::from_nanos(14_000)));
        assert_eq!(cq.release(Instant::from_nanos(14_000)), Released::Event);
        assert_eq!(cq.release(Instant::from_nanos(14_000)), Released::Nothing);
    }

    #[test]
    fn completions_of_a_reset_queue_pair_are_removed() {
        let mut cq = CompletionQueue::new(8);
        let other = Completion { qp: QpNumber::new(18).unwrap(), ..completion(Status::Success, 2) };
        add(&mut cq, 1);
        cq.add(other, Urgency::Plain);
        cq.forget(QpNumber::new(17).unwrap());
        assert_eq!((cq.poll(), cq.len()), (Some(other), 0));
    }

    #[test]
    fn completions_are_searched_without_flushed_ones_up_to_a_length() {
        let mut cq = CompletionQueue::new(2 * MAX_SEARCHED);
        let [own, other] = [17, 18].map(|number| QpNumber::new(number).unwrap());
        cq.add(completion(Status::Flushed, 1), Urgency::Plain);
        assert!(!cq.may_hold(own));
        add(&mut cq, 2);
        assert_eq!([own, other].map(|qp| cq.may_hold(qp)), [true, false]);
        for _ in 2..MAX_SEARCHED {
            add(&mut cq, 3);
        }
        assert!(!cq.may_hold(other));
        add(&mut cq, 4);
        assert!(cq.may_hold(other));
    }

    #[test]
    fn an_overflowed_queue_stays_in_error() {
        let mut cq = CompletionQueue::new(1);
        assert_eq!([add(&mut cq, 1), add(&mut cq, 2)], [Added::WithoutEvent, Added::Overflow]);
        assert!(cq.poll().is_some_and(|completion| completion.wr_id == 1));
        assert_eq!(add(&mut cq, 3), Added::Lost);
    }

    #[test]
    fn a_count_without_a_period_delays_nothing() {
        let mut cq = CompletionQueue::new(8);
        for count in 0..3 {
            cq.moderation = Moderation { count, period_us: 0 };
            cq.arm(Notify::Any);
            assert_eq!(add(&mut cq, 1), Added::Event, "{count}");
        }
        assert_eq!(cq.len(), 3);
    }
}
