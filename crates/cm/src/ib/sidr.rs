//! Service identifier resolution: the queue pair of a datagram service.

use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{
    CommId, Mad, Message, PrivateData, ServiceId, SidrRep, SidrReq, SidrStatus, TransactionId,
};
use nichrome_wire::rdma::{PKey, QKey, QpNumber};

use super::connection::{Connection, State};
use super::connections::Connections;
use super::indication::{Indication, SidrRequest};
use crate::name::IdName;

/// A program's arguments for resolving a service.
#[derive(Clone, Debug)]
pub(crate) struct SidrConnect {
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) service: ServiceId,
    pub(crate) private_data: PrivateData<216>,
}

/// The queue pair that a program offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SidrAnswer {
    pub(crate) qp: QpNumber,
    pub(crate) qkey: QKey,
    pub(crate) private_data: PrivateData<136>,
}

impl Connections {
    /// Sends a SIDR_REQ.
    pub(crate) fn resolve_service(&mut self, owner: IdName, connect: &SidrConnect, now: Instant) -> CommId {
        let (own, peer) = (connect.own_address, connect.peer_address);
        let id = self.insert(Connection::new(State::SidrReqSent, Some(owner), own, peer));
        let SidrConnect { service, private_data, .. } = *connect;
        let req = SidrReq { request: id.0, pkey: PKey::default(), service, private_data };
        self.send_repeated(id, Message::SidrReq(req), now);
        id
    }

    /// Handles a SIDR_REQ.
    pub(super) fn receive_sidr_req(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        transaction: TransactionId,
        req: &SidrReq,
    ) -> Option<Indication> {
        if req.request == 0 {
            self.counters.malformed += 1;
            return None;
        }
        if let Some(known) = self.of_sidr(peer, req.request) {
            let (id, is_answered) = (known.local, known.state == State::SidrAnswered);
            self.counters.duplicates += 1;
            if is_answered {
                self.send_again(id);
            }
            return None;
        }
        if !self.has_room_for(peer) {
            self.counters.half_open_dropped += 1;
            return None;
        }
        let request = SidrRequest { own_address: own, peer_address: peer, transaction, req: *req };
        Some(Indication::SidrRequest(Box::new(request)))
    }

    /// Answers a request for a service without a listener; keeps no state.
    pub(crate) fn refuse_sidr(&mut self, request: &SidrRequest) {
        self.counters.refused += 1;
        let message =
            Message::SidrRep(sidr_rep(request.req.request, request.req.service, SidrStatus::UNSUPPORTED));
        let mad = Mad { transaction: request.transaction, message };
        self.transmit(request.own_address, request.peer_address, &mad);
    }

    /// Keeps a request for its listener's program.
    pub(crate) fn admit_sidr(&mut self, request: &SidrRequest, owner: IdName) -> CommId {
        let SidrRequest { own_address, peer_address, transaction, req } = request;
        let id = self.insert(Connection {
            transaction: *transaction,
            sidr_request: req.request,
            ..Connection::new(State::SidrReqReceived, Some(owner), *own_address, *peer_address)
        });
        self.begin_half_open(id);
        id
    }

    /// Answers a request with a queue pair; returns false if it was answered already.
    pub(crate) fn answer_sidr(
        &mut self,
        id: CommId,
        service: ServiceId,
        answer: &SidrAnswer,
        now: Instant,
    ) -> bool {
        let Some(connection) = self.get(id).filter(|connection| connection.state == State::SidrReqReceived)
        else {
            return false;
        };
        let SidrAnswer { qp, qkey, private_data } = *answer;
        let rep = sidr_rep(connection.sidr_request, service, SidrStatus::VALID);
        self.finish_sidr(id, SidrRep { qp, qkey, private_data, ..rep }, now);
        true
    }

    /// Rejects a request for its program. Private data is truncated to the answer's field.
    pub(crate) fn reject_sidr(&mut self, id: CommId, private_data: &[u8], now: Instant) {
        let Some(connection) = self.get(id).filter(|connection| connection.state == State::SidrReqReceived)
        else {
            return;
        };
        let room = private_data.len().min(PrivateData::<136>::LEN);
        let private_data = PrivateData::new(&private_data[..room]).unwrap_or_default();
        let rep = sidr_rep(connection.sidr_request, ServiceId(0), SidrStatus::REJECTED);
        self.finish_sidr(id, SidrRep { private_data, ..rep }, now);
    }

    /// Sends the answer, and sends it again for each retransmission of the request.
    fn finish_sidr(&mut self, id: CommId, rep: SidrRep, now: Instant) {
        let message = Message::SidrRep(rep);
        self.send(id, message);
        self.set_state(id, State::SidrAnswered);
        self.linger(id, message, now);
    }

    /// Handles a SIDR_REP.
    pub(super) fn receive_sidr_rep(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        rep: &SidrRep,
    ) -> Option<Indication> {
        let connection = self
            .of_peer(CommId(rep.request), own, peer)
            .filter(|connection| connection.state == State::SidrReqSent);
        let Some((id, owner)) = connection.map(|connection| (connection.local, connection.owner)) else {
            self.counters.unexpected += 1;
            return None;
        };
        self.remove(id);
        Some(Indication::SidrReply(owner?, Box::new(*rep)))
    }
}

fn sidr_rep(request: u32, service: ServiceId, status: SidrStatus) -> SidrRep {
    SidrRep {
        request,
        status,
        ece: Default::default(),
        qp: QpNumber::default(),
        service,
        qkey: QKey(0),
        information_len: 0,
        information: PrivateData::default(),
        private_data: PrivateData::default(),
    }
}
