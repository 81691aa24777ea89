//! Reliable, ordered delivery of elements: WQEPs to the client, CQEPs to the server's driver, acknowledged by
//! EAs.
//!
//! An EA is cumulative. Go-back-N: the receiver drops elements after a lost one, and the sender retransmits
//! them. Elements are small and few are lost (section 3.3 of the paper, "Handling WQE loss").

use std::collections::VecDeque;

use nichrome_wire::{Instant, SeqNumber};

use super::timer::{Awaited, RetransmissionTimer};
use crate::core::queue_pair::Settings;

/// Maximum number of elements sent and not acknowledged.
const WINDOW: usize = 128;

/// The sender: elements to be sent or acknowledged.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    elements: VecDeque<T>,
    /// The number of the first of `elements`.
    first: SeqNumber,
    /// The index of the element to send next.
    cursor: usize,
    /// Elements that were sent at least once.
    sent: usize,
    pub(super) timer: RetransmissionTimer,
    /// The element that measures the round trip, and when it was sent.
    timed: Option<(SeqNumber, Instant)>,
    /// A duplicate EA has caused a retransmission since the last progress; further duplicates cause none.
    recovering: bool,
}

impl<T: Copy> Outbox<T> {
    pub(super) fn new(first: SeqNumber) -> Self {
        Self {
            elements: VecDeque::new(),
            first,
            cursor: 0,
            sent: 0,
            timer: RetransmissionTimer::default(),
            timed: None,
            recovering: false,
        }
    }

    /// Adds an element and returns its number.
    pub(super) fn push(&mut self, element: T) -> SeqNumber {
        self.elements.push_back(element);
        self.first + (self.elements.len() as u32 - 1)
    }

    /// Returns the number of the next element to be pushed.
    pub(super) fn next_number(&self) -> SeqNumber {
        self.first + self.elements.len() as u32
    }

    /// Returns the number of the oldest element that is not acknowledged.
    pub(super) fn oldest(&self) -> SeqNumber {
        self.first
    }

    /// Returns true if the element with this number was acknowledged.
    pub(super) fn is_acknowledged(&self, number: SeqNumber) -> bool {
        number.before(self.first)
    }

    /// Returns true if the element with this number was sent.
    pub(super) fn is_sent(&self, number: SeqNumber) -> bool {
        number.before(self.first + self.sent as u32)
    }

    /// Returns true if all elements were acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Returns `Answer` if elements were sent and not acknowledged.
    pub(super) fn outstanding(&self) -> Awaited {
        if self.sent > 0 { Awaited::Answer } else { Awaited::Nothing }
    }

    /// Returns the next element to send, with its number.
    #[inline]
    pub(super) fn next(&self) -> Option<(SeqNumber, T)> {
        if self.cursor >= WINDOW {
            return None;
        }
        let element = self.elements.get(self.cursor)?;
        Some((self.first + self.cursor as u32, *element))
    }

    /// Records that the next element left. Returns false if it was a retransmission.
    pub(super) fn element_sent(&mut self, settings: &Settings, now: Instant) -> bool {
        let number = self.first + self.cursor as u32;
        self.cursor += 1;
        let is_new = self.cursor > self.sent;
        if is_new {
            self.sent = self.cursor;
            self.timed.get_or_insert((number, now));
        }
        self.timer.start(Awaited::Answer, settings, now);
        is_new
    }

    /// Handles an EA for all elements before `number`. Returns true if it acknowledges new ones. The first
    /// duplicate EA retransmits all unacknowledged elements.
    pub(super) fn ea_received(&mut self, number: SeqNumber, now: Instant) -> bool {
        let is_new = self.acknowledged(number, now);
        if !is_new && number == self.first && self.sent > 0 && !self.recovering {
            self.go_back();
        }
        is_new
    }

