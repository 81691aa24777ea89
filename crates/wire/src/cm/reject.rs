//! REJ: the rejection of a connection (IBA 12.6.7).

use super::body::Body;
use super::error::CmError;
use super::identifier::CommIds;
use super::private_data::PrivateData;
use crate::bytes::{array, be16, put};

/// Why a connection is rejected (table 109).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// The sender has no queue pair available.
    pub const NO_QP: Self = Self(1);
    /// The sender has no resources.
    pub const NO_RESOURCES: Self = Self(3);
    /// The sender gave up waiting for an answer.
    pub const TIMEOUT: Self = Self(4);
    /// The sender does not support the request.
    pub const UNSUPPORTED: Self = Self(5);
    /// The message names no connection of the sender's.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// The service has no listener.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The listener has another transport service.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// An earlier connection with the same identifier or queue pair is not over yet.
    pub const STALE: Self = Self(10);
    /// The GID does not belong to the port.
    pub const INVALID_GID: Self = Self(12);
    /// The sender does not support the path MTU; the additional information is the largest path MTU that it
    /// supports.
    pub const INVALID_MTU: Self = Self(26);
    /// The program rejected the connection.
    pub const CONSUMER: Self = Self(28);
    /// The sender does not support the vendor's options.
    pub const VENDOR_OPTION: Self = Self(35);
}

/// The message that is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejMessage {
    /// A REQ.
    Req,
    /// A REP.
    Rep,
    /// None, or another.
    Other,
}

/// The rejection of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The connection; either identifier may be 0.
    pub ids: CommIds,
    /// The rejected message.
    pub rejected: RejMessage,
    /// The reason.
    pub reason: RejectReason,
    /// Bytes of additional information, at most 72.
    pub information_len: u8,
    /// Additional information, by reason.
    pub information: PrivateData<72>,
    /// Data of the program.
    pub private_data: PrivateData<148>,
}

impl Rej {
    pub(super) fn from_body(body: &Body) -> Result<Self, CmError> {
        let rejected = match body[8] >> 6 {
            0 => RejMessage::Req,
            1 => RejMessage::Rep,
            2 => RejMessage::Other,
            reserved => return Err(CmError::Answered(reserved)),
        };
        let information_len = body[9] >> 1;
        if usize::from(information_len) > PrivateData::<72>::LEN {
            return Err(CmError::Information(information_len));
        }
        Ok(Self {
            ids: CommIds::from_body(body),
            rejected,
            reason: RejectReason(be16(body, 10)),
            information_len,
            information: PrivateData(array(body, 12)),
            private_data: PrivateData(array(body, 84)),
        })
    }

    pub(super) fn to_body(self) -> Body {
        let mut body = self.ids.to_body();
        body[8] = (self.rejected as u8) << 6;
        body[9] = self.information_len.min(72) << 1;
        put(&mut body, 10, self.reason.0.to_be_bytes());
        put(&mut body, 12, self.information.0);
        put(&mut body, 84, self.private_data.0);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_has_at_most_72_bytes_of_information() {
        let with = |len: u8| {
            let mut body = [0; size_of::<Body>()];
            body[9] = len << 1;
            Rej::from_body(&body).map(|rej| rej.information_len)
        };
        assert_eq!((with(72), with(73)), (Ok(72), Err(CmError::Information(73))));
    }
}
