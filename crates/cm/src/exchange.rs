//! Inputs from the driver, and requests to it.

use std::net::{IpAddr, SocketAddr};

use nichrome_wire::rdma::{PathMtu, QpNumber};

use crate::error::Errno;
use crate::ib::Transmit;
use crate::name::{ChannelName, IdName, MembershipName};

/// A question to the driver. An answer that arrives after the program has asked again, or destroyed its
/// identifier, is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    pub(crate) id: IdName,
    pub(crate) attempt: u32,
}

/// The route to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The path MTU.
    pub path_mtu: PathMtu,
    /// Hop limit (time to live) of packets.
    pub hop_limit: u8,
}

/// A connection that the driver sets up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamName {
    /// One that [`Output::Connect`] requested.
    Outgoing(IdName),
    /// One that [`Input::Incoming`] reported, by the driver's number.
    Incoming(u64),
}

/// Parameters of a connection that the driver sets up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamParameters {
    /// Data of the program. Events have the first 255 bytes.
    pub private_data: Vec<u8>,
    /// READs that the sender responds to at once.
    pub ird: u8,
    /// READs that the sender has outstanding at once.
    pub ord: u8,
}

/// Why a connection that the driver sets up failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The peer's program rejected it, with data.
    Rejected(Vec<u8>),
    /// The port has no listener, or the stream was reset.
    Refused(Errno),
    /// The peer does not answer.
    TimedOut,
    /// Anything else.
    Other(Errno),
}

/// A report of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A datagram from queue pair 1 arrived at queue pair 1.
    Datagram {
        /// Address of the sender.
        source: IpAddr,
        /// Address that it was sent to.
        destination: IpAddr,
        /// The payload, without padding and ICRC.
        payload: Vec<u8>,
    },
    /// The answer to [`Output::ResolveAddress`]: the address to send from.
    AddressResolved(Query, Result<IpAddr, Errno>),
    /// The answer to [`Output::ResolveRoute`].
    RouteResolved(Query, Result<Route, Errno>),
    /// The answer to [`Output::JoinGroup`].
    GroupJoined(MembershipName, Result<(), Errno>),
    /// A peer requests a connection.
    Incoming {
        /// The driver's number of the connection, not used before.
        stream: u64,
        /// This end's address and port.
        local: SocketAddr,
        /// The peer's address and port.
        peer: SocketAddr,
        /// The peer's parameters.
        parameters: StreamParameters,
    },
    /// The result of [`Output::Connect`]: the peer's parameters, or why the connection failed.
    Replied {
        /// The connection.
        id: IdName,
        /// This end's address and port.
        local: SocketAddr,
        /// The peer's parameters.
        result: Result<StreamParameters, StreamFailure>,
    },
    /// The result of [`Output::Accept`]: the connection is established, or failed.
    Accepted(StreamName, Result<(), StreamFailure>),
    /// A connection was closed, by either end.
    Closed(StreamName),
}

/// A request to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sends a datagram from queue pair 1 to queue pair 1, under [`nichrome_wire::cm::GSI_QKEY`].
    Transmit(Box<Transmit>),
    /// The channel has an event, and had none before: wakes its readers.
    Readable(ChannelName),
    /// Finds the address to send from, and checks whether the destination can be reached.
    ResolveAddress {
        /// The question.
        query: Query,
        /// The address that the program chose to send from.
        source: Option<IpAddr>,
        /// The destination.
        destination: IpAddr,
    },
    /// Finds the route.
    ResolveRoute {
        /// The question.
        query: Query,
        /// The address to send from.
        source: IpAddr,
        /// The destination.
        destination: IpAddr,
    },
    /// Joins a multicast group.
    JoinGroup {
        /// The membership.
        membership: MembershipName,
        /// The address whose interface joins.
        source: IpAddr,
        /// The group.
        group: IpAddr,
        /// Whether the member receives datagrams of the group.
        reception: Reception,
    },
    /// Leaves a multicast group.
    LeaveGroup(MembershipName),
    /// Listens for connections at an address and port.
    Listen {
        /// The listener.
        id: IdName,
        /// Address and port; an unspecified address means all.
        local: SocketAddr,
        /// Connections that may wait for the program.
        backlog: u32,
    },
    /// Stops listening.
    StopListening(IdName),
    /// Connects to a peer.
    Connect {
        /// The connection is `StreamName::Outgoing` of this.
        id: IdName,
        /// Address and port to connect from; port 0 if none is chosen.
        local: SocketAddr,
        /// Address and port to connect to.
        peer: SocketAddr,
        /// The queue pair.
        qp: QpNumber,
        /// Parameters.
        parameters: StreamParameters,
    },
    /// Accepts a connection.
    Accept {
        /// The connection.
        stream: StreamName,
        /// The queue pair.
        qp: QpNumber,
        /// Parameters.
        parameters: StreamParameters,
    },
    /// Rejects a connection.
    Reject {
        /// The connection.
        stream: StreamName,
        /// Data for the peer's program.
        private_data: Vec<u8>,
    },
    /// Ends a connection after its posted requests are sent. [`Input::Closed`] follows.
    Disconnect(StreamName),
    /// Drops a connection: closes it if it is established. The driver reports nothing more about it.
    Release(StreamName),
}

/// Whether a member of a group receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reception {
    /// It receives datagrams.
    Full,
    /// It only sends datagrams.
    SendOnly,
}
