//! Drives the connection manager's engine: datagrams of queue pair 1, timers, events.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use nichrome_cm::{
    Bearer, ChannelName, CommIdPrefix, Config, ConfigError, Event, EventKind, IdName, Input, Manager,
    MembershipName, Output, Parameters, Reception, Route, Usage,
};
use nichrome_port::Waker;
use nichrome_rdma::{Device, ManagementDatagram, Memory, RandomNumbers};
use nichrome_wire::cm::{Guid, RejectReason};
use nichrome_wire::{Engine, Instant};

use super::attributes::stop;
use super::deferred_disconnects::{DeferredDisconnects, Disconnect};
use super::endpoint::{Connection, EndpointNumber, Progress};
use super::error::ConnectError;
use super::joining::Joining;
use super::machine::Machine;
use super::options::CmOptions;
use super::programs::{GroupRequest, Programs};
use crate::wire::Wire;

/// Hop limit of packets.
pub(super) const HOP_LIMIT: u8 = 64;

/// The connection manager of an adapter.
pub(crate) struct ConnectionManager {
    pub(super) engine: Manager<Machine>,
    pub(super) address: IpAddr,
    /// The channel of all connections, whose events are fetched at once. Each listener has its own.
    pub(super) channel: ChannelName,
    pub(super) connections: BTreeMap<EndpointNumber, Connection>,
    pub(super) listeners: BTreeMap<ChannelName, EndpointNumber>,
    /// Channels of programs that write commands.
    pub(super) programs: Programs,
    /// Connects queue pairs over TCP; `None` unless the transport is iWARP.
    pub(super) joining: Option<Joining>,
    deferred: DeferredDisconnects,
    /// Threads that wait for an endpoint.
    waiting: BTreeMap<EndpointNumber, Vec<Arc<Waker>>>,
    last_number: u64,
}

/// Seeds of an engine.
#[derive(Clone, Copy)]
pub(super) struct Seeds {
    /// The configuration's seed; a random one if it has none.
    pub(super) repeatable: u128,
    /// A random seed of the kernel: see [`Config::identity_seed`].
    pub(super) identity: u128,
}

/// Creates an engine without an adapter.
///
/// # Errors
/// An option is out of range.
pub(super) fn new_engine(
    bearer: Bearer,
    guid: Guid,
    Seeds { repeatable, identity }: Seeds,
    options: &CmOptions,
) -> Result<Manager<Machine>, ConfigError> {
    let config = Config {
        response_timeout: options.response_timeout,
        max_retries: options.max_retries,
        service_timeout: options.service_timeout,
        max_service_timeout: options.service_timeout,
        identity_seed: identity,
        ..Config::new(bearer, guid, repeatable)
    };
    Manager::new(config, Machine::default())
}

/// Management of identifiers.
impl ConnectionManager {
    /// Creates the connection manager of a device, which chooses communication identifiers with the prefix
    /// `comm_ids`, from the seed `identity`.
    ///
    /// # Errors
    /// An option is out of range.
    pub(crate) fn new(
        (address, machine): (IpAddr, Machine),
        joining: Option<Joining>,
        device: &nichrome_rdma::Config,
        comm_ids: CommIdPrefix,
        (options, identity): (&CmOptions, u128),
    ) -> Result<Self, ConfigError> {
        let mut random = RandomNumbers::new(device.seed, "GUID of the adapter");
        let random_guid = || Guid(u64::from(random.next_u32()) << 32 | u64::from(random.next_u32()));
        let guid = options.guid.unwrap_or_else(random_guid);
        let bearer = if joining.is_some() { Bearer::Iwarp } else { Bearer::Roce };
        let mut engine = new_engine(bearer, guid, Seeds { repeatable: device.seed, identity }, options)?;
        engine.set_adapter(comm_ids, device.mtu)?;
        Ok(Self::of_engine(engine, (address, machine), joining))
    }

