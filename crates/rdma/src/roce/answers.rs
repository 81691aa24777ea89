//! Answers that wait to leave.
//!
//! Data of READs and results of atomics leave first, in the order of the requests: each acknowledges all that was before
//! it. Then one acknowledgement stands for all that arrived until now: a driver that takes in a batch before it sends has
//! them coalesced.

use std::collections::VecDeque;

use nichrome_wire::Instant;
use nichrome_wire::rdma::{
    Aeth, Credit, Message, Msn, NakCode, Psn, RKey, RcMessage, ReadResponse, Reth, Syndrome,
};

use super::connection::Connection;
use super::packet::{Cause, Outgoing, PayloadSource};
use super::responder::Responder;
use crate::qp::attributes::{QpState, QpType};

/// What the peer is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    /// All that was received.
    Positive,
    /// All before this was received, and this is wrong.
    Negative(Psn, Syndrome),
}

/// Data or a result for the peer, kept after it was sent: the peer may ask again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataAnswer {
    /// The number of the request, and of the first packet of the answer.
    first: Psn,
    kind: DataKind,
    /// Packets of the answer.
    packets: u32,
    /// The packet at which this sending of the answer started.
    start: u32,
    /// The packet that leaves next.
    next: u32,
    /// The packet before which this sending of the answer ends.
    end: u32,
}

#[derive(Clone, Copy, Debug)]
enum DataKind {
    Read { address: u64, rkey: RKey, len: u32 },
    Atomic { before: u64 },
}

/// The answers of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    data: VecDeque<DataAnswer>,
    /// How many of `data` are not all sent.
    pending: usize,
    pub(crate) acknowledgement: Option<Acknowledgement>,
    /// The peer is to be told that a packet of its was marked.
    pub(crate) notification: bool,
}

/// The peer has more READs and atomics outstanding than it was allowed.
#[derive(Debug)]
pub(crate) struct TooMany;

impl Answers {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == 0 && self.acknowledgement.is_none() && !self.notification
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets data that is not sent yet.
    pub(crate) fn drop_data(&mut self) {
        self.data.clear();
        self.pending = 0;
    }

    fn push(&mut self, answer: DataAnswer, limit: usize) -> Result<(), TooMany> {
        if self.data.len() >= limit {
            let sent = self.data.front().is_some_and(|oldest| oldest.next == oldest.end);
            if !sent {
                return Err(TooMany);
            }
            self.data.pop_front();
        }
        self.data.push_back(answer);
        self.pending += 1;
        Ok(())
    }

    pub(crate) fn push_read(
        &mut self,
        psn: Psn,
        reth: &Reth,
        packets: u32,
        limit: usize,
    ) -> Result<(), TooMany> {
        let kind = DataKind::Read { address: reth.va, rkey: reth.rkey, len: reth.len };
        self.push(DataAnswer { first: psn, kind, packets, start: 0, next: 0, end: packets }, limit)
    }

    pub(crate) fn push_atomic(&mut self, psn: Psn, before: u64, limit: usize) -> Result<(), TooMany> {
        let kind = DataKind::Atomic { before };
        self.push(DataAnswer { first: psn, kind, packets: 1, start: 0, next: 0, end: 1 }, limit)
    }

    /// Whether an atomic could be answered: it must not be done otherwise.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        self.data.len() < limit || self.data.front().is_some_and(|oldest| oldest.next == oldest.end)
    }

    fn position(&self, psn: Psn) -> Option<usize> {
        self.data.iter().position(|answer| {
            let ahead = psn.since(answer.first);
            ahead >= 0 && ahead.unsigned_abs() < answer.packets
        })
    }

    fn send_again(&mut self, index: usize, start: u32, end: u32) {
        let answer = &mut self.data[index];
        self.pending += usize::from(answer.next == answer.end);
        (answer.start, answer.next, answer.end) = (start, start, end);
    }

    /// Answers a READ once more, or a part of it (IBA 9.7.1.2.1); false where it is none that was asked before.
    pub(crate) fn repeat_read(&mut self, psn: Psn, reth: &Reth, mtu: u32) -> bool {
        let Some(index) = self.position(psn) else { return false };
        let answer = &self.data[index];
        let DataKind::Read { address, rkey, len } = answer.kind else { return false };
        let start = psn.since(answer.first).max(0).unsigned_abs();
        let offset = start.saturating_mul(mtu);
        let same = reth.rkey == rkey
            && reth.va == address.wrapping_add(u64::from(offset))
            && u64::from(offset) + u64::from(reth.len) <= u64::from(len);
        let end = start + reth.len.div_ceil(mtu).max(1);
        // A part that ends before the whole does must end between packets.
        let whole_packets = offset + reth.len == len || reth.len.is_multiple_of(mtu);
        if same && whole_packets && end <= answer.packets {
            self.send_again(index, start, end);
        }
        same
    }

    /// Answers an atomic once more, without doing it again.
    pub(crate) fn repeat_atomic(&mut self, psn: Psn) -> bool {
        let Some(index) = self.position(psn) else { return false };
        let known = matches!(self.data[index].kind, DataKind::Atomic { .. });
        if known {
            self.send_again(index, 0, 1);
        }
        known
    }

    fn data_sent(&mut self, index: usize) {
        if let Some(answer) = self.data.get_mut(index) {
            answer.next += 1;
            self.pending -= usize::from(answer.next == answer.end);
        }
    }
}

