//! Indications: events of messages and timeouts for programs.

use std::net::IpAddr;

use nichrome_wire::cm::{Rej, Rep, Req, SidrRep, SidrReq, TransactionId};

use crate::name::IdName;

/// A new REQ, which needs a listener.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) transaction: TransactionId,
    pub(crate) req: Req,
}

/// A new SIDR_REQ, which needs a listener.
#[derive(Clone, Debug)]
pub(crate) struct SidrRequest {
    pub(crate) own_address: IpAddr,
    pub(crate) peer_address: IpAddr,
    pub(crate) transaction: TransactionId,
    pub(crate) req: SidrReq,
}

/// An event of a message or a timeout, for the owner of a connection or for listeners.
#[derive(Clone, Debug)]
pub(crate) enum Indication {
    /// A peer requests a connection.
    Request(Box<Request>),
    /// A peer requests the queue pair of a datagram service.
    SidrRequest(Box<SidrRequest>),
    /// The peer accepts.
    Reply(IdName, Box<Rep>),
    /// The peer has answered the request for a service.
    SidrReply(IdName, Box<SidrRep>),
    /// The peer's RTU has arrived.
    Established(IdName),
    /// The peer rejects the connection, or ends it by a REJ.
    Rejected(IdName, Box<Rej>),
    /// The connection ended.
    Disconnected(IdName),
    /// The connection ended; the peer does not answer.
    DisconnectTimedOut(IdName),
    /// The peer does not answer.
    Unreachable(IdName),
    /// TIME_WAIT is over: the queue pair may be used for another connection.
    TimeWaitOver(IdName),
}
