//! Queue pair attributes and the state of an identifier, for queries.

use std::net::SocketAddr;

use nichrome_rdma::{Access, QpChange, QpState, QpType};
use nichrome_wire::cm::PortSpace;
use nichrome_wire::rdma::QKey;

use super::{DEFAULT_QKEY, Manager};
use crate::error::CommandError;
use crate::exchange::Route;
use crate::identifier::{IdState, Identifier, Link};
use crate::name::{ChannelName, IdName};

/// The state of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdReport {
    /// Its channel.
    pub channel: ChannelName,
    /// Its port space.
    pub space: PortSpace,
    /// The kind of its queue pair.
    pub kind: QpType,
    /// Its state.
    pub state: IdState,
    /// This end's address and port.
    pub source: SocketAddr,
    /// The peer's address and port, once chosen.
    pub destination: Option<SocketAddr>,
    /// The index of this end's address among the adapter's addresses, once the adapter is known.
    pub source_index: Option<u8>,
    /// The route, once it is resolved.
    pub route: Option<Route>,
}

/// The resources in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Identifiers.
    pub identifiers: usize,
    /// Memberships in groups.
    pub memberships: usize,
    /// Ports.
    pub ports: usize,
    /// Connections by InfiniBand's messages, including those that wait for their last messages.
    pub connections: usize,
    /// Requests in progress.
    pub half_open: usize,
    /// Connections that peers initiated and the driver sets up.
    pub incoming: usize,
}

impl<H> Manager<H> {
    /// Returns the attributes that move the queue pair of an identifier to `state` (INIT, RTR or RTS).
    ///
    /// # Errors
    /// No such identifier; it has no adapter yet; its connection has not progressed to that state.
    pub fn qp_attributes(&self, id: IdName, state: QpState) -> Result<QpChange, CommandError> {
        let identifier = self.identifier(id)?;
        let source_index = identifier.source_index.ok_or(CommandError::State)?;
        if self.is_stream() {
            return Ok(identifier.stream_attributes(state));
        }
        if identifier.link == Link::None || identifier.is_datagram() {
            return Ok(identifier.unconnected_attributes(state));
        }
        let connection = self.connection_of(id).and_then(|connection| self.ib.get(connection));
        let change = connection
            .and_then(|known| known.qp_change(state, source_index, identifier.psn, &self.config.rnr_timers));
        change.ok_or(CommandError::State)
    }

    /// Returns the addresses, route and state of an identifier.
    ///
    /// # Errors
    /// No such identifier.
    pub fn query(&self, id: IdName) -> Result<IdReport, CommandError> {
        let identifier = self.identifier(id)?;
        Ok(IdReport {
            channel: identifier.channel,
            space: identifier.space,
            kind: identifier.kind,
            state: identifier.state,
            source: identifier.source,
            destination: identifier.destination,
            source_index: identifier.source_index,
            route: identifier.route,
        })
    }

    /// Returns the resources in use.
    pub fn usage(&self) -> Usage {
        Usage {
            identifiers: self.identifiers.len(),
            memberships: self.memberships.len(),
            ports: self.ports.len(),
            connections: self.ib.len(),
            half_open: self.ib.half_open(),
            incoming: self.incoming.len(),
        }
    }
}

impl Identifier {
    /// The attributes of a queue pair for datagrams, or of one that is not connected yet
    /// (`cma_ib_init_qp_attr`).
    fn unconnected_attributes(&self, state: QpState) -> QpChange {
        let change = QpChange { pkey_index: Some(0), port: Some(1), ..QpChange::to(state) };
        if self.is_datagram() {
            QpChange { qkey: Some(self.qkey.unwrap_or(QKey(DEFAULT_QKEY))), ..change }
        } else {
            QpChange { access: Some(Access::NONE), ..change }
        }
    }

    /// The attributes of a queue pair whose connection the driver sets up (`iw_cm_init_qp_attr`). The driver
    /// moves it to RTS with the connection: the program's change leaves the state as it is.
    fn stream_attributes(&self, state: QpState) -> QpChange {
        let port = Some(1);
        if state == QpState::Rts {
            return QpChange { port, ..QpChange::default() };
        }
        let rights = match self.link {
            Link::None => Access::NONE,
            Link::Ib(_) | Link::Stream(_) => Access::REMOTE_WRITE | Access::REMOTE_READ,
        };
        QpChange { access: Some(rights), port, ..QpChange::to(state) }
    }
}
