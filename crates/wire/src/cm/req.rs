//! REQ: a request for a connection (IBA 12.6.5).

use super::body::Body;
use super::error::CmError;
use super::identifier::{CommId, Ece, Guid, TimeExponent};
use super::path::Path;
use super::private_data::PrivateData;
use super::service_id::ServiceId;
use crate::bytes::{array, be16, be32, put};
use crate::rdma::{PKey, PathMtu, Psn, QKey, QpNumber};

/// The transport service of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransportService {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Extended reliable connection.
    Xrc,
}

impl TransportService {
    /// Returns the service that the two fields encode.
    fn from_bits(service: u8, extended: u8) -> Result<Self, CmError> {
        match (service, extended) {
            (0, _) => Ok(Self::Rc),
            (1, _) => Ok(Self::Uc),
            (2, _) => Ok(Self::Rd),
            (_, 1) => Ok(Self::Xrc),
            _ => Err(CmError::Service(service, extended)),
        }
    }

    const fn to_bits(self) -> (u8, u8) {
        match self {
            Self::Rc => (0, 0),
            Self::Uc => (1, 0),
            Self::Rd => (2, 0),
            Self::Xrc => (3, 1),
        }
    }
}

/// A request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Req {
    /// The sender's identifier.
    pub local: CommId,
    /// Options of a vendor.
    pub ece: Ece,
    /// The service that the sender connects to.
    pub service: ServiceId,
    /// The sender's adapter.
    pub guid: Guid,
    /// The Q_Key of the sender's queue pair; 0 except for datagrams.
    pub qkey: QKey,
    /// The sender's queue pair.
    pub qp: QpNumber,
    /// READs and atomics that the sender responds to at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender has outstanding at once.
    pub initiator_depth: u8,
    /// Longest time that the receiver takes to answer.
    pub remote_timeout: TimeExponent,
    /// Longest time that the sender takes to answer.
    pub local_timeout: TimeExponent,
    /// RC, UC or XRC.
    pub transport: TransportService,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// PSN of the first packet that the receiver sends.
    pub psn: Psn,
    /// Retransmissions of packets, 3 bits.
    pub retry_count: u8,
    /// Retries after an RNR NAK, 3 bits.
    pub rnr_retry: u8,
    /// The partition.
    pub pkey: PKey,
    /// The path MTU.
    pub path_mtu: PathMtu,
    /// Retransmissions of the manager's messages, 4 bits.
    pub max_cm_retries: u8,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// The path.
    pub primary: Path,
    /// The path to migrate to, if any.
    pub alternate: Option<Path>,
    /// The IP header and data of the program.
    pub private_data: PrivateData<92>,
}

impl Req {
    pub(super) fn from_body(body: &Body, options: u32) -> Result<Self, CmError> {
        let mtu = body[50] >> 4;
        let path_mtu = usize::from(mtu).checked_sub(1).and_then(|nth| PathMtu::ALL.get(nth).copied());
        let alternate: [u8; Path::LEN] = array(body, 96);
        Ok(Self {
            local: CommId(be32(body, 0)),
            ece: Ece { vendor: be32(body, 4) & 0xFF_FFFF, options },
            service: ServiceId(u64::from_be_bytes(array(body, 8))),
            guid: Guid(u64::from_be_bytes(array(body, 16))),
            qkey: QKey(be32(body, 28)),
            qp: QpNumber::from_low_bits(be32(body, 32) >> 8),
            responder_resources: body[35],
            initiator_depth: body[39],
            remote_timeout: TimeExponent::new(body[43] >> 3),
            local_timeout: TimeExponent::new(body[47] >> 3),
            transport: TransportService::from_bits(body[43] >> 1 & 3, body[51] & 7)?,
            flow_control: body[43] & 1 != 0,
            psn: Psn::new(be32(body, 44) >> 8),
            retry_count: body[47] & 7,
            rnr_retry: body[50] & 7,
            pkey: PKey(be16(body, 48)),
            path_mtu: path_mtu.ok_or(CmError::PathMtu(mtu))?,
            max_cm_retries: body[51] >> 4,
            srq: body[51] & 8 != 0,
            primary: Path::from_bytes(&array(body, 52)),
            alternate: (alternate != [0; Path::LEN]).then(|| Path::from_bytes(&alternate)),
            private_data: PrivateData(array(body, 140)),
        })
    }

    pub(super) fn to_body(self) -> Body {
        let (service, extended) = self.transport.to_bits();
        let mut body: Body = [0; _];
        put(&mut body, 0, self.local.0.to_be_bytes());
        put(&mut body, 4, (self.ece.vendor & 0xFF_FFFF).to_be_bytes());
        put(&mut body, 8, self.service.0.to_be_bytes());
        put(&mut body, 16, self.guid.0.to_be_bytes());
        put(&mut body, 28, self.qkey.0.to_be_bytes());
        put(&mut body, 32, (self.qp.value() << 8 | u32::from(self.responder_resources)).to_be_bytes());
        body[39] = self.initiator_depth;
        body[43] = self.remote_timeout.exponent() << 3 | service << 1 | u8::from(self.flow_control);
        let timeout = self.local_timeout.exponent() << 3 | self.retry_count & 7;
        put(&mut body, 44, (self.psn.value() << 8 | u32::from(timeout)).to_be_bytes());
        put(&mut body, 48, self.pkey.0.to_be_bytes());
        body[50] = (self.path_mtu as u8 + 1) << 4 | self.rnr_retry & 7;
        body[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | extended;
        put(&mut body, 52, self.primary.to_bytes());
        put(&mut body, 96, self.alternate.map_or([0; Path::LEN], Path::to_bytes));
        put(&mut body, 140, self.private_data.0);
        body
    }
}
