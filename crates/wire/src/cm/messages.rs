//! The short messages: MRA, RTU, DREQ, DREP; and LAP and APR (path migration), of which only the connection
//! is parsed.

use super::body::Body;
use super::error::CmError;
use super::identifier::{CommIds, TimeExponent};
use super::private_data::PrivateData;
use crate::bytes::{array, be32, put};
use crate::rdma::QpNumber;

/// The message that an MRA acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MraMessage {
    /// A REQ.
    Req,
    /// A REP.
    Rep,
    /// Another: a LAP.
    Other,
}

/// Acknowledges the receipt of a message whose answer takes longer (IBA 12.6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The connection.
    pub ids: CommIds,
    /// The message received.
    pub received: MraMessage,
    /// Longest time until the answer.
    pub service_timeout: TimeExponent,
    /// Data of the program.
    pub private_data: PrivateData<222>,
}

impl Mra {
    pub(super) fn from_body(body: &Body) -> Result<Self, CmError> {
        let received = match body[8] >> 6 {
            0 => MraMessage::Req,
            1 => MraMessage::Rep,
            2 => MraMessage::Other,
            reserved => return Err(CmError::Answered(reserved)),
        };
        Ok(Self {
            ids: CommIds::from_body(body),
            received,
            service_timeout: TimeExponent::new(body[9] >> 3),
            private_data: PrivateData(array(body, 10)),
        })
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        body[8] = (self.received as u8) << 6;
        body[9] = self.service_timeout.exponent() << 3;
        put(&mut body, 10, self.private_data.0);
        body
    }
}

/// Ready to use: acknowledges a REP (IBA 12.6.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtu {
    /// The connection.
    pub ids: CommIds,
    /// Data of the program.
    pub private_data: PrivateData<224>,
}

impl Rtu {
    pub(super) fn from_body(body: &Body) -> Self {
        Self { ids: CommIds::from_body(body), private_data: PrivateData(array(body, 8)) }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        put(&mut body, 8, self.private_data.0);
        body
    }
}

/// Ends a connection (IBA 12.6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The connection.
    pub ids: CommIds,
    /// The receiver's queue pair.
    pub remote_qp: QpNumber,
    /// Data of the program.
    pub private_data: PrivateData<220>,
}

impl Dreq {
    pub(super) fn from_body(body: &Body) -> Self {
        Self {
            ids: CommIds::from_body(body),
            remote_qp: QpNumber::from_low_bits(be32(body, 8) >> 8),
            private_data: PrivateData(array(body, 12)),
        }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        put(&mut body, 8, (self.remote_qp.value() << 8).to_be_bytes());
        put(&mut body, 12, self.private_data.0);
        body
    }
}

/// Acknowledges a DREQ (IBA 12.6.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drep {
    /// The connection.
    pub ids: CommIds,
    /// Data of the program.
    pub private_data: PrivateData<224>,
}

impl Drep {
    pub(super) fn from_body(body: &Body) -> Self {
        Self { ids: CommIds::from_body(body), private_data: PrivateData(array(body, 8)) }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        put(&mut body, 8, self.private_data.0);
        body
    }
}

/// Loads an alternate path (IBA 12.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    /// The connection.
    pub ids: CommIds,
    /// The path and the program's data, not parsed.
    pub rest: PrivateData<224>,
}

impl Lap {
    pub(super) fn from_body(body: &Body) -> Self {
        Self { ids: CommIds::from_body(body), rest: PrivateData(array(body, 8)) }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        put(&mut body, 8, self.rest.0);
        body
    }
}

/// Answers a LAP (IBA 12.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apr {
    /// The connection.
    pub ids: CommIds,
    /// The status and the program's data, not parsed.
    pub rest: PrivateData<224>,
}

impl Apr {
    pub(super) fn from_body(body: &Body) -> Self {
        Self { ids: CommIds::from_body(body), rest: PrivateData(array(body, 8)) }
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        put(&mut body, 8, self.rest.0);
        body
    }
}
