//! The connection manager of a live device: its start, and its access to the wire.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use nichrome_cm::CommIdPrefix;
use nichrome_port::clock;
use nichrome_rdma::{Device, Memory};
use nichrome_wire::Instant;

use crate::cm::{
    CmOptions, ConnectionManager, DetachedManager, GroupRequest, Joining, Machine, Unavailable, errno_of,
};
use crate::iwarp;
use crate::management_steering::prefix_of;
use crate::wire::Wire;

/// The connection manager of a device. The first command of its program starts it. If the address is not
/// shared, the first message of a peer starts it, too, so that the peer gets an answer although no program
/// listens.
pub(crate) struct Management {
    options: CmOptions,
    /// A random seed of the kernel: see [`nichrome_cm::Config::identity_seed`].
    identity_seed: u128,
    /// `None` unless the adapter's transport is iWARP.
    iwarp: Option<iwarp::Shared>,
    manager: Option<ConnectionManager>,
    /// A descriptor of side ports that the driver has not taken yet.
    side_ports: Option<OwnedFd>,
}

/// The parts from which a connection manager is made.
type Opened = ((IpAddr, Machine), Option<Joining>, CommIdPrefix);

impl Management {
    pub(crate) fn new<M: Memory>(
        (options, identity_seed): (CmOptions, u128),
        iwarp: Option<iwarp::Shared>,
        device: &mut Device<M>,
        wire: &Wire,
    ) -> Self {
        if iwarp.is_none() && wire.slot().is_none() {
            device.open_management();
        }
        Self { options, identity_seed, iwarp, manager: None, side_ports: None }
    }

