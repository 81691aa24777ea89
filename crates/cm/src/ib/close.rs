//! The end of a connection: DREQ, DREP, REJ, and destruction by the program.

use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{
    CommId, Drep, Dreq, Mad, Message, PrivateData, Rej, RejMessage, RejectReason, TransactionId,
};
use nichrome_wire::rdma::QpNumber;

use super::connection::{Connection, Sent, State};
use super::connections::Connections;
use super::indication::Indication;
use super::message::{drep, swapped};

impl Connections {
    /// Sends a DREQ; no effect unless the connection is established.
    pub(crate) fn disconnect(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.get(id).filter(|connection| connection.state == State::Established)
        else {
            return;
        };
        let dreq = connection.dreq();
        self.set_state(id, State::DreqSent);
        self.send_repeated(id, dreq, now);
    }

    /// Returns the connections whose DREQ is not answered.
    pub(crate) fn unanswered_dreqs(&self) -> impl Iterator<Item = CommId> {
        self.all().filter(|connection| connection.state == State::DreqSent).map(|connection| connection.local)
    }

    /// Sends every unanswered DREQ once more, in addition to its retransmissions.
    pub(crate) fn repeat_dreqs(&mut self) {
        let unanswered: Vec<CommId> = self.unanswered_dreqs().collect();
        unanswered.into_iter().for_each(|id| self.send_again(id));
    }

    /// The connection that a DREQ names.
    fn named_by_dreq(&self, own: IpAddr, peer: IpAddr, dreq: &Dreq) -> Option<&Connection> {
        // The DREQ of a peer that disconnects at once may overtake its REP.
        let unnamed =
            || self.of_peer(dreq.ids.remote, own, peer).filter(|known| known.state == State::ReqSent);
        self.named(dreq.ids, own, peer).or_else(unnamed)
    }

    /// The queue pair whose connection a datagram ends: a DREQ that names the connection and its queue pair.
    /// `None` for other datagrams and for retransmissions.
    pub(crate) fn ended_by(&self, own: IpAddr, peer: IpAddr, payload: &[u8]) -> Option<QpNumber> {
        let Message::Dreq(dreq) = Mad::parse(payload).ok()?.message else { return None };
        let connection = self.named_by_dreq(own, peer, &dreq)?;
        let ends = dreq.remote_qp == connection.local_qp && connection.state != State::TimeWait;
        ends.then_some(connection.local_qp)
    }

    /// Handles a DREQ. The peer retransmits it until the DREP arrives, so a DREP is sent for unknown
    /// connections, too.
    pub(super) fn receive_dreq(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        transaction: TransactionId,
        dreq: &Dreq,
        now: Instant,
    ) -> Option<Indication> {
        let answer = Mad { transaction, message: drep(swapped(dreq.ids)) };
        let Some(connection) = self.named_by_dreq(own, peer, dreq) else {
            self.counters.unexpected += 1;
            self.transmit(own, peer, &answer);
            return None;
        };
        if dreq.remote_qp != connection.local_qp {
            self.counters.unexpected += 1;
            return None;
        }
        let (id, owner) = (connection.local, connection.owner);
        match connection.state {
            State::ReqSent | State::RepReceived | State::RepSent | State::Established | State::DreqSent => {
                self.transmit(own, peer, &answer);
                self.enter_time_wait(id, now);
                Some(Indication::Disconnected(owner?))
            }
            State::TimeWait => {
                self.counters.duplicates += 1;
                self.transmit(own, peer, &answer);
                None
            }
            _ => {
                self.counters.unexpected += 1;
                None
            }
        }
    }

    /// Handles a DREP.
    pub(super) fn receive_drep(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        drep: &Drep,
        now: Instant,
    ) -> Option<Indication> {
        let connection =
            self.named(drep.ids, own, peer).filter(|connection| connection.state == State::DreqSent);
        let Some((id, owner)) = connection.map(|connection| (connection.local, connection.owner)) else {
            self.counters.unexpected += 1;
            return None;
        };
        self.enter_time_wait(id, now);
        Some(Indication::Disconnected(owner?))
    }

