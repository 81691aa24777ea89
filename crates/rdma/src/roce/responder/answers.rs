//! The queue of answers to send.
//!
//! READ responses and results of atomics leave first, in the order of the requests: each acknowledges all
//! before it. A FLUSH or an ATOMIC WRITE is answered by an empty READ response. Then one ACK acknowledges
//! everything that has arrived: if the driver receives a batch before it sends, one ACK covers the batch.
//! While the congestion controller's rate delays data, the ACK behind it waits too.

use std::collections::VecDeque;

use nichrome_wire::rdma::{
    Aeth, Credit, Message, Msn, NakCode, Psn, RKey, RcMessage, ReadResponse, Reth, Syndrome,
};

use super::super::packet::{Cause, Outgoing, PayloadSource};
use crate::core::kind;
use crate::core::slab::Handle;

/// A queued ACK or NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acknowledgement {
    /// ACK of all that was received.
    Positive,
    /// NAK of this packet: all before it was received.
    Negative(Psn, Syndrome),
}

/// A READ response or the result of an atomic, kept after it was sent: the peer may retransmit its request.
#[derive(Clone, Copy, Debug)]
struct DataAnswer {
    /// PSN of the request, and of the first packet of the answer.
    first: Psn,
    kind: DataKind,
    /// Packets of the answer.
    packets: u32,
    /// Index of the first packet of the current transmission.
    start: u32,
    /// Index of the next packet to send.
    next: u32,
    /// Index behind the last packet of the current transmission.
    end: u32,
    /// An earlier transmission of the answer is complete.
    has_left: bool,
}

impl DataAnswer {
    const fn new(first: Psn, kind: DataKind, packets: u32) -> Self {
        Self { first, kind, packets, start: 0, next: 0, end: packets, has_left: false }
    }

    /// Returns true if packets of the answer are still to be sent.
    const fn is_pending(&self) -> bool {
        self.next < self.end
    }

    /// Returns true if the answer was sent completely: the peer may have it, and may have sent a new request.
    const fn may_be_known(&self) -> bool {
        self.has_left || !self.is_pending()
    }
}

#[derive(Clone, Copy, Debug)]
enum DataKind {
    Read {
        domain: Handle<kind::Domain>,
        address: u64,
        rkey: RKey,
        len: u32,
    },
    Atomic {
        before: u64,
    },
    /// An empty READ response: a FLUSH or an ATOMIC WRITE is done.
    Empty,
}

/// The answers of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Answers {
    data: VecDeque<DataAnswer>,
    /// Entries of `data` that are not completely sent.
    pending: usize,
    acknowledgement: Option<Acknowledgement>,
    /// A CNP is queued.
    pub(super) notification: bool,
}

