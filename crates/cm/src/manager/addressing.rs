//! Binding, resolving, listening.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nichrome_wire::Instant;

use super::Manager;
use crate::backlog::Backlog;
use crate::error::{CommandError, Errno};
use crate::event::EventKind;
use crate::exchange::{Output, Query, Route};
use crate::host::Host;
use crate::identifier::{IdState, Identifier};
use crate::name::IdName;
use crate::ports::{Binding, with_port};

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

impl<H: Host> Manager<H> {
    /// Binds an identifier to an address, or to all ([`Host::is_wildcard`]), and a port, 0 for any.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn bind(&mut self, id: IdName, source: SocketAddr) -> Result<(), CommandError> {
        let identifier = self.identifiers.get_mut(&id).ok_or(CommandError::NotFound)?;
        if identifier.state != IdState::Idle {
            return Err(CommandError::State);
        }
        let (source, source_index) = match self.host.is_wildcard(source.ip()) {
            true => (with_port(any_of(source.ip()), source.port()), None),
            false => (source, Some(self.host.source_index(source.ip()).ok_or(CommandError::NoDevice)?)),
        };
        let binding = identifier.binding(source);
        let port = self.ports.bind(&mut self.host, identifier.space, id, binding)?;
        identifier.state = IdState::AddressBound;
        identifier.source = with_port(source, port);
        identifier.source_index = source_index;
        identifier.owns_port = true;
        Ok(())
    }

    /// Resolves the destination's address, within a time in milliseconds. An identifier that is not bound is
    /// bound to `source`, or to any address and port. `AddressResolved` or `AddressError` follows.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn resolve_address(
        &mut self,
        id: IdName,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout_ms: u32,
        now: Instant,
    ) -> Result<(), CommandError> {
        self.check_queue(id)?;
        match self.identifier(id)?.state {
            IdState::Idle => self.bind(id, source.unwrap_or(any_of(destination.ip())))?,
            IdState::AddressBound => {}
            _ => return Err(CommandError::State),
        }
        let identifier = self.identifier_mut(id)?;
        if identifier.source.is_ipv4() != destination.is_ipv4() {
            return Err(CommandError::Argument);
        }
        let own = Some(identifier.source.ip()).filter(|address| !address.is_unspecified());
        let destination = match destination.ip().is_unspecified() {
            true => SocketAddr::new(own.unwrap_or(loopback_of(destination.ip())), destination.port()),
            false => destination,
        };
        identifier.destination = Some(destination);
        identifier.state = IdState::AddressQuery;
        identifier.attempt = identifier.attempt.wrapping_add(1);
        let query = Query { id, attempt: identifier.attempt };
        self.outputs.push_back(Output::ResolveAddress { query, source: own, destination: destination.ip() });
        self.set_deadline(id, Some(now.plus_nanos(u64::from(timeout_ms) * NANOS_PER_MILLISECOND)));
        Ok(())
    }

    pub(super) fn address_resolved(&mut self, query: Query, result: Result<IpAddr, Errno>) {
        let Some(identifier) = self.identifiers.get_mut(&query.id) else { return };
        if identifier.state != IdState::AddressQuery || identifier.attempt != query.attempt {
            return;
        }
        let found = result.and_then(|source| {
            let index =
                identifier.source_index.or_else(|| self.host.source_index(source)).ok_or(Errno::ENODEV)?;
            Ok((source, index))
        });
        match found {
            Ok((source, index)) => {
                identifier.state = IdState::AddressResolved;
                if identifier.source.ip().is_unspecified() {
                    identifier.source.set_ip(source);
                }
                identifier.source_index = Some(index);
                self.set_deadline(query.id, None);
                self.raise(query.id, EventKind::AddressResolved, 0);
            }
            Err(error) => {
                identifier.state = IdState::AddressBound;
                self.set_deadline(query.id, None);
                self.raise_error(query.id, EventKind::AddressError, error);
            }
        }
    }

    /// Resolves the route, within a time in milliseconds. `RouteResolved` or `RouteError` follows.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn resolve_route(&mut self, id: IdName, timeout_ms: u32, now: Instant) -> Result<(), CommandError> {
        self.check_queue(id)?;
        let identifier = self.identifier_mut(id)?;
        let destination = identifier.destination.filter(|_| identifier.state == IdState::AddressResolved);
        let destination = destination.ok_or(CommandError::State)?.ip();
        if timeout_ms == 0 {
            return Err(CommandError::Argument);
        }
        identifier.state = IdState::RouteQuery;
        identifier.attempt = identifier.attempt.wrapping_add(1);
        let query = Query { id, attempt: identifier.attempt };
        let source = identifier.source.ip();
        self.outputs.push_back(Output::ResolveRoute { query, source, destination });
        self.set_deadline(id, Some(now.plus_nanos(u64::from(timeout_ms) * NANOS_PER_MILLISECOND)));
        Ok(())
    }

    pub(super) fn route_resolved(&mut self, query: Query, result: Result<Route, Errno>) {
        let Some(identifier) = self.identifiers.get_mut(&query.id) else { return };
        if identifier.state != IdState::RouteQuery || identifier.attempt != query.attempt {
            return;
        }
        match result {
            Ok(route) => {
                identifier.state = IdState::RouteResolved;
                identifier.route = Some(route);
                self.set_deadline(query.id, None);
                self.raise(query.id, EventKind::RouteResolved, 0);
            }
            Err(error) => {
                identifier.state = IdState::AddressResolved;
                self.set_deadline(query.id, None);
                self.raise_error(query.id, EventKind::RouteError, error);
            }
        }
    }

    /// Handles the timeout of a question to the driver.
    pub(super) fn query_timed_out(&mut self, id: IdName) {
        let Some(identifier) = self.identifiers.get(&id) else { return };
        let query = Query { id, attempt: identifier.attempt };
        match identifier.state {
            IdState::AddressQuery => self.address_resolved(query, Err(Errno::ETIMEDOUT)),
            IdState::RouteQuery => self.route_resolved(query, Err(Errno::ETIMEDOUT)),
            _ => {}
        }
    }

    /// Listens for requests of peers. An unbound identifier is bound to any address and port. A backlog of 0,
    /// or above the configuration's, is the configuration's.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn listen(&mut self, id: IdName, backlog: u32) -> Result<(), CommandError> {
        if self.identifier(id)?.state == IdState::Idle {
            self.bind(id, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
        }
        let identifier = self.identifiers.get_mut(&id).ok_or(CommandError::NotFound)?;
        if identifier.state != IdState::AddressBound {
            return Err(CommandError::State);
        }
        self.ports.claim(identifier.space, id, identifier.binding(identifier.source))?;
        if !self.host.listen(identifier.space, identifier.source.port()) {
            return Err(CommandError::AddressInUse);
        }
        let most = self.config.max_backlog;
        let backlog = if backlog == 0 || backlog > most { most } else { backlog };
        identifier.options.reuse_address = false;
        identifier.state = IdState::Listen;
        identifier.backlog = Backlog::new(backlog);
        let (space, local) = (identifier.space, identifier.source);
        if self.is_stream() {
            self.outputs.push_back(Output::Listen { id, local, backlog });
        }
        self.listener_opened((space, local.port()));
        Ok(())
    }
}

impl Identifier {
    pub(super) fn binding(&self, source: SocketAddr) -> Binding {
        let family_only = self.options.family_only.unwrap_or(source.is_ipv4());
        Binding { source, reuse: self.options.reuse_address, family_only }
    }
}

/// Any address of the family, and any port.
const fn any_of(address: IpAddr) -> SocketAddr {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(any, 0)
}

const fn loopback_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}
