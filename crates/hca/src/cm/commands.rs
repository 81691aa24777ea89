//! Commands of programs: listening, connecting, accepting, rejecting, disconnecting.

use std::net::SocketAddr;

use nichrome_cm::{
    ChannelName, CommandError, ConnectionParameters, EventKind, IdName, Input, Output, Parameters, Route,
};
use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpState, QpType};
use nichrome_wire::cm::{Ece, PortSpace, RejectReason};
use nichrome_wire::{Engine, Instant};
use rustix::io::Errno;

use super::attributes::{Attributes, stop};
use super::endpoint::{Connection, EndpointNumber, Progress};
use super::error::ConnectError;
use super::manager::{ConnectionManager, HOP_LIMIT};

/// Milliseconds for questions to the driver, which it answers at once.
const QUERY_TIMEOUT: u32 = 1000;

/// Changes a queue pair of the device, and holds it if its transport must be negotiated.
pub(crate) type Modify<'a, M> =
    dyn FnMut(&mut Device<M>, QpHandle, &QpChange) -> Result<(), ModifyError> + 'a;

/// A request of a peer that the program has not answered.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: IdName,
    pub(crate) peer: SocketAddr,
    pub(crate) parameters: ConnectionParameters,
}

/// A listener of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerName {
    pub(crate) number: EndpointNumber,
    channel: ChannelName,
}

/// Commands of programs. Methods with a device change the state of queue pairs.
impl ConnectionManager {
    /// Listens at a port, 0 for any; returns the listener and its port.
    pub(crate) fn listen(
        &mut self,
        port: u16,
        backlog: u32,
        now: Instant,
    ) -> Result<(ListenerName, u16), CommandError> {
        let number = self.next_number();
        let channel = self.engine.create_channel()?;
        let listened = self.listen_in(channel, number, port, backlog);
        match listened {
            Ok(port) => {
                self.listeners.insert(channel, number);
                Ok((ListenerName { number, channel }, port))
            }
            Err(error) => {
                self.engine.destroy_channel(channel, now)?;
                Err(error)
            }
        }
    }

    fn listen_in(
        &mut self,
        channel: ChannelName,
        number: EndpointNumber,
        port: u16,
        backlog: u32,
    ) -> Result<u16, CommandError> {
        let id = self.engine.create_id(channel, number.0, PortSpace::Tcp, QpType::Rc)?;
        self.engine.bind(id, SocketAddr::new(self.address, port))?;
        self.engine.listen(id, backlog)?;
        Ok(self.engine.query(id)?.source.port())
    }

    /// Closes a listener. Requests that the program has not taken are rejected.
    pub(crate) fn close<M: Memory>(&mut self, listener: ListenerName, device: &mut Device<M>, now: Instant) {
        self.listeners.remove(&listener.channel);
        // Fails only for an unknown channel.
        let _ = self.engine.destroy_channel(listener.channel, now);
        self.drain(device, now);
    }

    /// Takes the oldest request.
    pub(crate) fn next_request(&mut self, listener: ListenerName) -> Option<Arrival> {
        loop {
            let event = self.engine.get_event(listener.channel).ok().flatten()?;
            let (EventKind::ConnectRequest, Parameters::Connection(parameters)) =
                (event.kind, event.parameters)
            else {
                continue;
            };
            let id = IdName(event.id);
            let peer = self.engine.query(id).ok().and_then(|report| report.destination);
            // The program now has the request: moves the identifier to the channel of the connections, which
            // gets its later events. Both calls fail only for an unknown identifier.
            if let Some(peer) = peer.filter(|_| self.engine.migrate_id(id, self.channel).is_ok()) {
                return Some(Arrival { id, peer, parameters });
            }
        }
    }

    /// The kernel's error from accepting the last TCP connection of a peer; `None` if that succeeded.
    pub(crate) fn accept_error(&self) -> Option<Errno> {
        self.joining.as_ref()?.accept_error()
    }

    /// Requests a connection.
    pub(crate) fn connect<M: Memory>(
        &mut self,
        peer: SocketAddr,
        qp: QpHandle,
        parameters: &ConnectionParameters,
        attributes: &Attributes,
        device: &mut Device<M>,
        now: Instant,
    ) -> Result<EndpointNumber, ConnectError> {
        if peer.is_ipv4() == self.address.is_ipv4() {
            self.engine.host_mut().source_to(peer.ip()).map_err(ConnectError::unreachable)?;
        }
        if self.joining.is_some() {
            prepare(qp, attributes, device)?;
        }
        let number = self.next_number();
        let id = self.engine.create_id(self.channel, number.0, PortSpace::Tcp, QpType::Rc)?;
        let requested = self.request(id, peer, parameters, attributes, device, now);
        match requested {
            Ok(()) => {
                self.connections.insert(number, Connection::new(id, qp));
                self.drain(device, now);
                Ok(number)
            }
            Err(error) => {
                self.destroy(id, device, now);
                Err(error.into())
            }
        }
    }

