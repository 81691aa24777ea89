//! What a message or a timeout means to programs.

use std::net::IpAddr;

use nichrome_wire::cm::{Rej, Rep, Req, SidrRep, SidrReq, TransactionId};

use crate::name::IdName;

/// A REQ that is no repeat, for which a listener is to be found.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) transaction: TransactionId,
    pub(crate) req: Req,
}

/// A SIDR_REQ that is no repeat, for which a listener is to be found.
#[derive(Clone, Debug)]
pub(crate) struct SidrRequest {
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) transaction: TransactionId,
    pub(crate) req: SidrReq,
}

/// What a message or a timeout means to the owner of a connection, or to listeners.
#[derive(Clone, Debug)]
pub(crate) enum Indication {
    /// A peer wants a connection.
    Request(Box<Request>),
    /// A peer wants the queue pair of a datagram service.
    SidrRequest(Box<SidrRequest>),
    /// The peer accepts.
    Reply(IdName, Box<Rep>),
    /// The peer has answered about a service.
    SidrReply(IdName, Box<SidrRep>),
    /// The peer has the answer.
    Established(IdName),
    /// The peer rejects, or ends the connection so.
    Rejected(IdName, Box<Rej>),
    /// The connection ended.
    Disconnected(IdName),
    /// The connection ended; the peer does not answer.
    DisconnectTimedOut(IdName),
    /// The peer does not answer.
    Unreachable(IdName),
    /// The end of the connection need not be remembered any more.
    TimeWaitOver(IdName),
}
