//! RDPs, or GDs, that are on their way, and what became of them.
//!
//! Each sending has a number of its own, also when it repeats another: an answer then says which copy it answers, which
//! the card, that remembers nothing, cannot. A copy is taken for lost when later ones were answered; it may still arrive,
//! and write what memory must not hold any more by then. So a lost RDP is remembered until it is answered after all, or
//! until the network cannot hold it any longer.

use std::collections::VecDeque;

use nichrome_wire::{Instant, SeqNumber};

use super::shared::StarShared;
use super::timer::{Awaited, Expiry, RetransmissionTimer};
use crate::congestion::{Acknowledged, Control, Controller, Mark};
use crate::core::queue_pair::Settings;

/// Answers to later packets before one is taken for lost (RFC 9002 section 6.1.1).
const REORDERED: u32 = 3;

/// Copies that are remembered, at most.
const LIMIT: usize = 8192;

/// Packets that pacing lets out together.
const BURST: u64 = 16;

/// How exactly timers can pace, in nanoseconds.
const GRAIN: u64 = 20_000;

/// Whose work a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    Client,
    Server,
}

/// A chunk of an operation: whose, and which in the order of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) initiator: Initiator,
    pub(super) nth: u64,
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    place: Place,
    at: Instant,
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug)]
struct LostCopy {
    sequence: SeqNumber,
    place: Place,
    sent: Instant,
}

/// Whether a packet that was taken for lost is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It writes to the server's memory when it arrives.
    Remembered,
    /// It does no harm.
    Forgotten,
}

/// Packets of one kind on their way.
#[derive(Debug)]
pub(super) struct Flight {
    /// One for each number from `first` on.
    copies: VecDeque<Copy>,
    first: SeqNumber,
    /// How many of them wait for an answer.
    waiting: u32,
    lost: VecDeque<LostCopy>,
    losses: Lost,
    /// Chunks that are to be sent again.
    pub(super) repeats: VecDeque<Place>,
    control: Control,
    pub(super) timer: RetransmissionTimer,
    /// The next packet does not leave earlier.
    free_at: Instant,
    /// A packet is to leave whatever the window says.
    is_probing: bool,
}

impl Flight {
    pub(super) fn new(first: SeqNumber, losses: Lost, shared: &StarShared) -> Self {
        Self::with(Control::new(&shared.config.congestion, &shared.environment.window, first), first, losses)
    }

    fn with(control: Control, first: SeqNumber, losses: Lost) -> Self {
        Self {
            copies: VecDeque::new(),
            first,
            waiting: 0,
            lost: VecDeque::new(),
            losses,
            repeats: VecDeque::new(),
            control,
            timer: RetransmissionTimer::default(),
            free_at: Instant::ZERO,
            is_probing: false,
        }
    }

    /// The number of the next packet.
    #[inline]
    pub(super) fn next(&self) -> SeqNumber {
        self.first + self.copies.len() as u32
    }

    /// Whether answers are outstanding.
    #[inline]
    pub(super) fn awaited(&self) -> Awaited {
        if self.waiting > 0 { Awaited::Answer } else { Awaited::Nothing }
    }

