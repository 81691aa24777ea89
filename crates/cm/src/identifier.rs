//! An identifier: the state of a program's endpoint.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nichrome_rdma::QpType;
use nichrome_wire::Instant;
use nichrome_wire::cm::{CommId, Ece, PortSpace};
use nichrome_wire::rdma::{Psn, QKey, QpNumber};

use crate::backlog::Backlog;
use crate::exchange::{Route, StreamName};
use crate::name::{ChannelName, IdName, MembershipName};

/// The state of an identifier (`enum rdma_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdState {
    /// Created.
    Idle,
    /// Bound to an address and port.
    AddressBound,
    /// The destination's address is being resolved.
    AddressQuery,
    /// The destination's address is resolved.
    AddressResolved,
    /// The route is being resolved.
    RouteQuery,
    /// The route is resolved.
    RouteResolved,
    /// Connecting or connected.
    Connect,
    /// Disconnected.
    Disconnect,
    /// Listening.
    Listen,
}

/// The connection of an identifier to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    None,
    /// A connection by InfiniBand's messages.
    Ib(CommId),
    /// A connection that the driver set up.
    Stream(StreamName),
}

/// Settings that programs change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) traffic_class: u8,
    pub(crate) reuse_address: bool,
    pub(crate) family_only: Option<bool>,
    pub(crate) ack_timeout: Option<u8>,
}

/// A program's endpoint.
#[derive(Debug)]
pub(crate) struct Identifier {
    pub(crate) channel: ChannelName,
    /// The program's name of the identifier. Events are dropped while it is 0: the program does not know the
    /// identifier yet.
    pub(crate) uid: u64,
    pub(crate) space: PortSpace,
    pub(crate) kind: QpType,
    pub(crate) state: IdState,
    /// Own address and port, unspecified and 0 until bound.
    pub(crate) source: SocketAddr,
    pub(crate) destination: Option<SocketAddr>,
    /// The index of this end's address among the adapter's addresses, once the adapter is known.
    pub(crate) source_index: Option<u8>,
    /// The identifier owns its port. Identifiers created by requests share their listener's port.
    pub(crate) owns_port: bool,
    pub(crate) route: Option<Route>,
    pub(crate) options: Options,
    /// Of a listener: the requests that the program has not fetched.
    pub(crate) backlog: Backlog,
    pub(crate) link: Link,
    pub(crate) qp: QpNumber,
    /// PSN of the first packet received.
    pub(crate) psn: Psn,
    pub(crate) qkey: Option<QKey>,
    pub(crate) ece: Ece,
    pub(crate) memberships: Vec<MembershipName>,
    /// Events that the program has fetched.
    pub(crate) events_reported: u32,
    /// Events that the program has not fetched.
    pub(crate) events_queued: u32,
    /// The number of the last question to the driver.
    pub(crate) attempt: u32,
    pub(crate) deadline: Option<Instant>,
}

/// An identifier's membership in a group.
pub(crate) struct Membership {
    pub(crate) id: IdName,
    pub(crate) uid: u64,
    pub(crate) group: IpAddr,
    /// The driver has answered.
    pub(crate) is_answered: bool,
    pub(crate) events_reported: u32,
}

impl Identifier {
    pub(crate) fn new(channel: ChannelName, uid: u64, space: PortSpace, kind: QpType, psn: Psn) -> Self {
        Self {
            channel,
            uid,
            space,
            kind,
            state: IdState::Idle,
            source: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            destination: None,
            source_index: None,
            owns_port: false,
            route: None,
            options: Options::default(),
            backlog: Backlog::default(),
            link: Link::None,
            qp: QpNumber::default(),
            psn,
            qkey: None,
            ece: Ece::default(),
            memberships: Vec::new(),
            events_reported: 0,
            events_queued: 0,
            attempt: 0,
            deadline: None,
        }
    }

    /// Returns true if the identifier is for datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        self.kind == QpType::Ud
    }
}
