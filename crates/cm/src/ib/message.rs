//! Builds messages from a connection's fields.

use nichrome_wire::cm::{
    CommId, CommIds, Drep, Dreq, Guid, Message, Mra, MraMessage, PrivateData, Rej, RejMessage, RejectReason,
    Rtu, TimeExponent,
};

use super::connection::{Connection, State};

impl Connection {
    pub(super) fn mra(&self, received: MraMessage, service_timeout: TimeExponent) -> Message {
        Message::Mra(Mra { ids: self.ids(), received, service_timeout, private_data: PrivateData::default() })
    }

    pub(super) fn rtu(&self) -> Message {
        Message::Rtu(Rtu { ids: self.ids(), private_data: PrivateData::default() })
    }

    pub(super) fn dreq(&self) -> Message {
        let private_data = PrivateData::default();
        Message::Dreq(Dreq { ids: self.ids(), remote_qp: self.remote_qp, private_data })
    }

    pub(super) fn rej(&self, reason: RejectReason, private_data: PrivateData<148>) -> Message {
        let rejected = match self.state {
            State::ReqReceived => RejMessage::Req,
            State::RepReceived => RejMessage::Rep,
            _ => RejMessage::Other,
        };
        // IBA 12.6.7.2: the identifier of a rejected REQ's receiver is not known to the sender.
        let local = if rejected == RejMessage::Req { CommId::NONE } else { self.local };
        let ids = CommIds { local, remote: self.remote };
        Message::Rej(Rej { private_data, ..rej(ids, rejected, reason) })
    }

    /// A REJ by the reason "timeout": this end has stopped waiting for an answer. The additional information
    /// is the GUID of the sender's adapter, by which, with the sender's identifier, the peer finds the
    /// connection.
    pub(super) fn timed_out(&self, guid: Guid) -> Message {
        let (information_len, information) = information(&guid.0.to_be_bytes());
        let rej = rej(self.ids(), RejMessage::Other, RejectReason::TIMEOUT);
        Message::Rej(Rej { information_len, information, ..rej })
    }
}

/// A rejection without data.
pub(super) fn rej(ids: CommIds, rejected: RejMessage, reason: RejectReason) -> Rej {
    Rej {
        ids,
        rejected,
        reason,
        information_len: 0,
        information: PrivateData::default(),
        private_data: PrivateData::default(),
    }
}

/// Additional information of a rejection, of at most 16 bytes.
pub(super) fn information(bytes: &[u8]) -> (u8, PrivateData<72>) {
    let mut information = PrivateData::default();
    let len = bytes.len().min(16);
    information.0[..len].copy_from_slice(&bytes[..len]);
    (len as u8, information)
}

/// The answer to a DREQ, also to one for an unknown connection.
pub(super) fn drep(ids: CommIds) -> Message {
    Message::Drep(Drep { ids, private_data: PrivateData::default() })
}

/// The identifiers as the receiver of a message sees them.
pub(super) const fn swapped(ids: CommIds) -> CommIds {
    CommIds { local: ids.remote, remote: ids.local }
}
