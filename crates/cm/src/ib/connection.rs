//! A connection and its state.

use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{CommId, CommIds, Ece, Guid, Mad, TimeExponent, TransactionId, TransportService};
use nichrome_wire::rdma::{PathMtu, Psn, QpNumber};

use crate::name::IdName;

/// The state of a connection: see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    ReqSent,
    RepReceived,
    ReqReceived,
    RepSent,
    Established,
    DreqSent,
    TimeWait,
    Refused,
    SidrReqSent,
    SidrReqReceived,
    SidrAnswered,
}

/// A message that is retransmitted until it is answered, or an answer kept for retransmission.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) mad: Mad,
    /// Retransmissions left.
    pub(crate) retries: u8,
    /// An MRA arrived since the last transmission: only one is honoured for each.
    pub(crate) is_acknowledged: bool,
}

/// A program's arguments for accepting a connection.
#[derive(Clone, Debug)]
pub(crate) struct Accept<'a> {
    pub(crate) qp: QpNumber,
    pub(crate) srq: bool,
    pub(crate) psn: Psn,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry: u8,
    pub(crate) ece: Ece,
    pub(crate) private_data: &'a [u8],
}

/// The rank of a connection without owner: whether its DREQ is unanswered, its position in the order in which
/// connections lost their owner, and its identifier.
pub(crate) type LingerRank = (bool, u64, CommId);

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// `None` once the program has destroyed the connection.
    pub(crate) owner: Option<IdName>,
    pub(crate) local: CommId,
    /// 0 until the peer has named the connection.
    pub(crate) remote: CommId,
    /// The peer's name of a SIDR request; 0 for others.
    pub(crate) sidr_request: u32,
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) transaction: TransactionId,
    pub(crate) transport: TransportService,
    pub(crate) local_qp: QpNumber,
    pub(crate) remote_qp: QpNumber,
    pub(crate) remote_guid: Guid,
    /// PSN of the first packet sent.
    pub(crate) sq_psn: Psn,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    /// RNR retries that the REQ requests; 7: no limit.
    pub(crate) asked_rnr_retry: u8,
    pub(crate) ack_timeout: TimeExponent,
    pub(crate) path_mtu: PathMtu,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
    pub(crate) sent: Option<Box<Sent>>,
    pub(crate) deadline: Option<Instant>,
    /// The connection counts as half-open at its source.
    pub(crate) is_half_open: bool,
    /// The position among the connections without owner, in the order in which they lost it.
    pub(crate) lingers_since: Option<u64>,
}

impl Connection {
    pub(crate) fn new(
        state: State,
        owner: Option<IdName>,
        own_address: IpAddr,
        peer_address: IpAddr,
    ) -> Self {
        Self {
            state,
            owner,
            local: CommId::NONE,
            remote: CommId::NONE,
            sidr_request: 0,
            own_address,
            peer_address,
            transaction: TransactionId::default(),
            transport: TransportService::Rc,
            local_qp: QpNumber::default(),
            remote_qp: QpNumber::default(),
            remote_guid: Guid::default(),
            sq_psn: Psn::default(),
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry: 0,
            asked_rnr_retry: 0,
            ack_timeout: TimeExponent::default(),
            path_mtu: PathMtu::B1024,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            sent: None,
            deadline: None,
            is_half_open: false,
            lingers_since: None,
        }
    }

    /// The rank among the connections without owner; `None` with one. Connections that only answer
    /// retransmissions give way before those with an unanswered DREQ, and older ones before newer ones: a
    /// peer that misses the DREQ keeps its queue pair connected, while any peer can cause refused requests.
    pub(crate) fn linger_rank(&self) -> Option<LingerRank> {
        Some((self.state == State::DreqSent, self.lingers_since?, self.local))
    }

    /// The identifiers, as this end sends them.
    pub(crate) fn ids(&self) -> CommIds {
        CommIds { local: self.local, remote: self.remote }
    }
}
