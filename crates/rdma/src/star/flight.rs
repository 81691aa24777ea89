//! Packets in flight of one type, RDP or GD: loss detection, window and pacing.
//!
//! Each packet has a new sequence number, also a retransmission, so that an answer names the copy that it
//! answers. A copy counts as lost when later ones were answered, but may still arrive and overwrite newer
//! bytes. A lost RDP is therefore kept until it is answered after all or has certainly expired.

use std::collections::VecDeque;

use nichrome_wire::{Instant, SeqNumber};

use super::lifetime::Lifetime;
use super::pipeline::Transfer;
use super::server_clock::Expiration;
use super::timer::{Awaited, Expiry, RetransmissionTimer};
use crate::congestion::{Acknowledged, Control, Controller, Mark};
use crate::core::queue_pair::Settings;

/// Answers to later packets before one counts as lost (RFC 9002 section 6.1.1).
const REORDERED: u32 = 3;

/// Maximum number of copies in flight and lost copies together; at the maximum, no packet is sent.
const LIMIT: usize = 8192;

/// Maximum number of expired copies that are kept for late answers.
const MOST_EXPIRED: usize = 64;

/// Packets in a burst that pacing allows.
const BURST: u64 = 16;

/// Resolution of pacing, in nanoseconds: that of the timers.
const GRAIN: u64 = 20_000;

/// The side whose program posted a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    Client,
    Server,
}

/// The `nth` chunk of an initiator's pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkId {
    pub(super) initiator: Initiator,
    pub(super) nth: u64,
}

#[derive(Clone, Copy, Debug)]
struct SentCopy {
    chunk_id: ChunkId,
    at: Instant,
    /// Time by which it has certainly expired.
    gone: Instant,
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug)]
struct LostCopy {
    sequence: SeqNumber,
    chunk_id: ChunkId,
    sent: Instant,
    gone: Instant,
}

/// The packet that an answer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) chunk_id: ChunkId,
    /// When it was sent.
    pub(super) sent: Instant,
    /// It counted as lost: its chunk was queued for retransmission.
    pub(super) was_lost: bool,
}

/// Packets in flight of one type.
#[derive(Debug)]
pub(super) struct Flight {
    /// One for each sequence number from `first` on.
    copies: VecDeque<SentCopy>,
    first: SeqNumber,
    /// Copies that wait for an answer.
    waiting: u32,
    /// Lost copies that may still arrive. RDPs only: a late GD changes no memory.
    lost: VecDeque<LostCopy>,
    /// Copies that have certainly expired. If one was stored in time, its RA may be on its way.
    expired: VecDeque<(SeqNumber, ChunkId)>,
    transfer: Transfer,
    /// Chunks to retransmit.
    pub(super) retransmissions: VecDeque<ChunkId>,
    control: Control,
    pub(super) timer: RetransmissionTimer,
    /// Earliest departure of the next GD by pacing.
    free_at: Instant,
    /// The next packet may exceed the window.
    is_probing: bool,
    lifetime: Lifetime,
}

impl Flight {
    /// Creates the flight of packets from the sequence number `first` on.
    pub(super) fn new(first: SeqNumber, transfer: Transfer, control: Control) -> Self {
        Self {
            copies: VecDeque::new(),
            first,
            waiting: 0,
            lost: VecDeque::new(),
            expired: VecDeque::new(),
            transfer,
            retransmissions: VecDeque::new(),
            control,
            timer: RetransmissionTimer::default(),
            free_at: Instant::ZERO,
            is_probing: false,
            lifetime: Lifetime::default(),
        }
    }

    /// Returns the microseconds within which the next packet has to arrive.
    #[inline]
    pub(super) fn lifetime(&self) -> u32 {
        self.lifetime.micros(self.timer.spread())
    }

    /// Records that a packet that left at `sent` expired before it arrived.
    pub(super) fn missed(&mut self, sent: Instant, now: Instant) {
        self.lifetime.missed(sent, now);
    }

    /// Returns the number of the next packet.
    #[inline]
    pub(super) fn next(&self) -> SeqNumber {
        self.first + self.copies.len() as u32
    }

    /// Returns `Answer` if answers are outstanding.
    #[inline]
    pub(super) fn awaited(&self) -> Awaited {
        if self.waiting > 0 { Awaited::Answer } else { Awaited::Nothing }
    }