    /// Creates the connection manager from an engine to which [`Manager::set_adapter`] has been applied.
    pub(super) fn of_engine(
        mut engine: Manager<Machine>,
        (address, machine): (IpAddr, Machine),
        joining: Option<Joining>,
    ) -> Self {
        *engine.host_mut() = machine;
        // Fails only if a program has opened as many channels as the limit allows.
        let channel = engine.create_channel().unwrap_or(ChannelName(0));
        Self {
            engine,
            address,
            channel,
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            programs: Programs::default(),
            joining,
            deferred: DeferredDisconnects::default(),
            waiting: BTreeMap::new(),
            last_number: 0,
        }
    }

    pub(super) fn next_number(&mut self) -> EndpointNumber {
        self.last_number += 1;
        EndpointNumber(self.last_number)
    }

    /// Adds the waker of a thread that waits for an endpoint, unless it is there already.
    pub(crate) fn begin_wait(&mut self, endpoint: EndpointNumber, waker: &Arc<Waker>) {
        let wakers = self.waiting.entry(endpoint).or_default();
        if !wakers.iter().any(|other| Arc::ptr_eq(other, waker)) {
            wakers.push(Arc::clone(waker));
        }
    }

    /// Removes the waker of a thread that no longer waits.
    pub(crate) fn end_wait(&mut self, endpoint: EndpointNumber, waker: &Arc<Waker>) {
        if let Some(wakers) = self.waiting.get_mut(&endpoint) {
            wakers.retain(|other| !Arc::ptr_eq(other, waker));
            if wakers.is_empty() {
                self.waiting.remove(&endpoint);
            }
        }
    }

    fn wake(&self, endpoint: EndpointNumber) {
        self.waiting.get(&endpoint).into_iter().flatten().for_each(|waker| waker.wake());
    }
}

