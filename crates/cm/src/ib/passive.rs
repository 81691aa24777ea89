//! The listener's side: REQ, REP, RTU.

use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{
    CommId, CommIds, Gid, Mad, Message, MraMessage, PrivateData, PrivateDataError, Rej, RejMessage,
    RejectReason, Rep, Req, Rtu, TransactionId,
};
use nichrome_wire::rdma::QKey;

use super::connection::{Accept, Connection, State};
use super::connections::Connections;
use super::indication::{Indication, Request};
use super::message::{information, rej};
use crate::name::IdName;

impl Connections {
    /// Handles a REQ.
    pub(super) fn receive_req(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        transaction: TransactionId,
        req: &Req,
        now: Instant,
    ) -> Option<Indication> {
        if req.local == CommId::NONE {
            self.counters.malformed += 1;
            return None;
        }
        if let Some(known) = self.of_remote(peer, req.local).map(|known| known.local) {
            self.counters.duplicates += 1;
            self.answer_repeated_req(known);
            return None;
        }
        let request = Request { own_address: own, peer_address: peer, transaction, req: *req };
        if (req.primary.local_gid, req.primary.remote_gid) != (Gid::from(peer), Gid::from(own)) {
            self.refuse_request(&request, RejectReason::INVALID_GID);
            return None;
        }
        if req.path_mtu > self.config.max_path_mtu {
            let (information_len, information) = information(&[self.config.max_path_mtu as u8 + 1]);
            let rej = rej(ids_of(req), RejMessage::Req, RejectReason::INVALID_MTU);
            self.refuse(own, peer, Rej { information_len, information, ..rej });
            return None;
        }
        let stale =
            self.of_qp(peer, req.qp).filter(|other| other.remote_guid == req.guid).map(|other| other.local);
        if let Some(stale) = stale {
            self.refuse_request(&request, RejectReason::STALE);
            self.disconnect(stale, now);
            return None;
        }
        if !self.has_room_for(peer) {
            self.counters.half_open_dropped += 1;
            return None;
        }
        Some(Indication::Request(Box::new(request)))
    }

    fn answer_repeated_req(&mut self, id: CommId) {
        let Some(connection) = self.get(id) else { return };
        match connection.state {
            State::ReqReceived => {
                let mra = connection.mra(MraMessage::Req, self.config.service_timeout);
                self.send(id, mra);
            }
            State::Refused => self.send_again(id),
            State::TimeWait => {
                let ids = CommIds { local: CommId::NONE, remote: connection.remote };
                self.send(id, Message::Rej(rej(ids, RejMessage::Req, RejectReason::STALE)));
            }
            // The REP is retransmitted by its own timer.
            _ => {}
        }
    }

    /// Rejects a request without keeping state.
    pub(crate) fn refuse_request(&mut self, request: &Request, reason: RejectReason) {
        let rej = rej(ids_of(&request.req), RejMessage::Req, reason);
        self.refuse(request.own_address, request.peer_address, rej);
    }

    /// Sends a rejection that belongs to no connection.
    pub(super) fn refuse(&mut self, own: IpAddr, peer: IpAddr, rej: Rej) {
        self.counters.refused += 1;
        let transaction = TransactionId(u64::from(rej.ids.remote.0));
        self.transmit(own, peer, &Mad { transaction, message: Message::Rej(rej) });
    }

    /// Keeps a request for its listener's program.
    pub(crate) fn admit(&mut self, request: &Request, owner: IdName) -> CommId {
        let Request { own_address, peer_address, transaction, req } = request;
        let id = self.insert(Connection {
            transaction: *transaction,
            transport: req.transport,
            remote_guid: req.guid,
            sq_psn: req.psn,
            initiator_depth: req.responder_resources,
            responder_resources: req.initiator_depth,
            retry_count: req.retry_count,
            rnr_retry: req.rnr_retry,
            asked_rnr_retry: req.rnr_retry,
            ack_timeout: req.primary.ack_timeout,
            path_mtu: req.path_mtu,
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit,
            flow_label: req.primary.flow_label,
            ..Connection::new(State::ReqReceived, Some(owner), *own_address, *peer_address)
        });
        self.name_remote(id, req.local, req.qp);
        self.begin_half_open(id);
        id
    }

    /// Sends the REP; returns false if the connection does not wait for one.
    ///
    /// # Errors
    /// More private data than a REP holds.
    pub(crate) fn accept(
        &mut self,
        id: CommId,
        accept: &Accept<'_>,
        now: Instant,
    ) -> Result<bool, PrivateDataError> {
        let private_data = PrivateData::new(accept.private_data)?;
        let (guid, ack_delay) = (self.guid, self.config.ack_delay);
        let Some(connection) = self.get_mut(id).filter(|connection| connection.state == State::ReqReceived)
        else {
            return Ok(false);
        };
        connection.state = State::RepSent;
        connection.local_qp = accept.qp;
        connection.responder_resources = accept.responder_resources;
        connection.initiator_depth = accept.initiator_depth;
        let rep = Rep {
            ids: connection.ids(),
            ece: accept.ece,
            qkey: QKey(0),
            qp: accept.qp,
            psn: accept.psn,
            responder_resources: accept.responder_resources,
            initiator_depth: accept.initiator_depth,
            ack_delay,
            failover: 0,
            flow_control: accept.flow_control,
            rnr_retry: accept.rnr_retry.min(7),
            srq: accept.srq,
            guid,
            private_data,
        };
        self.send_repeated(id, Message::Rep(rep), now);
        Ok(true)
    }

    /// Handles an RTU.
    pub(super) fn receive_rtu(&mut self, own: IpAddr, peer: IpAddr, rtu: &Rtu) -> Option<Indication> {
        let connection = self.named(rtu.ids, own, peer);
        match connection.map(|connection| (connection.local, connection.state)) {
            Some((id, State::RepSent)) => {
                self.become_established(id);
                Some(Indication::Established(self.get(id)?.owner?))
            }
            Some((_, State::Established)) => {
                self.counters.duplicates += 1;
                None
            }
            _ => {
                self.counters.unexpected += 1;
                None
            }
        }
    }

    /// The peer's first packet on the queue pair replaces the RTU; returns false if the connection does not
    /// wait for one.
    pub(crate) fn communication_established(&mut self, id: CommId) -> bool {
        let waits = self.get(id).is_some_and(|connection| connection.state == State::RepSent);
        if waits {
            self.become_established(id);
        }
        waits
    }

    fn become_established(&mut self, id: CommId) {
        self.set_deadline(id, None);
        self.end_half_open(id);
        if let Some(connection) = self.get_mut(id) {
            connection.state = State::Established;
            connection.sent = None;
        }
    }
}

/// The identifiers of a rejection of this request.
const fn ids_of(req: &Req) -> CommIds {
    CommIds { local: CommId::NONE, remote: req.local }
}
