//! Events of identifiers.

use nichrome_rdma::AddressVector;
use nichrome_wire::cm::Ece;
use nichrome_wire::rdma::{QKey, QpNumber};

/// The kind of an event, with the numbers of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The destination's address is resolved.
    AddressResolved = 0,
    /// Resolving the address failed.
    AddressError = 1,
    /// The route is resolved.
    RouteResolved = 2,
    /// Resolving the route failed.
    RouteError = 3,
    /// A peer requests a connection, or the queue pair of a datagram service.
    ConnectRequest = 4,
    /// The peer accepts the connection. The program moves its queue pair to RTS and accepts without
    /// parameters.
    ConnectResponse = 5,
    /// The connection could not be established.
    ConnectError = 6,
    /// The peer does not answer.
    Unreachable = 7,
    /// The peer rejects the connection.
    Rejected = 8,
    /// The connection is established.
    Established = 9,
    /// The connection ended.
    Disconnected = 10,
    /// The group is joined.
    MulticastJoin = 12,
    /// Joining the group failed.
    MulticastError = 13,
    /// The queue pair of an ended connection may be used for another.
    TimewaitExit = 15,
    /// An event of the program's own.
    User = 18,
    /// An event of librdmacm's own, such as the end of a resolution of names.
    Internal = 19,
}

/// Parameters of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// The queue pair: the program's in a command, the peer's in an event.
    pub qp: QpNumber,
    /// The queue pair's key, for datagram services with a key of their own; otherwise 0.
    pub qkey: QKey,
    /// Private data for the other program, at most 255 bytes. In events of RoCE, the message's whole field,
    /// with zeros at the end.
    pub private_data: Vec<u8>,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that this end responds to at once.
    pub responder_resources: u8,
    /// READs and atomics that this end has outstanding at once.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Retransmissions of packets, at most 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK, at most 7.
    pub rnr_retry: u8,
}

/// The destination of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramParameters {
    /// Data of the other program.
    pub private_data: Vec<u8>,
    /// The queue pair.
    pub qp: QpNumber,
    /// Its key.
    pub qkey: QKey,
    /// The path to it; `None` if not known yet.
    pub path: Option<AddressVector>,
}

/// Parameters of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// Of an identifier for connections.
    Connection(ConnectionParameters),
    /// Of an identifier for datagrams.
    Datagram(DatagramParameters),
    /// Of an event that the program has written.
    Argument(u64),
}

/// An event of an identifier or of a membership in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The program's name of the identifier, of the listener in `ConnectRequest`, or of the membership.
    pub uid: u64,
    /// The name of the identifier, the new one in `ConnectRequest`, or of the membership.
    pub id: u32,
    /// The kind of event.
    pub kind: EventKind,
    /// 0, a negative error number, or a reason of the peer's: REJ's in `Rejected`, SIDR's status in
    /// `Unreachable`.
    pub status: i32,
    /// The parameters.
    pub parameters: Parameters,
    /// The peer's vendor-specific options (enhanced connection establishment).
    pub ece: Ece,
}