    /// Removes all elements before `number`. Returns true if there were any.
    pub(super) fn acknowledged(&mut self, number: SeqNumber, now: Instant) -> bool {
        let count = self.count_before(number).unwrap_or_default();
        if count == 0 {
            return false;
        }
        if let Some((timed, at)) = self.timed
            && timed.before(number)
        {
            self.timer.sample(now.nanos_since(at));
            self.timed = None;
        }
        self.elements.drain(..count);
        self.first = number;
        (self.cursor, self.sent) = (self.cursor.max(count) - count, self.sent - count);
        self.recovering = false;
        true
    }

    /// Returns how many sent elements are before this number; `None` if the number is out of the range of
    /// sent elements.
    fn count_before(&self, number: SeqNumber) -> Option<usize> {
        let count = usize::try_from(number.since(self.first)).ok()?;
        (count <= self.sent).then_some(count)
    }

    /// Retransmits all unacknowledged elements.
    pub(super) fn retransmit(&mut self) {
        self.go_back();
        self.recovering = false;
    }

    fn go_back(&mut self) {
        (self.cursor, self.timed, self.recovering) = (0, None, true);
    }

    /// Drops the elements that were never sent.
    pub(super) fn drop_unsent(&mut self) {
        self.elements.truncate(self.sent);
    }

    /// Drops all elements.
    pub(super) fn clear(&mut self) {
        self.first = self.next_number();
        self.elements.clear();
        (self.cursor, self.sent, self.timed) = (0, 0, None);
        self.timer.stop();
    }
}

/// The receiver of the peer's elements.
#[derive(Debug)]
pub(super) struct Inbox {
    expected: SeqNumber,
    /// An EA must be sent.
    pub(super) ack_due: bool,
}

impl Inbox {
    pub(super) fn new(first: SeqNumber) -> Self {
        Self { expected: first, ack_due: false }
    }

    /// Returns the number of the next element expected, which an EA carries.
    pub(super) fn expected(&self) -> SeqNumber {
        self.expected
    }

    /// Records an element's arrival.
    pub(super) fn receive(&mut self, number: SeqNumber) {
        self.ack_due = true;
        self.expected += u32::from(number == self.expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn sent(outbox: &mut Outbox<u8>, settings: &Settings) -> Vec<u8> {
        std::iter::from_fn(|| {
            let (_, element) = outbox.next()?;
            outbox.element_sent(settings, NOW);
            Some(element)
        })
        .collect()
    }

    #[test]
    fn an_ea_is_cumulative_and_the_first_duplicate_retransmits() {
        let settings = Settings::new(nichrome_wire::rdma::PathMtu::B1024);
        let mut outbox = Outbox::new(SeqNumber(u32::MAX));
        (1..=4).for_each(|element| {
            outbox.push(element);
        });
        assert_eq!(sent(&mut outbox, &settings), [1, 2, 3, 4]);
        assert!(outbox.ea_received(SeqNumber(1), NOW));
        assert!(outbox.is_acknowledged(SeqNumber(0)) && !outbox.is_acknowledged(SeqNumber(1)));
        assert!(!outbox.ea_received(SeqNumber(1), NOW) && !outbox.ea_received(SeqNumber(1), NOW));
        assert_eq!(sent(&mut outbox, &settings), [3, 4], "once");
        // Numbers of elements that were never sent, or acknowledged before, are ignored.
        assert!(!outbox.ea_received(SeqNumber(4), NOW) && !outbox.ea_received(SeqNumber(0), NOW));
        assert!(outbox.ea_received(SeqNumber(3), NOW) && outbox.outstanding() == Awaited::Nothing);
        assert_eq!(outbox.next_number(), SeqNumber(3));
    }

    #[test]
    fn elements_are_taken_in_order_and_once() {
        let mut inbox = Inbox::new(SeqNumber(9));
        let expected = [9, 9, 11, 10].map(|number| {
            inbox.receive(SeqNumber(number));
            inbox.expected().0
        });
        assert_eq!(expected, [10, 10, 10, 11]);
        assert!(inbox.ack_due && inbox.expected() == SeqNumber(11));
    }
}