    /// Handles a REJ.
    pub(super) fn receive_rej(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        rej: &Rej,
        now: Instant,
    ) -> Option<Indication> {
        let connection = match (rej.reason, rej.rejected) {
            // The peer gave up on its REQ; it may not know this end's identifier.
            (RejectReason::TIMEOUT, _) => self
                .of_remote(peer, rej.ids.local)
                .filter(|connection| connection.own_address == own)
                .filter(|connection| [CommId::NONE, connection.local].contains(&rej.ids.remote)),
            (_, RejMessage::Req) => self
                .of_peer(rej.ids.remote, own, peer)
                .filter(|connection| connection.state == State::ReqSent),
            (_, RejMessage::Rep | RejMessage::Other) => self.named(rej.ids, own, peer),
        };
        let Some((id, owner, state)) =
            connection.map(|connection| (connection.local, connection.owner, connection.state))
        else {
            self.counters.unexpected += 1;
            return None;
        };
        match state {
            State::ReqSent if rej.reason != RejectReason::STALE => self.remove(id),
            // A retransmitted REQ may still be in flight, and is not a new one.
            State::ReqSent
            | State::ReqReceived
            | State::RepSent
            | State::RepReceived
            | State::Established => self.enter_time_wait(id, now),
            State::DreqSent => {
                self.enter_time_wait(id, now);
                return Some(Indication::Disconnected(owner?));
            }
            _ => {
                self.counters.unexpected += 1;
                return None;
            }
        }
        Some(Indication::Rejected(owner?, Box::new(*rej)))
    }

    /// Rejects a connection for its program, which destroys it; returns false if there is nothing to reject.
    pub(crate) fn reject(
        &mut self,
        id: CommId,
        reason: RejectReason,
        private_data: PrivateData<148>,
        now: Instant,
    ) -> bool {
        let Some(connection) = self.get(id) else { return false };
        let (state, rej) = (connection.state, connection.rej(reason, private_data));
        match state {
            State::ReqReceived => self.refuse_repeatedly(id, rej, now),
            State::RepSent => {
                self.send(id, rej);
                self.abandon(id, now);
            }
            State::ReqSent | State::RepReceived => {
                self.send(id, rej);
                self.remove(id);
            }
            _ => return false,
        }
        true
    }

    /// Rejects a request, and answers its retransmissions with the same REJ.
    fn refuse_repeatedly(&mut self, id: CommId, answer: Message, now: Instant) {
        self.send(id, answer);
        self.set_state(id, State::Refused);
        self.linger(id, answer, now);
    }

    /// Keeps an answer for retransmission, without an owner.
    pub(super) fn linger(&mut self, id: CommId, answer: Message, now: Instant) {
        let until = now.plus_nanos(self.config.linger);
        let Some(connection) = self.get_mut(id) else { return };
        let mad = Mad { transaction: connection.transaction, message: answer };
        connection.sent = Some(Box::new(Sent { mad, retries: 0, is_acknowledged: true }));
        self.release_qp(id);
        self.set_deadline(id, Some(until));
        self.disown(id);
    }

    /// Disconnects, without an owner, from a peer that may consider the connection established.
    pub(super) fn abandon(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.get(id) else { return };
        let dreq = connection.dreq();
        self.set_state(id, State::DreqSent);
        self.send_repeated(id, dreq, now);
        self.disown(id);
    }

    /// Ends a connection whose program destroys its identifier.
    pub(crate) fn release(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.get(id) else { return };
        match connection.state {
            State::ReqSent => {
                let rej = connection.timed_out(self.guid);
                self.send(id, rej);
                self.remove(id);
            }
            State::ReqReceived | State::RepReceived | State::RepSent => {
                self.reject(id, RejectReason::CONSUMER, PrivateData::default(), now);
            }
            State::Established => self.abandon(id, now),
            State::SidrReqReceived => self.reject_sidr(id, &[], now),
            State::SidrReqSent => self.remove(id),
            State::DreqSent | State::TimeWait | State::Refused | State::SidrAnswered => self.disown(id),
        }
    }
}
