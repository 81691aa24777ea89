//! The initiator's side: sends REQ, and handles its answers.

use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{
    CommId, CommIds, Ece, Gid, Message, Mra, MraMessage, Path, PrivateData, RejMessage, RejectReason, Rep,
    Req, ServiceId, TimeExponent, TransportService,
};
use nichrome_wire::rdma::{PKey, PathMtu, Psn, QKey, QpNumber};

use super::connection::{Connection, State};
use super::connections::Connections;
use super::indication::Indication;
use super::message::rej;
use crate::name::IdName;

/// A program's arguments for connecting.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) service: ServiceId,
    pub(crate) transport: TransportService,
    pub(crate) qp: QpNumber,
    pub(crate) srq: bool,
    pub(crate) psn: Psn,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) ack_timeout: TimeExponent,
    pub(crate) path_mtu: PathMtu,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
    pub(crate) ece: Ece,
    pub(crate) private_data: PrivateData<92>,
}

impl Connections {
    /// Sends a REQ.
    pub(crate) fn connect(&mut self, owner: IdName, connect: &Connect, now: Instant) -> CommId {
        let (own, peer) = (connect.own_address, connect.peer_address);
        let connection = Connection {
            transport: connect.transport,
            local_qp: connect.qp,
            responder_resources: connect.responder_resources,
            initiator_depth: connect.initiator_depth,
            retry_count: connect.retry_count.min(7),
            rnr_retry: connect.rnr_retry.min(7),
            asked_rnr_retry: connect.rnr_retry.min(7),
            ack_timeout: connect.ack_timeout,
            path_mtu: connect.path_mtu,
            traffic_class: connect.traffic_class,
            hop_limit: connect.hop_limit,
            flow_label: connect.flow_label,
            ..Connection::new(State::ReqSent, Some(owner), own, peer)
        };
        let id = self.insert(connection);
        let req = self.req(id, connect);
        self.send_repeated(id, Message::Req(req), now);
        id
    }

    fn req(&self, local: CommId, connect: &Connect) -> Req {
        let primary = Path {
            local_lid: 0xFFFF,
            remote_lid: 0xFFFF,
            local_gid: Gid::from(connect.own_address),
            remote_gid: Gid::from(connect.peer_address),
            flow_label: connect.flow_label,
            rate: 0,
            traffic_class: connect.traffic_class,
            hop_limit: connect.hop_limit,
            service_level: 0,
            subnet_local: false,
            ack_timeout: connect.ack_timeout,
        };
        Req {
            local,
            ece: connect.ece,
            service: connect.service,
            guid: self.guid,
            qkey: QKey(0),
            qp: connect.qp,
            responder_resources: connect.responder_resources,
            initiator_depth: connect.initiator_depth,
            remote_timeout: self.config.response_timeout,
            local_timeout: self.config.response_timeout,
            transport: connect.transport,
            flow_control: connect.flow_control,
            psn: connect.psn,
            retry_count: connect.retry_count.min(7),
            rnr_retry: connect.rnr_retry.min(7),
            pkey: PKey::default(),
            path_mtu: connect.path_mtu,
            max_cm_retries: self.config.max_retries,
            srq: connect.srq,
            primary,
            alternate: None,
            private_data: connect.private_data,
        }
    }

