//! Connections that the driver sets up: iWARP's.

use std::net::SocketAddr;

use nichrome_wire::cm::{Ece, PortSpace};

use super::Manager;
use super::events::MAX_PRIVATE_DATA;
use super::requests::Arrival;
use crate::error::{CommandError, Errno};
use crate::event::{ConnectionParameters, EventKind, Parameters};
use crate::exchange::{Output, StreamFailure, StreamName, StreamParameters};
use crate::host::Host;
use crate::identifier::{IdState, Identifier, Link};
use crate::name::IdName;

impl<H: Host> Manager<H> {
    pub(super) fn connect_stream(
        &mut self,
        id: IdName,
        peer: SocketAddr,
        parameters: &ConnectionParameters,
    ) -> Result<Link, CommandError> {
        let identifier = self.identifier(id)?;
        if identifier.is_datagram() {
            return Err(CommandError::NotSupported);
        }
        check(parameters)?;
        let local = identifier.source;
        let qp = parameters.qp;
        self.outputs.push_back(Output::Connect { id, local, peer, qp, parameters: sent(parameters) });
        Ok(Link::Stream(StreamName::Outgoing(id)))
    }

    pub(super) fn accept_stream(
        &mut self,
        stream: StreamName,
        parameters: &ConnectionParameters,
    ) -> Result<(), CommandError> {
        check(parameters)?;
        self.outputs.push_back(Output::Accept { stream, qp: parameters.qp, parameters: sent(parameters) });
        Ok(())
    }

    /// Handles a peer's request for a connection: the identifier that listens at the address gets it. Of
    /// those that share the port, any may have been destroyed since the peer connected.
    pub(super) fn stream_arrived(
        &mut self,
        stream: u64,
        (local, peer): (SocketAddr, SocketAddr),
        parameters: StreamParameters,
    ) {
        let name = StreamName::Incoming(stream);
        let listens =
            |id: &IdName| self.identifiers.get(id).is_some_and(|known| known.state == IdState::Listen);
        let at_address = self.ports.bound(PortSpace::Tcp, local.port(), local.ip()).find(listens);
        let Some(listener) = at_address.filter(|_| !self.incoming.contains_key(&stream)) else {
            self.outputs.push_back(Output::Release(name));
            return;
        };
        let parameters = Parameters::Connection(received(parameters));
        match self.admit(Arrival { listener, local, peer, route: None, ece: Ece::default(), parameters }) {
            Ok(id) => {
                self.incoming.insert(stream, id);
                if let Some(identifier) = self.identifiers.get_mut(&id) {
                    identifier.link = Link::Stream(name);
                }
            }
            Err(dropped) => {
                self.count_dropped(&dropped);
                self.outputs.push_back(Output::Release(name));
            }
        }
    }

    /// Handles the result of connecting.
    pub(super) fn stream_replied(
        &mut self,
        id: IdName,
        local: SocketAddr,
        result: Result<StreamParameters, StreamFailure>,
    ) {
        let Some(identifier) =
            self.identifiers.get_mut(&id).filter(|identifier| identifier.is_connecting(id))
        else {
            return;
        };
        match result {
            Ok(parameters) => {
                identifier.source.set_ip(local.ip());
                let parameters = Parameters::Connection(received(parameters));
                self.raise_with(id, EventKind::Established, 0, parameters);
            }
            Err(failure) => self.stream_failed(id, failure),
        }
    }

    /// Handles the result of accepting.
    pub(super) fn stream_accepted(&mut self, stream: StreamName, result: Result<(), StreamFailure>) {
        let Some(id) = self.id_of(stream) else { return };
        match result {
            Ok(()) => self.raise(id, EventKind::Established, 0),
            Err(failure) => self.stream_failed(id, failure),
        }
    }

    /// Queues the event by which Linux's `cma_iw_handler` reports the failure.
    fn stream_failed(&mut self, id: IdName, failure: StreamFailure) {
        let (kind, error, private_data) = match failure {
            StreamFailure::Rejected(data) => (EventKind::Rejected, Errno::ECONNREFUSED, data),
            StreamFailure::Refused(error) => (EventKind::Rejected, error, Vec::new()),
            StreamFailure::TimedOut => (EventKind::Unreachable, Errno::ETIMEDOUT, Vec::new()),
            StreamFailure::Other(error) => (EventKind::ConnectError, error, Vec::new()),
        };
        let parameters = ConnectionParameters { private_data, ..ConnectionParameters::default() };
        self.raise_with(id, kind, error.status(), Parameters::Connection(parameters));
    }

    pub(super) fn stream_closed(&mut self, stream: StreamName) {
        if let Some(id) = self.id_of(stream) {
            self.disconnected(id, 0);
        }
    }

    /// The identifier of a connection.
    fn id_of(&self, stream: StreamName) -> Option<IdName> {
        let id = match stream {
            StreamName::Outgoing(id) => id,
            StreamName::Incoming(number) => *self.incoming.get(&number)?,
        };
        let identifier = self.identifiers.get(&id)?;
        (identifier.link == Link::Stream(stream)).then_some(id)
    }
}

impl Identifier {
    /// Returns true if the identifier waits for the reply to its own stream.
    fn is_connecting(&self, id: IdName) -> bool {
        self.state == IdState::Connect && self.link == Link::Stream(StreamName::Outgoing(id))
    }
}

/// Refuses private data that the peer's event could not hold.
fn check(parameters: &ConnectionParameters) -> Result<(), CommandError> {
    if parameters.private_data.len() > MAX_PRIVATE_DATA { Err(CommandError::Argument) } else { Ok(()) }
}

fn sent(parameters: &ConnectionParameters) -> StreamParameters {
    StreamParameters {
        private_data: parameters.private_data.clone(),
        ird: parameters.responder_resources,
        ord: parameters.initiator_depth,
    }
}

/// As Linux's `iw_cm`: the event shows the peer's IRD as initiator depth, its ORD as responder resources.
fn received(parameters: StreamParameters) -> ConnectionParameters {
    ConnectionParameters {
        private_data: parameters.private_data,
        initiator_depth: parameters.ird,
        responder_resources: parameters.ord,
        ..ConnectionParameters::default()
    }
}