    /// Returns true if the window and [`LIMIT`] allow another packet. The window always allows one.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let full = self.copies.len() + self.lost.len() >= LIMIT;
        !full && (self.is_probing || self.waiting == 0 || self.waiting < self.control.window())
    }

    /// Returns the earliest departure of the next packet, by the congestion controller's rate and, for GDs,
    /// by pacing.
    #[inline]
    pub(super) fn departure(&self) -> Instant {
        self.control.departure().map_or(self.free_at, |departure| departure.max(self.free_at))
    }

    /// Updates the congestion controller's rate by the time that has passed.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) {
        self.control.advance(now);
    }

    /// Records a packet that left. `bytes` is the length of the datagram that carries its data: the RDP, or
    /// the SDP that the GD requests.
    #[inline]
    pub(super) fn packet_sent(
        &mut self,
        chunk_id: ChunkId,
        bytes: usize,
        expiration: &Expiration,
        settings: &Settings,
        now: Instant,
    ) {
        self.copies.push_back(SentCopy { chunk_id, at: now, gone: expiration.certain, is_waiting: true });
        self.waiting += 1;
        self.is_probing = false;
        self.timer.start(Awaited::Answer, settings, now);
        self.control.sent(bytes, now);
        if self.transfer == Transfer::FromServer {
            self.pace(now);
        }
    }

    /// Spreads a window of packets over three quarters of the round trip, in bursts of [`BURST`] or
    /// [`GRAIN`].
    fn pace(&mut self, now: Instant) {
        let Some(round_trip) = self.timer.round_trip() else { return };
        let interval = round_trip * 3 / 4 / u64::from(self.control.window().max(1));
        let ahead = (BURST * interval).max(GRAIN);
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(ahead));
        self.free_at = self.free_at.max(earliest).plus_nanos(interval);
    }

    /// Records the answer to the packet `sequence` and returns that packet; `None` if no answer was
    /// outstanding.
    pub(super) fn answered(&mut self, sequence: SeqNumber, mark: Mark, now: Instant) -> Option<Answered> {
        let index = usize::try_from(sequence.since(self.first)).ok();
        let copy = index.and_then(|index| self.copies.get_mut(index)).filter(|copy| copy.is_waiting);
        let Some(copy) = copy else { return self.lost_answered(sequence, now) };
        copy.is_waiting = false;
        let SentCopy { chunk_id, at: sent, .. } = *copy;
        self.waiting -= 1;
        self.timer.sample(now.nanos_since(sent));
        let next = self.next();
        self.control.acknowledged(&Acknowledged { sequence, packets: 1, next, mark, now });
        self.find_losses(sequence);
        self.trim();
        self.lifetime.met();
        Some(Answered { chunk_id, sent, was_lost: false })
    }

    fn lost_answered(&mut self, sequence: SeqNumber, now: Instant) -> Option<Answered> {
        let index = self.lost.iter().position(|copy| copy.sequence == sequence)?;
        let copy = self.lost.remove(index)?;
        self.timer.sample(now.nanos_since(copy.sent));
        Some(Answered { chunk_id: copy.chunk_id, sent: copy.sent, was_lost: true })
    }

    /// Declares packets lost that were sent [`REORDERED`] or more before an answered one.
    fn find_losses(&mut self, answered: SeqNumber) {
        let behind = answered.since(self.first).max(0).unsigned_abs();
        let count = behind.saturating_sub(REORDERED - 1) as usize;
        for index in 0..count.min(self.copies.len()) {
            if self.retransmit_at(index) {
                self.control.lost(self.first + index as u32, self.next());
            }
        }
    }

    /// Queues the chunk of the packet at `index` for retransmission. Returns false if it was answered.
    fn retransmit_at(&mut self, index: usize) -> bool {
        let Some(copy) = self.copies.get_mut(index).filter(|copy| copy.is_waiting) else { return false };
        copy.is_waiting = false;
        let SentCopy { chunk_id, at: sent, gone, .. } = *copy;
        let sequence = self.first + index as u32;
        self.waiting -= 1;
        self.retransmissions.push_back(chunk_id);
        if self.transfer == Transfer::ToServer {
            self.lost.push_back(LostCopy { sequence, chunk_id, sent, gone });
        }
        true
    }

    fn trim(&mut self) {
        while self.copies.front().is_some_and(|copy| !copy.is_waiting) {
            self.copies.pop_front();
            self.first += 1;
        }
    }

    /// Retransmits one packet, or all. A probe may exceed the window and does not reduce it (RFC 9002
    /// sections 6.2.4, 7.5).
    pub(super) fn retransmit(&mut self, expiry: Expiry) {
        match expiry {
            Expiry::Probe => {
                self.is_probing = !self.retransmissions.is_empty() || self.retransmit_at(0);
            }
            Expiry::Timeout | Expiry::Exhausted => {
                (0..self.copies.len()).for_each(|index| {
                    self.retransmit_at(index);
                });
                self.control.timed_out();
            }
        }
        self.trim();
    }

    /// Returns the time by which the oldest lost packet has certainly expired.
    pub(super) fn lost_until(&self) -> Option<Instant> {
        self.lost.front().map(|copy| copy.gone)
    }

    /// Removes a lost packet that has certainly expired.
    pub(super) fn expire(&mut self, now: Instant) -> Option<ChunkId> {
        self.lost_until().filter(|until| *until <= now)?;
        let LostCopy { sequence, chunk_id, .. } = self.lost.pop_front()?;
        if self.expired.len() == MOST_EXPIRED {
            self.expired.pop_front();
        }
        self.expired.push_back((sequence, chunk_id));
        Some(chunk_id)
    }

    /// Removes the expired packet `sequence` and returns its chunk.
    pub(super) fn expired_answered(&mut self, sequence: SeqNumber) -> Option<ChunkId> {
        let index = self.expired.iter().position(|(expired, _)| *expired == sequence)?;
        self.expired.remove(index).map(|(_, chunk_id)| chunk_id)
    }

    /// Drops all packets.
    pub(super) fn clear(&mut self) {
        self.first = self.next();
        self.copies.clear();
        self.lost.clear();
        self.expired.clear();
        self.retransmissions.clear();
        (self.waiting, self.is_probing) = (0, false);
        self.timer.stop();
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::rdma::PathMtu;
    use nichrome_wire::star::Stamp;

    use super::*;
    use crate::congestion::{Congestion, SendWindow};

    const NOW: Instant = Instant::ZERO;
    const FIRST: SeqNumber = SeqNumber(u32::MAX);
    const CHUNK: ChunkId = ChunkId { initiator: Initiator::Client, nth: 0 };

    fn flight(config: &SendWindow, packets: u32) -> Flight {
        let mut flight =
            Flight::new(FIRST, Transfer::ToServer, Control::new(&Congestion::Dctcp, config, FIRST));
        (0..packets).for_each(|_| send(&mut flight));
        flight
    }

    fn send(flight: &mut Flight) {
        let expiration = Expiration { stamp: Stamp(0), certain: Instant::from_nanos(100) };
        flight.packet_sent(CHUNK, 1024, &expiration, &Settings::new(PathMtu::B1024), NOW);
    }

    #[test]
    fn a_packet_is_lost_when_three_later_ones_were_answered() {
        let config = SendWindow::default();
        let mut flight = flight(&config, 5);
        let answered = |flight: &mut Flight, number: u32| {
            flight.answered(SeqNumber(number), Mark::Unmarked, NOW).is_some()
        };
        assert!(answered(&mut flight, 0) && answered(&mut flight, 1) && flight.retransmissions.is_empty());
        assert!(answered(&mut flight, 2) && flight.retransmissions.len() == 1);
        assert!(!answered(&mut flight, 2), "once");
        assert!(answered(&mut flight, u32::MAX) && !answered(&mut flight, u32::MAX), "late, once");
        assert!(!answered(&mut flight, 4), "never sent");
    }

    #[test]
    fn a_timer_may_fire_when_all_was_answered() {
        let config = SendWindow::default();
        let mut flight = flight(&config, 1);
        flight.retransmit(Expiry::Timeout);
        assert!(flight.answered(SeqNumber(u32::MAX), Mark::Unmarked, NOW).is_some());
        flight.retransmissions.clear();
        flight.retransmit(Expiry::Probe);
        flight.retransmit(Expiry::Timeout);
        assert_eq!((flight.awaited(), flight.retransmissions.len()), (Awaited::Nothing, 0));
    }

    #[test]
    fn a_probe_leaves_although_the_window_is_full_and_does_not_change_it() {
        let config = SendWindow { initial: 8, max: 8, read: 1 };
        let mut flight = flight(&config, 8);
        flight.retransmit(Expiry::Probe);
        assert!(flight.has_room() && flight.control.window() == 8);
        send(&mut flight);
        flight.retransmissions.clear();
        // The second and the third are lost, the window is halved, and nothing else arrives.
        flight.answered(SeqNumber(4), Mark::Unmarked, NOW);
        assert!(!flight.has_room() && !flight.retransmissions.is_empty());
        let size = flight.control.window();
        flight.retransmit(Expiry::Probe);
        assert!(flight.has_room() && flight.control.window() == size);
        send(&mut flight);
        assert!(!flight.has_room());
    }

    #[test]
    fn lost_copies_are_kept_for_their_lifetime() {
        let mut flight = flight(&SendWindow::default(), 1);
        flight.retransmit(Expiry::Probe);
        assert_eq!(flight.lost_until(), Some(Instant::from_nanos(100)));
        assert_eq!(flight.expire(Instant::from_nanos(99)), None);
        assert_eq!(flight.expired_answered(FIRST), None);
        assert_eq!(flight.expire(Instant::from_nanos(100)), Some(CHUNK));
        assert_eq!(flight.expire(Instant::from_nanos(100)), None);
        assert_eq!(flight.expired_answered(FIRST), Some(CHUNK), "stored in time, answered late");
        assert_eq!(flight.expired_answered(FIRST), None, "once");
    }
}