/// The peer has more READs and atomics outstanding than it was allowed.
#[derive(Debug)]
pub(super) struct TooMany;

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.pending == 0 && self.acknowledgement.is_none() && !self.notification
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops READ responses and results of atomics.
    pub(super) fn drop_data(&mut self) {
        self.data.clear();
        self.pending = 0;
    }

    fn push(&mut self, answer: DataAnswer, limit: usize) -> Result<(), TooMany> {
        if self.data.len() >= limit {
            // An unsent repetition is obsolete: the new request implies that the peer has the answer.
            let oldest = self.data.pop_front_if(|oldest| oldest.may_be_known()).ok_or(TooMany)?;
            self.pending -= usize::from(oldest.is_pending());
        }
        self.data.push_back(answer);
        self.pending += 1;
        Ok(())
    }

    pub(super) fn push_read(
        &mut self,
        psn: Psn,
        reth: &Reth,
        domain: Handle<kind::Domain>,
        packets: u32,
        limit: usize,
    ) -> Result<(), TooMany> {
        let kind = DataKind::Read { domain, address: reth.va, rkey: reth.rkey, len: reth.len };
        self.push(DataAnswer::new(psn, kind, packets), limit)
    }

    pub(super) fn push_atomic(&mut self, psn: Psn, before: u64, limit: usize) -> Result<(), TooMany> {
        self.push_whole(psn, DataKind::Atomic { before }, limit)
    }

    pub(super) fn push_empty(&mut self, psn: Psn, limit: usize) -> Result<(), TooMany> {
        self.push_whole(psn, DataKind::Empty, limit)
    }

    /// Adds an answer of one packet.
    fn push_whole(&mut self, psn: Psn, kind: DataKind, limit: usize) -> Result<(), TooMany> {
        self.push(DataAnswer::new(psn, kind, 1), limit)
    }

    /// Returns true if another answer can be kept. The responder executes an atomic only then.
    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.data.len() < limit || self.data.front().is_some_and(DataAnswer::may_be_known)
    }

    /// Drops answers of requests more than 2^23 packets before `expected`: the peer uses their PSNs again.
    #[inline]
    pub(super) fn drop_old(&mut self, expected: Psn) {
        while let Some(oldest) = self.data.pop_front_if(|oldest| oldest.first.after(expected)) {
            self.pending -= usize::from(oldest.is_pending());
        }
    }

    /// Returns the index of the newest answer that has a packet with this PSN.
    fn position(&self, psn: Psn) -> Option<usize> {
        self.data.iter().rposition(|answer| {
            let ahead = psn.since(answer.first);
            ahead >= 0 && ahead.unsigned_abs() < answer.packets
        })
    }

    fn send_again(&mut self, index: usize, start: u32, end: u32) {
        let answer = &mut self.data[index];
        answer.has_left |= !answer.is_pending();
        self.pending += usize::from(!answer.is_pending());
        (answer.start, answer.next, answer.end) = (start, start, end);
    }

    /// Answers a retransmitted READ, or a part of it (IBA 9.7.1.2.1). Returns false if it is not a
    /// retransmission.
    pub(super) fn repeat_read(&mut self, psn: Psn, reth: &Reth, mtu: u32) -> bool {
        let Some(index) = self.position(psn) else { return false };
        let answer = &self.data[index];
        let DataKind::Read { address, rkey, len, .. } = answer.kind else { return false };
        let start = psn.since(answer.first).max(0).unsigned_abs();
        let offset = start.saturating_mul(mtu);
        let same = reth.rkey == rkey
            && reth.va == address.wrapping_add(u64::from(offset))
            && u64::from(offset) + u64::from(reth.len) <= u64::from(len);
        let end = start + reth.len.div_ceil(mtu).max(1);
        // A part that ends before the whole does must end between packets.
        let is_rest = u64::from(offset) + u64::from(reth.len) == u64::from(len);
        let whole_packets = is_rest || reth.len.is_multiple_of(mtu);
        if same && whole_packets && end <= answer.packets {
            self.send_again(index, start, end);
        }
        same
    }

    /// Retransmits the answer of an atomic, a FLUSH or an ATOMIC WRITE, without executing it again. Returns
    /// false if no such answer is kept.
    pub(super) fn repeat_whole(&mut self, psn: Psn) -> bool {
        let Some(index) = self.position(psn) else { return false };
        let known = !matches!(self.data[index].kind, DataKind::Read { .. });
        if known {
            self.send_again(index, 0, 1);
        }
        known
    }

    /// Records that a packet of the answer at `index` was sent.
    pub(super) fn data_sent(&mut self, index: usize) {
        if let Some(answer) = self.data.get_mut(index) {
            answer.next += 1;
            self.pending -= usize::from(!answer.is_pending());
        }
    }
}

/// The responder's state when an answer is built.
#[derive(Clone, Copy)]
pub(super) struct Position {
    /// The expected PSN.
    pub(super) expected: Psn,
    /// Number of completed messages.
    pub(super) msn: Msn,
    /// Payload bytes of a full packet.
    pub(super) mtu: u32,
}

impl Position {
    fn positive(&self) -> Aeth {
        Aeth { syndrome: Syndrome::Ack(Credit::UNLIMITED), msn: self.msn }
    }

    fn negative(&self, syndrome: Syndrome) -> Aeth {
        Aeth { syndrome, msn: self.msn }
    }
}

/// Returns a packet without payload.
fn plain(message: Message, psn: Psn, cause: Cause) -> Outgoing {
    let (ack_request, solicited, payload, payload_len) = (false, false, PayloadSource::Nothing, 0);
    Outgoing { message, psn, ack_request, solicited, payload, payload_len, cause }
}

impl Answers {
    /// Returns the next packet that precedes any acknowledgement: a CNP, data unless it is paced, or the
    /// selective NAK of `missing`.
    #[inline]
    pub(super) fn next(&self, position: Position, is_paced: bool, missing: Option<Psn>) -> Option<Outgoing> {
        if self.notification {
            return Some(plain(Message::CongestionNotification, Psn::new(0), Cause::Notification));
        }
        if self.pending > 0 && !is_paced {
            let index = self.data.iter().position(DataAnswer::is_pending)?;
            return Some(self.data_packet(index, position));
        }
        let psn = missing?;
        let aeth = position.negative(Syndrome::Nak(NakCode::PsnSequence));
        Some(plain(Message::Rc(RcMessage::Acknowledge(aeth)), psn, Cause::Missing))
    }

    /// Returns the queued ACK or NAK, unless data must be sent before it.
    #[inline]
    pub(super) fn acknowledgement(&self, position: Position) -> Option<Outgoing> {
        if self.pending > 0 {
            return None;
        }
        let (psn, aeth) = match self.acknowledgement? {
            Acknowledgement::Positive => (position.expected.previous(), position.positive()),
            Acknowledgement::Negative(psn, syndrome) => (psn, position.negative(syndrome)),
        };
        Some(plain(Message::Rc(RcMessage::Acknowledge(aeth)), psn, Cause::Acknowledgement))
    }

