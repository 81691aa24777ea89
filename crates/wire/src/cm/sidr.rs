//! Service identifier resolution: finds the queue pair of a datagram service (IBA 12.11).

use super::body::Body;
use super::identifier::Ece;
use super::private_data::PrivateData;
use super::service_id::ServiceId;
use crate::bytes::{array, be16, be32, put};
use crate::rdma::{PKey, QKey, QpNumber};

/// Asks for the queue pair of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// Names the request at its sender.
    pub request: u32,
    /// The partition.
    pub pkey: PKey,
    /// The service.
    pub service: ServiceId,
    /// The IP header and data of the program.
    pub private_data: PrivateData<216>,
}

impl SidrReq {
    pub(super) fn from_body(body: &Body) -> Self {
        Self {
            request: be32(body, 0),
            pkey: PKey(be16(body, 4)),
            service: ServiceId(u64::from_be_bytes(array(body, 8))),
            private_data: PrivateData(array(body, 16)),
        }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body: Body = [0; _];
        put(&mut body, 0, self.request.to_be_bytes());
        put(&mut body, 4, self.pkey.0.to_be_bytes());
        put(&mut body, 8, self.service.0.to_be_bytes());
        put(&mut body, 16, self.private_data.0);
        body
    }
}

/// Whether a service has a queue pair (table 121).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The service has a queue pair, which the answer names.
    pub const VALID: Self = Self(0);
    /// The service has no listener.
    pub const UNSUPPORTED: Self = Self(1);
    /// The program rejected the request.
    pub const REJECTED: Self = Self(2);
    /// The service has no queue pair available.
    pub const NO_QP: Self = Self(3);
}

/// The answer to a [`SidrReq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The request.
    pub request: u32,
    /// Whether the service has a queue pair.
    pub status: SidrStatus,
    /// Options of a vendor.
    pub ece: Ece,
    /// The queue pair.
    pub qp: QpNumber,
    /// The service.
    pub service: ServiceId,
    /// The key of the queue pair.
    pub qkey: QKey,
    /// Bytes of additional information.
    pub information_len: u8,
    /// Additional information, by status.
    pub information: PrivateData<72>,
    /// Data of the program.
    pub private_data: PrivateData<136>,
}

impl SidrRep {
    pub(super) fn from_body(body: &Body, options: u32) -> Self {
        let vendor = u32::from_be_bytes([0, body[6], body[7], body[11]]);
        Self {
            request: be32(body, 0),
            status: SidrStatus(body[4]),
            ece: Ece { vendor, options },
            qp: QpNumber::from_low_bits(be32(body, 8) >> 8),
            service: ServiceId(u64::from_be_bytes(array(body, 12))),
            qkey: QKey(be32(body, 20)),
            information_len: body[5],
            information: PrivateData(array(body, 24)),
            private_data: PrivateData(array(body, 96)),
        }
    }

    pub(super) fn to_body(self) -> Body {
        let [_, high, middle, low] = self.ece.vendor.to_be_bytes();
        let mut body: Body = [0; _];
        put(&mut body, 0, self.request.to_be_bytes());
        put(&mut body, 4, [self.status.0, self.information_len, high, middle]);
        put(&mut body, 8, (self.qp.value() << 8 | u32::from(low)).to_be_bytes());
        put(&mut body, 12, self.service.0.to_be_bytes());
        put(&mut body, 20, self.qkey.0.to_be_bytes());
        put(&mut body, 24, self.information.0);
        put(&mut body, 96, self.private_data.0);
        body
    }
}