    /// Deadline of the next timer.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.manager.as_ref().and_then(ConnectionManager::poll_timeout)
    }

    /// Takes the device's management datagrams, serves timers and queues answers.
    #[inline]
    pub(crate) fn progress<M: Memory>(&mut self, device: &mut Device<M>, wire: &mut Wire, now: Instant) {
        match &mut self.manager {
            Some(manager) => {
                manager.progress(device, now);
                manager.progress_streams(device, wire, now);
            }
            None if device.has_management() => self.start_for_message(device, wire, now),
            // Only a connection manager needs these ends: the device has handled them.
            None => drop(wire.take_detached_qps()),
        }
    }

    #[cold]
    fn start_for_message<M: Memory>(&mut self, device: &mut Device<M>, wire: &mut Wire, now: Instant) {
        match self.started(device, wire) {
            Ok(manager) => manager.progress(device, now),
            Err(_) => while device.poll_management().is_some() {},
        }
    }

    /// Calls the connection manager, which it starts if necessary, then joins and leaves the multicast groups
    /// that the manager requests.
    ///
    /// # Errors
    /// The adapter has no connection manager.
    pub(crate) fn manage<M: Memory, T>(
        &mut self,
        device: &mut Device<M>,
        wire: &mut Wire,
        commands: impl FnOnce(&mut ConnectionManager, &mut Device<M>, Instant) -> T,
    ) -> Result<T, Unavailable> {
        let manager = self.started(device, wire)?;
        let result = commands(manager, device, clock::now());
        manager.progress_streams(device, wire, clock::now());
        self.serve_groups(device, wire);
        Ok(result)
    }

    /// Takes a descriptor that is readable while a datagram waits at a side port, if side ports were opened
    /// since the last call.
    pub(crate) fn take_side_ports(&mut self) -> Option<OwnedFd> {
        self.side_ports.take()
    }

    /// Gives up the network and the channels of programs in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&mut self) {
        if let Some(manager) = &mut self.manager {
            manager.close_in_child();
        }
    }

    /// Destroys the channels of programs.
    pub(crate) fn close_channels<M: Memory>(&mut self, device: &mut Device<M>) {
        if let Some(manager) = &mut self.manager {
            manager.close_channels(device, clock::now());
        }
    }

    /// Returns true while a peer has not acknowledged the end of a connection.
    pub(crate) fn awaits_disconnection(&self) -> bool {
        self.manager.as_ref().is_some_and(ConnectionManager::awaits_disconnection)
    }

    /// Returns true while the end of a connection is deferred until the program polls.
    #[inline]
    pub(crate) fn has_deferred_disconnects(&self) -> bool {
        self.manager.as_ref().is_some_and(ConnectionManager::has_deferred_disconnects)
    }

    /// Retransmits the end of its connection to every peer that has not acknowledged it.
    pub(crate) fn repeat_disconnections<M: Memory>(&mut self, device: &mut Device<M>) {
        if let Some(manager) = &mut self.manager {
            manager.repeat_disconnections(device, clock::now());
        }
    }

    /// Takes over the connection manager at `place`, which replaces this adapter's own. If this adapter has
    /// one and no program uses the other, drops the other.
    ///
    /// # Errors
    /// The adapter has no connection manager: `place` keeps its own.
    pub(crate) fn adopt<M: Memory>(
        &mut self,
        place: &mut Option<DetachedManager>,
        device: &mut Device<M>,
        wire: &mut Wire,
    ) -> Result<(), Unavailable> {
        if self.manager.is_some() && place.as_ref().is_none_or(|detached| detached.channels.is_empty()) {
            *place = None;
            return Ok(());
        }
        let (machine, joining, comm_ids) = self.open(wire)?;
        let adopted = ConnectionManager::of_detached(place, machine, joining, device.config(), comm_ids);
        if let Some(manager) = adopted.map_err(Unavailable::Options)? {
            self.begin(manager, device);
        }
        Ok(())
    }

    /// Returns the connection manager; starts it if necessary.
    fn started<M: Memory>(
        &mut self,
        device: &mut Device<M>,
        wire: &mut Wire,
    ) -> Result<&mut ConnectionManager, Unavailable> {
        if self.manager.is_none() {
            let (machine, joining, comm_ids) = self.open(wire)?;
            let options = (&self.options, self.identity_seed);
            let started = ConnectionManager::new(machine, joining, device.config(), comm_ids, options);
            self.begin(started.map_err(Unavailable::Options)?, device);
        }
        self.manager.as_mut().ok_or(Unavailable::Closed)
    }

    fn begin<M: Memory>(&mut self, manager: ConnectionManager, device: &mut Device<M>) {
        self.manager = Some(manager);
        if self.iwarp.is_none() {
            device.open_management();
        }
    }

    /// Opens the sockets and queries the addresses that a connection manager needs.
    fn open(&mut self, wire: &mut Wire) -> Result<Opened, Unavailable> {
        let address = wire.local().ip();
        if let Some(shared) = self.iwarp.clone() {
            let joining = Joining::new(address, shared).map_err(Unavailable::Sockets)?;
            wire.watch(&joining).map_err(Unavailable::Sockets)?;
            return Ok(((address, Machine::of_iwarp(address)), Some(joining), CommIdPrefix::default()));
        }
        let services = wire.open_services().map_err(|error| Unavailable::Services(errno_of(&error)))?;
        let (services, readable) = services.unzip();
        self.side_ports = self.side_ports.take().or(readable);
        let comm_ids = wire.slot().map(prefix_of).unwrap_or_default();
        Ok(((address, Machine::new(address, services)), None, comm_ids))
    }

    fn serve_groups<M: Memory>(&mut self, device: &mut Device<M>, wire: &mut Wire) {
        let Self { manager: Some(manager), side_ports, .. } = self else { return };
        for request in manager.take_group_requests() {
            match request {
                GroupRequest::Leave(group) => wire.leave(group),
                GroupRequest::Join(membership, group) => {
                    let joined =
                        wire.join(group).map_err(|error| nichrome_cm::Errno(errno_of(&error).raw_os_error()));
                    let result = joined.map(|readable| *side_ports = Some(readable)).map(|()| group);
                    manager.group_joined(membership, result, device, clock::now());
                }
            }
        }
    }
}