    fn data_packet(&self, index: usize, position: Position) -> Outgoing {
        let answer = &self.data[index];
        let (aeth, mtu) = (position.positive(), position.mtu);
        let psn = answer.first + answer.next;
        let cause = Cause::Data { index };
        match answer.kind {
            DataKind::Atomic { before } => {
                plain(Message::Rc(RcMessage::AtomicAcknowledge(aeth, before)), psn, cause)
            }
            DataKind::Empty => {
                plain(Message::Rc(RcMessage::ReadResponse(ReadResponse::Only(aeth))), psn, cause)
            }
            DataKind::Read { domain, address, rkey, len } => {
                let offset = answer.next * mtu;
                let payload_len = (len - offset).min(mtu) as usize;
                let part = match (answer.next == answer.start, answer.next + 1 == answer.end) {
                    (true, false) => ReadResponse::First(aeth),
                    (true, true) => ReadResponse::Only(aeth),
                    (false, false) => ReadResponse::Middle,
                    (false, true) => ReadResponse::Last(aeth),
                };
                let payload =
                    PayloadSource::Remote { domain, address: address.wrapping_add(u64::from(offset)), rkey };
                let message = Message::Rc(RcMessage::ReadResponse(part));
                Outgoing { payload, payload_len, ..plain(message, psn, cause) }
            }
        }
    }

    /// Queues an ACK, unless an ACK or NAK is queued already.
    pub(super) fn acknowledge(&mut self) {
        self.acknowledgement.get_or_insert(Acknowledgement::Positive);
    }

    /// Queues a NAK in place of a queued ACK or NAK.
    pub(super) fn refuse(&mut self, psn: Psn, syndrome: Syndrome) {
        self.acknowledgement = Some(Acknowledgement::Negative(psn, syndrome));
    }

    /// Records an executed request; `asks` is true if it requests an acknowledgement. Returns true if this
    /// queues an ACK.
    #[inline]
    pub(super) fn request_done(&mut self, asks: bool) -> bool {
        match self.acknowledgement {
            // Packets were reordered, not lost: the NAK is void.
            Some(Acknowledgement::Negative(..)) => self.acknowledgement = Some(Acknowledgement::Positive),
            None if asks => {
                self.acknowledgement = Some(Acknowledgement::Positive);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Records that the acknowledgement was sent, by itself or by a response.
    pub(super) fn acknowledged(&mut self) {
        self.acknowledgement = None;
    }

    #[inline]
    pub(super) fn is_positive(&self) -> bool {
        self.acknowledgement == Some(Acknowledgement::Positive)
    }

    pub(super) fn is_rnr_nak(&self) -> bool {
        matches!(self.acknowledgement, Some(Acknowledgement::Negative(_, Syndrome::RnrNak(_))))
    }

    /// Returns true if an ACK is queued and nothing else.
    #[inline]
    pub(super) fn is_only_acknowledgement(&self) -> bool {
        self.is_positive() && !self.notification && self.pending == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4;

    /// The value that the next answer to an atomic carries.
    fn next_value(answers: &Answers) -> Option<u64> {
        let position = Position { expected: Psn::new(0), msn: Msn::new(0), mtu: 256 };
        match answers.next(position, false, None)?.message {
            Message::Rc(RcMessage::AtomicAcknowledge(_, before)) => Some(before),
            _ => None,
        }
    }

    #[test]
    fn a_repeated_atomic_gets_the_newest_answer_of_its_number() {
        let mut answers = Answers::default();
        for before in [1, 2] {
            answers.push_atomic(Psn::new(5), before, LIMIT).unwrap();
            answers.data_sent(answers.data.len() - 1);
        }
        assert!(answers.is_empty() && answers.repeat_whole(Psn::new(5)));
        assert_eq!(next_value(&answers), Some(2));
    }

    #[test]
    fn an_answer_is_dropped_when_its_number_is_more_than_half_the_numbers_behind() {
        const HALF: u32 = 1 << 23;
        let mut answers = Answers::default();
        let first = Psn::new(5);
        answers.push_atomic(first, 1, LIMIT).unwrap();
        answers.push_atomic(first.next(), 2, LIMIT).unwrap();
        answers.drop_old(first + HALF);
        assert_eq!((answers.data.len(), next_value(&answers)), (2, Some(1)));
        answers.drop_old(first.next() + HALF);
        assert_eq!((answers.data.len(), next_value(&answers)), (1, Some(2)));
        answers.drop_old(first + HALF + 2);
        assert!(answers.data.is_empty() && answers.is_empty());
    }
}