    /// Whether the window and the bounds of memory let another packet out. There is always room for one.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let full = self.copies.len() + self.lost.len() >= LIMIT;
        !full && (self.is_probing || self.waiting == 0 || self.waiting < self.control.window())
    }

    /// When pacing lets the next packet out.
    #[inline]
    pub(super) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// A packet has left.
    #[inline]
    pub(super) fn packet_sent(&mut self, place: Place, settings: &Settings, now: Instant) {
        self.copies.push_back(Copy { place, at: now, is_waiting: true });
        self.waiting += 1;
        self.is_probing = false;
        self.timer.start(Awaited::Answer, settings, now);
        self.pace(now);
    }

    /// Packets are spread over three quarters of the round trip, but for a burst and what timers cannot tell apart.
    fn pace(&mut self, now: Instant) {
        let Some(round_trip) = self.timer.round_trip() else { return };
        let interval = round_trip * 3 / 4 / u64::from(self.control.window().max(1));
        let ahead = (BURST * interval).max(GRAIN);
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(ahead));
        self.free_at = self.free_at.max(earliest).plus_nanos(interval);
    }

    /// The packet `sequence` was answered: which chunk it was. `None` where nothing was waited for.
    pub(super) fn answered(&mut self, sequence: SeqNumber, mark: Mark, now: Instant) -> Option<Place> {
        let index = usize::try_from(sequence.since(self.first)).ok();
        let copy = index.and_then(|index| self.copies.get_mut(index)).filter(|copy| copy.is_waiting);
        let Some(copy) = copy else { return self.lost_answered(sequence, now) };
        copy.is_waiting = false;
        let Copy { place, at, .. } = *copy;
        self.waiting -= 1;
        self.timer.sample(now.nanos_since(at));
        let next = self.next();
        self.control.acknowledged(&Acknowledged { sequence, packets: 1, next, mark, now });
        self.find_losses(sequence);
        self.trim();
        Some(place)
    }

    fn lost_answered(&mut self, sequence: SeqNumber, now: Instant) -> Option<Place> {
        let index = self.lost.iter().position(|copy| copy.sequence == sequence)?;
        let copy = self.lost.remove(index)?;
        self.timer.sample(now.nanos_since(copy.sent));
        Some(copy.place)
    }

    /// What is far behind an answered packet is lost.
    fn find_losses(&mut self, answered: SeqNumber) {
        let behind = answered.since(self.first).max(0).unsigned_abs();
        let count = behind.saturating_sub(REORDERED - 1) as usize;
        for index in 0..count.min(self.copies.len()) {
            if self.repeat_at(index) {
                self.control.lost(self.first + index as u32, self.next());
            }
        }
    }

    /// The chunk of the packet at `index` is sent again, if that was not answered.
    fn repeat_at(&mut self, index: usize) -> bool {
        let Some(copy) = self.copies.get_mut(index).filter(|copy| copy.is_waiting) else { return false };
        copy.is_waiting = false;
        let (sequence, place, sent) = (self.first + index as u32, copy.place, copy.at);
        self.waiting -= 1;
        self.repeats.push_back(place);
        if self.losses == Lost::Remembered {
            self.lost.push_back(LostCopy { sequence, place, sent });
        }
        true
    }

    fn trim(&mut self) {
        while self.copies.front().is_some_and(|copy| !copy.is_waiting) {
            self.copies.pop_front();
            self.first += 1;
        }
    }

    /// The timer asks for it: one packet is sent again, or all are. A probe leaves although the window is full, of packets
    /// that may all be lost, and says nothing of congestion yet (RFC 9002 section 6.2.4, 7.5).
    pub(super) fn repeat(&mut self, expiry: Expiry) {
        match expiry {
            Expiry::Probe => {
                self.is_probing = !self.repeats.is_empty() || self.repeat_at(0);
            }
            Expiry::Timeout | Expiry::GivenUp => {
                (0..self.copies.len()).for_each(|index| {
                    self.repeat_at(index);
                });
                self.control.timed_out();
            }
        }
        self.trim();
    }

    /// When the network cannot hold the oldest lost packet any longer.
    pub(super) fn lost_until(&self, lifetime: u64) -> Option<Instant> {
        self.lost.front().map(|copy| copy.sent.plus_nanos(lifetime))
    }

    /// A lost packet that the network cannot hold any longer.
    pub(super) fn expired(&mut self, lifetime: u64, now: Instant) -> Option<Place> {
        self.lost_until(lifetime).filter(|until| *until <= now)?;
        self.lost.pop_front().map(|copy| copy.place)
    }

    /// Nothing is waited for any more.
    pub(super) fn clear(&mut self) {
        self.first = self.next();
        self.copies.clear();
        self.lost.clear();
        self.repeats.clear();
        (self.waiting, self.is_probing) = (0, false);
        self.timer.stop();
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::rdma::PathMtu;

    use super::*;
    use crate::congestion::{Congestion, SendWindow};

    const NOW: Instant = Instant::ZERO;
    const FIRST: SeqNumber = SeqNumber(u32::MAX);
    const PLACE: Place = Place { initiator: Initiator::Client, nth: 0 };

    fn flight(config: &SendWindow, packets: u32) -> Flight {
        let mut flight =
            Flight::with(Control::new(&Congestion::Dctcp, config, FIRST), FIRST, Lost::Remembered);
        let settings = Settings::new(PathMtu::B1024);
        (0..packets).for_each(|_| flight.packet_sent(PLACE, &settings, NOW));
        flight
    }

    #[test]
    fn a_packet_is_lost_when_three_later_ones_were_answered() {
        let config = SendWindow::default();
        let mut flight = flight(&config, 5);
        let answered = |flight: &mut Flight, number: u32| {
            flight.answered(SeqNumber(number), Mark::Unmarked, NOW).is_some()
        };
        assert!(answered(&mut flight, 0) && answered(&mut flight, 1) && flight.repeats.is_empty());
        assert!(answered(&mut flight, 2) && flight.repeats.len() == 1);
        assert!(!answered(&mut flight, 2), "once");
        assert!(answered(&mut flight, u32::MAX) && !answered(&mut flight, u32::MAX), "late, once");
        assert!(!answered(&mut flight, 4), "never sent");
    }

    #[test]
    fn a_timer_may_fire_when_all_was_answered() {
        let config = SendWindow::default();
        let mut flight = flight(&config, 1);
        flight.repeat(Expiry::Timeout);
        assert!(flight.answered(SeqNumber(u32::MAX), Mark::Unmarked, NOW).is_some());
        flight.repeats.clear();
        flight.repeat(Expiry::Probe);
        flight.repeat(Expiry::Timeout);
        assert_eq!((flight.awaited(), flight.repeats.len()), (Awaited::Nothing, 0));
    }

    #[test]
    fn a_probe_leaves_although_the_window_is_full_and_does_not_change_it() {
        let config = SendWindow { initial: 8, max: 8, read: 1 };
        let mut flight = flight(&config, 8);
        flight.repeat(Expiry::Probe);
        assert!(flight.has_room() && flight.control.window() == 8);
        flight.packet_sent(PLACE, &Settings::new(PathMtu::B1024), NOW);
        flight.repeats.clear();
        // The second is lost, the window halved, and nothing else arrives.
        flight.answered(SeqNumber(3), Mark::Unmarked, NOW);
        assert!(!flight.has_room() && !flight.repeats.is_empty());
        let size = flight.control.window();
        flight.repeat(Expiry::Probe);
        assert!(flight.has_room() && flight.control.window() == size);
        flight.packet_sent(PLACE, &Settings::new(PathMtu::B1024), NOW);
        assert!(!flight.has_room());
    }

    #[test]
    fn what_is_lost_is_remembered_for_its_lifetime() {
        let mut flight = flight(&SendWindow::default(), 1);
        flight.repeat(Expiry::Probe);
        assert_eq!(flight.lost_until(100), Some(Instant::from_nanos(100)));
        assert_eq!(flight.expired(100, Instant::from_nanos(99)), None);
        assert_eq!(flight.expired(100, Instant::from_nanos(100)), Some(PLACE));
        assert_eq!(flight.expired(100, Instant::from_nanos(100)), None);
    }
}