    /// Handles a REP.
    pub(super) fn receive_rep(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        rep: &Rep,
        now: Instant,
    ) -> Option<Indication> {
        let Some(connection) = self.of_peer(rep.ids.remote, own, peer) else {
            self.counters.unexpected += 1;
            let ids = CommIds { local: rep.ids.remote, remote: rep.ids.local };
            self.refuse(own, peer, rej(ids, RejMessage::Rep, RejectReason::INVALID_COMM_ID));
            return None;
        };
        let (id, owner) = (connection.local, connection.owner);
        match connection.state {
            State::ReqSent if rep.ids.local != CommId::NONE => {}
            State::RepReceived if connection.remote == rep.ids.local => {
                let mra = connection.mra(MraMessage::Rep, self.config.service_timeout);
                self.counters.duplicates += 1;
                self.send(id, mra);
                return None;
            }
            // The RTU was lost.
            State::Established if connection.remote == rep.ids.local => {
                let rtu = connection.rtu();
                self.counters.duplicates += 1;
                self.send(id, rtu);
                return None;
            }
            _ => {
                self.counters.unexpected += 1;
                return None;
            }
        }
        if self.of_remote(peer, rep.ids.local).is_some() {
            self.counters.unexpected += 1;
            return None;
        }
        let stale =
            self.of_qp(peer, rep.qp).filter(|other| other.remote_guid == rep.guid).map(|other| other.local);
        if let Some(stale) = stale {
            let ids = CommIds { local: id, remote: rep.ids.local };
            self.refuse(own, peer, rej(ids, RejMessage::Rep, RejectReason::STALE));
            self.disconnect(stale, now);
            return None;
        }
        self.name_remote(id, rep.ids.local, rep.qp);
        self.set_deadline(id, None);
        let connection = self.get_mut(id)?;
        connection.state = State::RepReceived;
        connection.sent = None;
        connection.remote_guid = rep.guid;
        connection.sq_psn = rep.psn;
        connection.initiator_depth = rep.responder_resources;
        connection.responder_resources = rep.initiator_depth;
        connection.rnr_retry = rep.rnr_retry;
        connection.ack_timeout = with_ack_delay(connection.ack_timeout, rep.ack_delay);
        Some(Indication::Reply(owner?, Box::new(*rep)))
    }

    /// Sends the RTU; returns false if the connection does not wait for one.
    pub(crate) fn establish(&mut self, id: CommId) -> bool {
        let Some(connection) = self.get(id).filter(|connection| connection.state == State::RepReceived)
        else {
            return false;
        };
        let rtu = connection.rtu();
        self.set_state(id, State::Established);
        self.send(id, rtu);
        true
    }

    /// Handles an MRA: waits for the answer that it announces.
    pub(super) fn receive_mra(&mut self, own: IpAddr, peer: IpAddr, mra: &Mra, now: Instant) {
        let connection = match mra.received {
            // The receiver of a REQ names its connection here for the first time.
            MraMessage::Req => self.of_peer(mra.ids.remote, own, peer),
            MraMessage::Rep | MraMessage::Other => self.named(mra.ids, own, peer),
        };
        let id = connection.filter(|connection| {
            matches!(
                (mra.received, connection.state),
                (MraMessage::Req, State::ReqSent) | (MraMessage::Rep, State::RepSent)
            )
        });
        let Some(id) = id.map(|connection| connection.local) else {
            self.counters.unexpected += 1;
            return;
        };
        let granted = mra.service_timeout.min(self.config.max_service_timeout);
        let wait = granted.nanos() + self.config.response_timeout.nanos();
        let sent = self.get_mut(id).and_then(|connection| connection.sent.as_mut());
        if let Some(sent) = sent.filter(|sent| !sent.is_acknowledged) {
            sent.is_acknowledged = true;
            self.set_deadline(id, Some(now.plus_nanos(wait)));
        }
    }
}

/// The ACK timeout for a peer that takes `delay` to acknowledge (IBA 12.7.34): the smallest power of two
/// above the sum.
fn with_ack_delay(timeout: TimeExponent, delay: TimeExponent) -> TimeExponent {
    let (timeout, delay) = (timeout.exponent(), delay.exponent());
    let (longer, shorter) = (timeout.max(delay), timeout.min(delay));
    TimeExponent::new(longer + u8::from(shorter + 1 >= longer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ack_timeout_covers_the_peers_delay() {
        for (timeout, delay, sum) in [(16, 14, 16), (16, 15, 17), (16, 16, 17), (14, 20, 20), (31, 31, 31)] {
            let sum_of = with_ack_delay(TimeExponent::new(timeout), TimeExponent::new(delay));
            assert_eq!(sum_of, TimeExponent::new(sum), "{timeout} {delay}");
        }
    }
}
