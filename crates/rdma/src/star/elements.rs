//! Elements in order and each once: WQEPs to the client, CQEPs to the server's driver, and the EAs that they get.
//!
//! One EA acknowledges all before its number. An element that comes ahead of a lost one is dropped: all after a loss come
//! again. They are small and few are lost (section 3.3 of the paper, "Handling WQE loss").

use std::collections::VecDeque;

use nichrome_wire::{Instant, SeqNumber};

use super::timer::{Awaited, RetransmissionTimer};
use crate::core::queue_pair::Settings;

/// Elements that are sent and not acknowledged, at most.
const WINDOW: usize = 128;

/// Elements that wait to be sent, or to be acknowledged.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    elements: VecDeque<T>,
    /// The number of the first of them.
    first: SeqNumber,
    /// How many of them were sent, since all were sent again last.
    cursor: usize,
    /// How many of them were ever sent.
    sent: usize,
    pub(super) timer: RetransmissionTimer,
    /// An element whose acknowledgement is being timed.
    timed: Option<(SeqNumber, Instant)>,
    /// All were sent again since the last progress: more news of a gap change nothing.
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

    /// Adds an element, and gives its number.
    pub(super) fn push(&mut self, element: T) -> SeqNumber {
        self.elements.push_back(element);
        self.first + (self.elements.len() as u32 - 1)
    }

    /// The number that the next element gets.
    pub(super) fn next_number(&self) -> SeqNumber {
        self.first + self.elements.len() as u32
    }

    /// Whether the element with this number was acknowledged.
    pub(super) fn is_acknowledged(&self, number: SeqNumber) -> bool {
        number.before(self.first)
    }

    /// Whether the element with this number was sent.
    pub(super) fn is_sent(&self, number: SeqNumber) -> bool {
        number.before(self.first + self.sent as u32)
    }

    /// Whether elements were sent that are not acknowledged.
    pub(super) fn outstanding(&self) -> Awaited {
        if self.sent > 0 { Awaited::Answer } else { Awaited::Nothing }
    }

    /// The element that is to leave next, with its number.
    #[inline]
    pub(super) fn next(&self) -> Option<(SeqNumber, T)> {
        if self.cursor >= WINDOW {
            return None;
        }
        let element = self.elements.get(self.cursor)?;
        Some((self.first + self.cursor as u32, *element))
    }

    /// It has left; whether for the first time.
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

    /// The peer says that all before `number` have arrived; false where that is no news. Then one was lost, or came twice:
    /// all after come again, once.
    pub(super) fn acknowledged(&mut self, number: SeqNumber, now: Instant) -> bool {
        let news = self.implied(number, now);
        if !news && number == self.first && self.sent > 0 && !self.recovering {
            self.go_back();
        }
        news
    }

    /// All before `number` have arrived, as something else shows; false where that is no news.
    pub(super) fn implied(&mut self, number: SeqNumber, now: Instant) -> bool {
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

    /// How many of those that were sent have a number before this one; `None` where it is none of theirs.
    fn count_before(&self, number: SeqNumber) -> Option<usize> {
        let count = usize::try_from(number.since(self.first)).ok()?;
        (count <= self.sent).then_some(count)
    }

    /// The timer asks for it: all that are not acknowledged are sent again.
    pub(super) fn repeat(&mut self) {
        self.go_back();
        self.recovering = false;
    }

    fn go_back(&mut self) {
        (self.cursor, self.timed, self.recovering) = (0, None, true);
    }

    /// What was never sent is not to be; its elements in order.
    pub(super) fn withdraw(&mut self) {
        self.elements.truncate(self.sent);
    }

    /// Nothing is sent any more.
    pub(super) fn clear(&mut self) {
        self.first = self.next_number();
        self.elements.clear();
        (self.cursor, self.sent, self.timed) = (0, 0, None);
        self.timer.stop();
    }
}

/// Elements of the peer.
#[derive(Debug)]
pub(super) struct Inbox {
    expected: SeqNumber,
    /// The peer is to be told what is expected.
    pub(super) due: bool,
}

impl Inbox {
    pub(super) fn new(first: SeqNumber) -> Self {
        Self { expected: first, due: false }
    }

    /// The number that acknowledges what has come.
    pub(super) fn expected(&self) -> SeqNumber {
        self.expected
    }

    /// An element with this number came; whether it is to be taken in.
    pub(super) fn take(&mut self, number: SeqNumber) -> bool {
        self.due = true;
        let next = number == self.expected;
        self.expected += u32::from(next);
        next
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
    fn an_acknowledgement_stands_for_all_before_it_and_one_without_news_brings_all_again() {
        let settings = Settings::new(nichrome_wire::rdma::PathMtu::B1024);
        let mut outbox = Outbox::new(SeqNumber(u32::MAX));
        (1..=4).for_each(|element| {
            outbox.push(element);
        });
        assert_eq!(sent(&mut outbox, &settings), [1, 2, 3, 4]);
        assert!(outbox.acknowledged(SeqNumber(1), NOW));
        assert!(outbox.is_acknowledged(SeqNumber(0)) && !outbox.is_acknowledged(SeqNumber(1)));
        assert!(!outbox.acknowledged(SeqNumber(1), NOW) && !outbox.acknowledged(SeqNumber(1), NOW));
        assert_eq!(sent(&mut outbox, &settings), [3, 4], "once");
        // Numbers of elements that were never sent, or long gone, say nothing.
        assert!(!outbox.acknowledged(SeqNumber(4), NOW) && !outbox.acknowledged(SeqNumber(0), NOW));
        assert!(outbox.acknowledged(SeqNumber(3), NOW) && outbox.outstanding() == Awaited::Nothing);
        assert_eq!(outbox.next_number(), SeqNumber(3));
    }

    #[test]
    fn elements_are_taken_in_order_and_once() {
        let mut inbox = Inbox::new(SeqNumber(9));
        assert_eq!([9, 9, 11, 10].map(|number| inbox.take(SeqNumber(number))), [true, false, false, true]);
        assert!(inbox.due && inbox.expected() == SeqNumber(11));
    }
}