/// A packet that says nothing but that there was congestion.
fn plain() -> Outgoing {
    Outgoing {
        message: Message::CongestionNotification,
        psn: Psn::new(0),
        ack_request: false,
        solicited: false,
        payload: PayloadSource::Nothing,
        payload_len: 0,
        cause: Cause::Notification,
    }
}

impl Connection {
    /// The answer that is to leave next.
    #[inline]
    pub(super) fn next_answer(&self, now: Instant) -> Option<Outgoing> {
        let answers = &self.responder.answers;
        let missing = self.responder.reorder.missing.front();
        if answers.is_empty() && missing.is_none() {
            return None;
        }
        let plain = plain();
        if answers.notification {
            return Some(plain);
        }
        if answers.pending > 0 {
            let waiting = |answer: &DataAnswer| answer.next < answer.end;
            let index = answers.data.iter().position(waiting)?;
            return Some(self.data_packet(index, plain));
        }
        if let Some(psn) = missing {
            let syndrome = Syndrome::Nak(NakCode::PsnSequence);
            let message = Message::Rc(RcMessage::Acknowledge(Aeth { syndrome, msn: self.responder.msn }));
            return Some(Outgoing { message, psn: *psn, cause: Cause::Missing, ..plain });
        }
        if self.is_holding(now) { None } else { self.acknowledgement() }
    }

    /// Whether an acknowledgement is all that there is to answer, and waits.
    #[inline]
    pub(crate) fn is_holding(&self, now: Instant) -> bool {
        let Responder { answers, reorder, conversation, .. } = &self.responder;
        conversation.held(now).is_some()
            && answers.acknowledgement == Some(Acknowledgement::Positive)
            && !answers.notification
            && answers.pending == 0
            && reorder.missing.is_empty()
    }

    /// The acknowledgement that is to leave, whether it waits or not.
    #[inline]
    pub(crate) fn acknowledgement(&self) -> Option<Outgoing> {
        let (psn, syndrome) = match self.responder.answers.acknowledgement? {
            Acknowledgement::Positive => {
                (self.responder.expected.previous(), Syndrome::Ack(Credit::UNLIMITED))
            }
            Acknowledgement::Negative(psn, syndrome) => (psn, syndrome),
        };
        let message = Message::Rc(RcMessage::Acknowledge(Aeth { syndrome, msn: self.responder.msn }));
        Some(Outgoing { message, psn, cause: Cause::Acknowledgement, ..plain() })
    }

    fn data_packet(&self, index: usize, plain: Outgoing) -> Outgoing {
        let answer = &self.responder.answers.data[index];
        let aeth = Aeth { syndrome: Syndrome::Ack(Credit::UNLIMITED), msn: self.responder.msn };
        let psn = answer.first + answer.next;
        let cause = Cause::Data { index };
        match answer.kind {
            DataKind::Atomic { before } => {
                let message = Message::Rc(RcMessage::AtomicAcknowledge(aeth, before));
                Outgoing { message, psn, cause, ..plain }
            }
            DataKind::Read { address, rkey, len } => {
                let offset = answer.next * self.qp.mtu() as u32;
                let payload_len = (len - offset).min(self.qp.mtu() as u32) as usize;
                let part = match (answer.next == answer.start, answer.next + 1 == answer.end) {
                    (true, false) => ReadResponse::First(aeth),
                    (true, true) => ReadResponse::Only(aeth),
                    (false, false) => ReadResponse::Middle,
                    (false, true) => ReadResponse::Last(aeth),
                };
                let payload =
                    PayloadSource::Remote { address: address.wrapping_add(u64::from(offset)), rkey };
                let message = Message::Rc(RcMessage::ReadResponse(part));
                Outgoing { message, psn, payload, payload_len, cause, ..plain }
            }
        }
    }

    /// The peer is to be told once more what has arrived, unless it is told something anyway.
    pub(crate) fn acknowledge_again(&mut self) {
        let Self { qp, responder, .. } = self;
        if qp.kind == QpType::Rc && qp.state != QpState::Err && responder.msn != Msn::new(0) {
            responder.answers.acknowledgement.get_or_insert(Acknowledgement::Positive);
            responder.conversation.release();
        }
    }

    /// A packet with data has left. It acknowledges all that was received before it.
    pub(super) fn data_sent(&mut self, index: usize, psn: Psn) {
        let Responder { answers, conversation, expected, .. } = &mut self.responder;
        answers.data_sent(index);
        let covers_all = psn.next() == *expected;
        if covers_all && answers.acknowledgement == Some(Acknowledgement::Positive) {
            answers.acknowledgement = None;
            conversation.release();
        }
    }

    /// The memory of a READ is out of reach by now: the peer is told, and the queue pair is in error.
    pub(super) fn data_failed(&mut self, psn: Psn) {
        let answers = &mut self.responder.answers;
        answers.drop_data();
        let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
        answers.acknowledgement = Some(Acknowledgement::Negative(psn, syndrome));
    }
}
