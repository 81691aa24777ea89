//! REP: the acceptance of a connection (IBA 12.6.8).

use super::body::Body;
use super::identifier::{CommIds, Ece, Guid, TimeExponent};
use super::private_data::PrivateData;
use crate::bytes::{array, be32, put};
use crate::rdma::{Psn, QKey, QpNumber};

/// The acceptance of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The connection.
    pub ids: CommIds,
    /// Options of a vendor.
    pub ece: Ece,
    /// The Q_Key of the sender's queue pair; 0 except for datagrams.
    pub qkey: QKey,
    /// The sender's queue pair.
    pub qp: QpNumber,
    /// PSN of the first packet that the receiver sends.
    pub psn: Psn,
    /// READs and atomics that the sender responds to at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender has outstanding at once.
    pub initiator_depth: u8,
    /// Longest time that the sender takes to acknowledge a packet.
    pub ack_delay: TimeExponent,
    /// Failover accepted: whether the sender accepts the alternate path, 2 bits.
    pub failover: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Retries after an RNR NAK, 3 bits.
    pub rnr_retry: u8,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's adapter.
    pub guid: Guid,
    /// Data of the program.
    pub private_data: PrivateData<196>,
}

impl Rep {
    pub(super) fn from_body(body: &Body, options: u32) -> Self {
        let vendor = u32::from_be_bytes([0, body[15], body[19], body[23]]);
        Self {
            ids: CommIds::from_body(body),
            ece: Ece { vendor, options },
            qkey: QKey(be32(body, 8)),
            qp: QpNumber::from_low_bits(be32(body, 12) >> 8),
            psn: Psn::new(be32(body, 20) >> 8),
            responder_resources: body[24],
            initiator_depth: body[25],
            ack_delay: TimeExponent::new(body[26] >> 3),
            failover: body[26] >> 1 & 3,
            flow_control: body[26] & 1 != 0,
            rnr_retry: body[27] >> 5,
            srq: body[27] & 0x10 != 0,
            guid: Guid(u64::from_be_bytes(array(body, 28))),
            private_data: PrivateData(array(body, 36)),
        }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        let [_, high, middle, low] = self.ece.vendor.to_be_bytes();
        put(&mut body, 8, self.qkey.0.to_be_bytes());
        put(&mut body, 12, (self.qp.value() << 8).to_be_bytes());
        body[15] = high;
        body[19] = middle;
        put(&mut body, 20, (self.psn.value() << 8 | u32::from(low)).to_be_bytes());
        body[24] = self.responder_resources;
        body[25] = self.initiator_depth;
        body[26] = self.ack_delay.exponent() << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        body[27] = self.rnr_retry << 5 | u8::from(self.srq) << 4;
        put(&mut body, 28, self.guid.0.to_be_bytes());
        put(&mut body, 36, self.private_data.0);
        body
    }
}