/// Calls of the driver.
impl ConnectionManager {
    /// Deadline of the next timer.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let joining = self.joining.as_ref().and_then(Joining::poll_timeout);
        [self.engine.poll_timeout(), joining, self.deferred.poll_timeout()].into_iter().flatten().min()
    }

    /// Returns true while the end of a connection is deferred until the program polls.
    #[inline]
    pub(crate) fn has_deferred_disconnects(&self) -> bool {
        self.deferred.poll_timeout().is_some()
    }

    /// Takes the device's management datagrams, serves timers and queues answers.
    #[inline]
    pub(crate) fn progress<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
        for disconnect in self.deferred.take_due(device, now) {
            self.handle(disconnect, device, now);
        }
        while let Some(datagram) = device.poll_management() {
            // `ended_by` returns `None` for a forged DREQ, so it takes no place in `deferred`.
            let ended = self.engine.ended_by(datagram.source, datagram.destination, &datagram.payload);
            let message = Disconnect::Message(Box::new(datagram));
            if let Some(message) = self.deferred.defer(message, ended, device, now) {
                self.handle(message, device, now);
            }
        }
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
            self.drain(device, now);
        }
    }

    /// Handles a message of a peer or the end of a stream.
    fn handle<M: Memory>(&mut self, disconnect: Disconnect, device: &mut Device<M>, now: Instant) {
        match disconnect {
            Disconnect::Message(datagram) => {
                let ManagementDatagram { source, destination, payload } = *datagram;
                self.engine.receive(Input::Datagram { source, destination, payload: payload.to_vec() }, now);
            }
            Disconnect::Stream(qp) => {
                if let Some(joining) = &mut self.joining {
                    joining.ended(qp, &mut self.engine, device, now);
                }
            }
        }
        self.drain(device, now);
    }

    /// Serves the sockets of connections in set-up, puts queue pairs on the streams that are set up, and
    /// handles the ends of streams.
    pub(crate) fn progress_streams<M: Memory>(
        &mut self,
        device: &mut Device<M>,
        wire: &mut Wire,
        now: Instant,
    ) {
        let Some(joining) = &mut self.joining else { return };
        joining.progress(&mut self.engine, device, now);
        joining.join(&mut self.engine, device, wire, now);
        self.drain(device, now);
        for qp in wire.take_detached_qps() {
            let number = device.qp_number(qp).ok();
            if let Some(disconnect) = self.deferred.defer(Disconnect::Stream(qp), number, device, now) {
                self.handle(disconnect, device, now);
            }
        }
    }

    /// Returns the resources in use.
    pub(crate) fn usage(&self) -> Usage {
        self.engine.usage()
    }

    /// Returns true while a peer has not acknowledged the end of a connection.
    pub(crate) fn awaits_disconnection(&self) -> bool {
        self.engine.awaits_disconnection()
    }

    /// Retransmits the end of its connection to every peer that has not acknowledged it.
    pub(crate) fn repeat_disconnections<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
        self.engine.repeat_disconnections();
        self.drain(device, now);
    }

    /// Executes the engine's outputs.
    pub(super) fn drain<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Transmit(transmit) => {
                    let nichrome_cm::Transmit { source, destination, payload } = *transmit;
                    device.send_management(&ManagementDatagram { source, destination, payload });
                }
                Output::Readable(channel) if channel == self.channel => self.fetch(device),
                Output::Readable(channel) => match self.listeners.get(&channel) {
                    Some(listener) => self.wake(*listener),
                    None => self.programs.wake(channel),
                },
                Output::ResolveAddress { query, destination, .. } => {
                    let source = self.engine.host_mut().source_to(destination);
                    self.engine.receive(Input::AddressResolved(query, source), now);
                }
                Output::ResolveRoute { query, .. } => {
                    let route = Route { path_mtu: device.config().mtu, hop_limit: HOP_LIMIT };
                    self.engine.receive(Input::RouteResolved(query, Ok(route)), now);
                }
                Output::JoinGroup { membership, group, reception, .. } => {
                    self.join_group(membership, group, reception, now);
                }
                Output::LeaveGroup(membership) => self.programs.leave(membership),
                output => {
                    if let Some(joining) = &mut self.joining {
                        joining.execute_output(output, &self.connections, &mut self.engine, device, now);
                    }
                }
            }
        }
    }

    /// Queues the request for a membership. Send-only members join no group of the kernel.
    fn join_group(&mut self, membership: MembershipName, group: IpAddr, reception: Reception, now: Instant) {
        match reception {
            Reception::Full => self.programs.requests.push(GroupRequest::Join(membership, group)),
            Reception::SendOnly => self.engine.receive(Input::GroupJoined(membership, Ok(())), now),
        }
    }

    /// Fetches the events of connections.
    pub(super) fn fetch<M: Memory>(&mut self, device: &mut Device<M>) {
        // Fails only for an unknown channel.
        while let Ok(Some(event)) = self.engine.get_event(self.channel) {
            let number = EndpointNumber(event.uid);
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            if let (EventKind::Established, Parameters::Connection(parameters)) =
                (event.kind, &event.parameters)
            {
                connection.accept_private_data = Some(parameters.private_data.clone());
            }
            let Some(progress) = progress_of(event, self.joining.as_mut()) else { continue };
            if progress == Progress::Disconnected {
                stop(device, connection.qp);
            }
            connection.progress = progress;
            self.wake(number);
        }
    }
}

/// The progress of the connection that an event reports; `None` if the event does not change it.
fn progress_of(event: Event, joining: Option<&mut Joining>) -> Option<Progress> {
    Some(match (event.kind, event.parameters) {
        (EventKind::ConnectResponse, Parameters::Connection(parameters)) => {
            Progress::Responded(parameters.private_data)
        }
        (EventKind::Established, _) => Progress::Established,
        (EventKind::Rejected, Parameters::Connection(parameters)) => {
            let private_data = parameters.private_data;
            Progress::Failed(match joining {
                Some(joining) => joining.rejection(IdName(event.id), private_data),
                None => rejection(event.status, private_data),
            })
        }
        (EventKind::Unreachable, _) => Progress::Failed(ConnectError::TimedOut),
        (EventKind::ConnectError, _) => Progress::Failed(ConnectError::of_event(event.status)),
        (EventKind::Disconnected, _) => Progress::Disconnected,
        _ => return None,
    })
}

/// The error of a REJ.
fn rejection(reason: i32, private_data: Vec<u8>) -> ConnectError {
    match RejectReason(reason as u16) {
        RejectReason::INVALID_SERVICE_ID => ConnectError::NoListener,
        RejectReason::CONSUMER => ConnectError::Rejected(private_data),
        RejectReason::TIMEOUT => ConnectError::TimedOut,
        reason => ConnectError::Refused(reason),
    }
}
