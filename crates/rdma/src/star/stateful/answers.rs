//! Answers of the server's card: RAs and SDPs.

use nichrome_wire::star::{Flags, Reason, Repr, Stamp};
use nichrome_wire::{Ecn, Instant, SeqNumber};

use super::Stateful;
use crate::congestion::Mark;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::star::flight::{Answered, ChunkId, Initiator};
use crate::star::packet::Incoming;
use crate::star::pipeline::Transfer;

/// An answer of the server's card to the RDP or GD with this sequence number, with the payload of an SDP.
struct Answer<'a> {
    sequence: SeqNumber,
    mark: Mark,
    outcome: Result<&'a [u8], Reason>,
}

impl Stateful {
    /// Handles the answer of the server's card to an RDP or GD. Returns the packet's chunk if it ends the
    /// wait for it.
    fn answered<M: Memory>(
        &mut self,
        transfer: Transfer,
        answer: &Answer<'_>,
        clock: Stamp,
        verbs: &mut Verbs<M>,
    ) -> Option<ChunkId> {
        let Answer { sequence, mark, outcome } = *answer;
        let Some(Answered { chunk_id, sent, was_lost }) =
            self.flight_mut(transfer).answered(sequence, mark, verbs.now)
        else {
            let stored = outcome.ok().and_then(|_| self.flight_mut(transfer).expired_answered(sequence));
            match stored {
                Some(chunk_id) => self.pipeline_mut(chunk_id.initiator).stored_in_time(chunk_id.nth),
                None => verbs.counters.dropped_stale += 1,
            }
            return stored;
        };
        self.clock.answered(clock, sent, verbs.now);
        if outcome == Err(Reason::Lease)
            && let Some(lease) = &mut self.lease
        {
            lease.refused(sent);
        }
        let must_repeat = match outcome {
            Ok(_) => false,
            Err(Reason::Expired | Reason::Lease) => true,
            // The card refuses the grants of a closed connection.
            Err(_) if self.is_closed => true,
            // If the card has executed another copy, the server's program may have deregistered the memory
            // since.
            Err(_) => self.pipeline(chunk_id.initiator).has_other_copies(chunk_id.nth),
        };
        if must_repeat {
            let flight = self.flight_mut(transfer);
            if outcome == Err(Reason::Expired) {
                flight.missed(sent, verbs.now);
            }
            if !was_lost {
                flight.retransmissions.push_back(chunk_id);
            }
            self.pipeline_mut(chunk_id.initiator).copy_gone(chunk_id.nth);
            return None;
        }
        self.chunk_answered(chunk_id, outcome, verbs);
        Some(chunk_id)
    }

    /// Handles an RA: those of the 16 RDPs before its own that `before` names were stored, too.
    pub(super) fn acknowledged<M: Memory>(
        &mut self,
        packet: &Incoming<'_>,
        outcome: Result<u16, Reason>,
        verbs: &mut Verbs<M>,
    ) {
        let Repr { sequence, flags, stamp, .. } = packet.repr;
        let mark = Mark::from(flags.contains(Flags::ECN_ECHO));
        let before = outcome.unwrap_or(0);
        let mut last = None;
        for distance in (1..=u16::BITS).rev().filter(|distance| before >> (distance - 1) & 1 == 1) {
            let stored = Answer { sequence: sequence - distance, mark, outcome: Ok(&[]) };
            last = self.answered(Transfer::ToServer, &stored, stamp, verbs).or(last);
        }
        let answer = Answer { sequence, mark, outcome: outcome.map(|_| packet.payload) };
        last = self.answered(Transfer::ToServer, &answer, stamp, verbs).or(last);
        if let Some(last) = last {
            for initiator in [Initiator::Client, Initiator::Server] {
                let of_this = (last.initiator == initiator && outcome.is_ok()).then_some(last.nth);
                self.pipeline_mut(initiator).stored_last(of_this, stamp);
            }
            self.progress(Transfer::ToServer, verbs.now);
        }
    }

    /// Handles an SDP.
    pub(super) fn data_received<M: Memory>(
        &mut self,
        packet: &Incoming<'_>,
        outcome: Result<(), Reason>,
        verbs: &mut Verbs<M>,
    ) {
        let Repr { sequence, stamp, .. } = packet.repr;
        let mark = Mark::from(packet.ecn == Ecn::Ce);
        let answer = Answer { sequence, mark, outcome: outcome.map(|()| packet.payload) };
        if self.answered(Transfer::FromServer, &answer, stamp, verbs).is_some() {
            self.progress(Transfer::FromServer, verbs.now);
        }
    }

    /// Handles the answer to a chunk's packet.
    fn chunk_answered<M: Memory>(
        &mut self,
        chunk_id: ChunkId,
        outcome: Result<&[u8], Reason>,
        verbs: &mut Verbs<M>,
    ) {
        let Some(index) = self.pipeline(chunk_id.initiator).operation_of(chunk_id.nth) else { return };
        let landed = match outcome {
            // Another copy was executed. The server's program may have deregistered the memory since.
            _ if self.pipeline(chunk_id.initiator).is_done(chunk_id.nth) => Ok(()),
            Err(reason) => Err(self.refused(chunk_id, index, reason)),
            Ok(payload) => self.store_response(chunk_id, index, payload, verbs),
        };
        if let Err(failure) = landed {
            self.fail_operation(chunk_id.initiator, index, failure);
        }
        if !self.pipeline_mut(chunk_id.initiator).chunk_answered(chunk_id.nth) {
            verbs.counters.duplicates += 1;
        }
    }

    fn progress(&mut self, transfer: Transfer, now: Instant) {
        let settings = self.qp.settings;
        if self.is_closed {
            return;
        }
        let flight = self.flight_mut(transfer);
        let awaited = flight.awaited();
        flight.timer.progress(awaited, &settings, now);
    }
}