    fn request<M: Memory>(
        &mut self,
        id: IdName,
        peer: SocketAddr,
        parameters: &ConnectionParameters,
        attributes: &Attributes,
        device: &mut Device<M>,
        now: Instant,
    ) -> Result<(), CommandError> {
        self.engine.bind(id, SocketAddr::new(self.address, 0))?;
        self.engine.set_ack_timeout(id, attributes.timeout)?;
        self.engine.resolve_address(id, None, peer, QUERY_TIMEOUT, now)?;
        // Answers without another route lookup: `connect` has done one. A lookup opens a socket, and the
        // process may have no descriptor left by now.
        while let Some(output) = self.engine.poll() {
            if let Output::ResolveAddress { query, .. } = output {
                self.engine.receive(Input::AddressResolved(query, Ok(self.address)), now);
            }
        }
        self.engine.resolve_route(id, QUERY_TIMEOUT, now)?;
        let path_mtu = attributes.mtu.min(device.config().mtu);
        while let Some(output) = self.engine.poll() {
            if let Output::ResolveRoute { query, .. } = output {
                let route = Route { path_mtu, hop_limit: HOP_LIMIT };
                self.engine.receive(Input::RouteResolved(query, Ok(route)), now);
            }
        }
        self.fetch(device);
        self.engine.connect(id, parameters, Ece::default(), now)
    }

    /// Accepts a request: moves the queue pair to RTS and sends a REP; over iWARP, moves it to INIT until it
    /// has its stream.
    pub(crate) fn accept<M: Memory>(
        &mut self,
        id: IdName,
        qp: QpHandle,
        parameters: &ConnectionParameters,
        attributes: &Attributes,
        (device, modify): (&mut Device<M>, &mut Modify<'_, M>),
        now: Instant,
    ) -> Result<EndpointNumber, ConnectError> {
        // The queue pair is in RTS before the REP leaves: the peer may send as soon as the REP has arrived.
        if self.joining.is_some() {
            prepare(qp, attributes, device)?;
        } else {
            self.move_to_rts(id, qp, attributes, device, modify)?;
        }
        let number = self.next_number();
        self.engine.accept(id, number.0, parameters, Ece::default(), now)?;
        self.connections.insert(number, Connection::new(id, qp));
        self.drain(device, now);
        Ok(number)
    }

    /// Moves the queue pair of a connection that the peer has accepted to RTS, and sends the RTU.
    pub(crate) fn establish<M: Memory>(
        &mut self,
        number: EndpointNumber,
        attributes: &Attributes,
        (device, modify): (&mut Device<M>, &mut Modify<'_, M>),
        now: Instant,
    ) -> Result<(), ConnectError> {
        let known = self.connections.get(&number).map(|connection| (connection.id, connection.qp));
        let (id, qp) = known.ok_or(CommandError::NotFound)?;
        self.move_to_rts(id, qp, attributes, device, modify)?;
        self.engine.establish(id, now)?;
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.progress = Progress::Established;
        }
        self.drain(device, now);
        Ok(())
    }

    fn move_to_rts<M: Memory>(
        &self,
        id: IdName,
        qp: QpHandle,
        attributes: &Attributes,
        device: &mut Device<M>,
        modify: &mut Modify<'_, M>,
    ) -> Result<(), ConnectError> {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let change = self.engine.qp_attributes(id, state).map_err(|_| ConnectError::Withdrawn)?;
            modify(device, qp, &attributes.apply(change))?;
        }
        Ok(())
    }

    /// Rejects a request.
    pub(crate) fn reject<M: Memory>(
        &mut self,
        id: IdName,
        private_data: &[u8],
        device: &mut Device<M>,
        now: Instant,
    ) -> Result<(), CommandError> {
        self.engine.reject(id, RejectReason::CONSUMER, private_data, now)?;
        self.drain(device, now);
        Ok(())
    }

    /// The progress of a connection; `Disconnected` if the program has destroyed it.
    pub(crate) fn progress_of(&self, number: EndpointNumber) -> Progress {
        let connection = self.connections.get(&number);
        connection.map_or(Progress::Disconnected, |connection| connection.progress.clone())
    }

    /// Takes the private data with which the peer accepted a connection that needs no RTU (iWARP). The peer
    /// may have disconnected since.
    pub(crate) fn take_accept_private_data(&mut self, number: EndpointNumber) -> Option<Vec<u8>> {
        self.connections.get_mut(&number)?.accept_private_data.take()
    }

    /// Moves the queue pair to ERROR and sends a DREQ. No effect on a connection that is not established.
    pub(crate) fn disconnect<M: Memory>(
        &mut self,
        number: EndpointNumber,
        device: &mut Device<M>,
        now: Instant,
    ) {
        let Some(connection) = self.connections.get(&number) else { return };
        stop(device, connection.qp);
        // Fails only for an unknown identifier.
        let _ = self.engine.disconnect(connection.id, now);
        self.drain(device, now);
    }

    /// Destroys the identifier of a connection: the engine ends the connection.
    pub(crate) fn release<M: Memory>(
        &mut self,
        number: EndpointNumber,
        device: &mut Device<M>,
        now: Instant,
    ) {
        if let Some(Connection { id, .. }) = self.connections.remove(&number) {
            self.destroy(id, device, now);
        }
    }

    /// Destroys an identifier: rejects its request if it is not answered.
    pub(crate) fn destroy<M: Memory>(&mut self, id: IdName, device: &mut Device<M>, now: Instant) {
        // Fails only for an unknown identifier.
        let _ = self.engine.destroy_id(id, now);
        self.drain(device, now);
    }
}

/// Moves a queue pair in RESET or INIT to INIT, with the access rights of peers. [`Joining`](super::Joining)
/// moves it to RTR and RTS.
fn prepare<M: Memory>(
    qp: QpHandle,
    attributes: &Attributes,
    device: &mut Device<M>,
) -> Result<(), ConnectError> {
    let access = Some(attributes.access);
    Ok(device.modify_qp(qp, &QpChange { access, port: Some(1), ..QpChange::to(QpState::Init) })?)
}
