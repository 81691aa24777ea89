//! Attaches iWARP's connections to their queue pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_cm::{Errno, IdName, Input, Manager, Output, StreamFailure, StreamName, StreamParameters};
use nichrome_rdma::{Access, Device, Memory, QpChange, QpHandle, QpNumber, QpState};
use nichrome_wire::{Engine, Instant, NumberMap};

use super::attributes::stop;
use super::endpoint::{Connection, EndpointNumber};
use super::error::ConnectError;
use super::machine::Machine;
use super::streams::{Outcome, Ready, Streams};
use crate::iwarp;
use crate::wire::Wire;

/// Connects queue pairs over TCP.
pub(crate) struct Joining {
    /// The adapter's address.
    address: IpAddr,
    streams: Streams,
    /// The queue pairs of connections in set-up, and of established ones.
    qps: BTreeMap<StreamName, QpHandle>,
    /// The latest connection of each queue pair: a program may have reset the queue pair since an earlier
    /// one.
    latest: NumberMap<QpHandle, StreamName>,
    /// The established connections.
    established: NumberMap<QpHandle, StreamName>,
    /// Set up, but not yet joined to their queue pairs.
    ready: Vec<Ready>,
    /// Identifiers of Rust programs whose connection request found no listener.
    refused: BTreeSet<IdName>,
}

impl Joining {
    /// Starts without connections.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(address: IpAddr, shared: iwarp::Shared) -> rustix::io::Result<Self> {
        let (qps, latest, established) = (BTreeMap::new(), NumberMap::default(), NumberMap::default());
        let (ready, refused) = (Vec::new(), BTreeSet::new());
        Ok(Self { address, streams: Streams::new(shared)?, qps, latest, established, ready, refused })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.streams.poll_timeout() } else { Some(Instant::ZERO) }
    }

    pub(super) const fn accept_error(&self) -> Option<rustix::io::Errno> {
        self.streams.accept_error()
    }

    /// Executes an output of the engine. `connections` has the connections of Rust programs.
    pub(super) fn execute_output<M: Memory>(
        &mut self,
        output: Output,
        connections: &BTreeMap<EndpointNumber, Connection>,
        engine: &mut Manager<Machine>,
        device: &mut Device<M>,
        now: Instant,
    ) {
        match output {
            Output::Listen { id, local, .. } => {
                let ports = engine.host_mut().tcp_ports();
                match ports.and_then(|ports| ports.take_listener(local.port())) {
                    // If the kernel cannot watch the listener, no connection is accepted.
                    Some(listener) => drop(self.streams.listen(id, listener)),
                    None => self.streams.share_listener(id, local.port()),
                }
            }
            Output::StopListening(id) => {
                let closed = self.streams.stop_listening(id);
                if let Some((ports, address)) = engine.host_mut().tcp_ports().zip(closed) {
                    ports.listener_closed(address);
                }
            }
            Output::Connect { id, local, peer, qp, parameters } => {
                let name = StreamName::Outgoing(id);
                if let Err(error) = self.reserve(name, qp, connections, device) {
                    return self.report(engine, name, Err(StreamFailure::Other(error)), now);
                }
                let bound = engine.host_mut().tcp_ports().and_then(|ports| ports.take_bound(local.port()));
                self.streams.connect(id, (local, peer), bound, &parameters, now);
            }
            Output::Accept { stream, qp, parameters } => {
                match self.reserve(stream, qp, connections, device) {
                    Ok(()) => self.streams.accept(stream, &parameters, now),
                    Err(error) => {
                        self.streams.reject(stream, &[], now);
                        self.report(engine, stream, Err(StreamFailure::Other(error)), now);
                    }
                }
            }
            Output::Reject { stream, private_data } => self.streams.reject(stream, &private_data, now),
            Output::Disconnect(name) => {
                if let Some(qp) = self.qps.get(&name) {
                    stop(device, *qp);
                }
            }
            Output::Release(name) => {
                if let StreamName::Outgoing(id) = name {
                    self.refused.remove(&id);
                }
                self.streams.forget(name);
                self.leave(name, device);
            }
            _ => {}
        }
    }

    /// Reports the outcome of a connection to the manager.
    fn report(
        &self,
        engine: &mut Manager<Machine>,
        name: StreamName,
        result: Result<StreamParameters, StreamFailure>,
        now: Instant,
    ) {
        let local = SocketAddr::new(self.address, 0);
        engine.receive(
            match name {
                StreamName::Outgoing(id) => Input::Replied { id, local, result },
                StreamName::Incoming(_) => Input::Accepted(name, result.map(drop)),
            },
            now,
        );
    }

    /// Holds the queue pair of a connection until it has its stream.
    fn reserve<M: Memory>(
        &mut self,
        name: StreamName,
        number: QpNumber,
        connections: &BTreeMap<EndpointNumber, Connection>,
        device: &mut Device<M>,
    ) -> Result<(), Errno> {
        let qp = device.qp_of(number).ok_or(Errno::EINVAL)?;
        // A Rust program has chosen the rights. For others, the rights of regions decide, as on siw.
        let has_rights = connections.values().rev().any(|connection| connection.qp == qp);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let access = (!has_rights).then_some(access);
        let change = QpChange { access, ..QpChange::to(QpState::Rtr) };
        device.modify_qp(qp, &change).map_err(|_| Errno::EINVAL)?;
        device.hold_qp(qp).map_err(|_| Errno::EINVAL)?;
        self.qps.insert(name, qp);
        self.latest.insert(qp, name);
        Ok(())
    }

    /// Moves the queue pair of a connection that has ended or failed to ERROR; otherwise it would stay held
    /// in RTR. StaR's set-up does so too, as does librdmacm with the queue pairs that it has created.
    fn leave<M: Memory>(&mut self, name: StreamName, device: &mut Device<M>) {
        let Some(qp) = self.qps.remove(&name) else { return };
        if self.established.get(&qp) == Some(&name) {
            self.established.remove(&qp);
        }
        if self.latest.get(&qp) == Some(&name) {
            self.latest.remove(&qp);
            stop(device, qp);
        }
    }

    /// The error of a rejected connection: `NoListener` if the peer's TCP refused it, else `Rejected` with
    /// the peer's private data.
    pub(super) fn rejection(&mut self, id: IdName, private_data: Vec<u8>) -> ConnectError {
        match self.refused.remove(&id) {
            true => ConnectError::NoListener,
            false => ConnectError::Rejected(private_data),
        }
    }

    /// Reads and writes the sockets, and passes the outcomes to the engine.
    pub(super) fn progress<M: Memory>(
        &mut self,
        engine: &mut Manager<Machine>,
        device: &mut Device<M>,
        now: Instant,
    ) {
        self.streams.progress(now);
        for outcome in self.streams.take_outcomes() {
            match outcome {
                Outcome::Requested { stream, local, peer, parameters } => {
                    engine.receive(Input::Incoming { stream, local, peer, parameters }, now);
                }
                Outcome::Failed(name, failure) => {
                    self.leave(name, device);
                    if let (StreamName::Outgoing(id), StreamFailure::Refused(Errno::ECONNREFUSED)) =
                        (name, &failure)
                    {
                        self.refused.insert(id);
                    }
                    self.report(engine, name, Err(failure), now);
                }
                Outcome::Ready(ready) => self.ready.push(ready),
            }
        }
    }

    /// Attaches the streams that are set up to their queue pairs, which enter RTS.
    pub(super) fn join<M: Memory>(
        &mut self,
        engine: &mut Manager<Machine>,
        device: &mut Device<M>,
        wire: &mut Wire,
        now: Instant,
    ) {
        for Ready { name, terms, private_data, stream } in std::mem::take(&mut self.ready) {
            let Some(qp) = self.qps.get(&name).copied() else { continue };
            let connected = device.connect(qp, &terms).map_err(|_| Errno::EINVAL);
            let connected = connected.and_then(|()| {
                device.modify_qp(qp, &QpChange::to(QpState::Rts)).map_err(|_| Errno::EINVAL)?;
                wire.attach_stream(qp, stream, now).map_err(|error| Errno(error.raw_os_error()))
            });
            match connected {
                Ok(()) => {
                    self.established.insert(qp, name);
                    // The peer's depths: its IRD is this end's agreed ORD, and its ORD this end's agreed IRD.
                    let depth = |depth: u16| depth.min(u8::MAX.into()) as u8;
                    let (ird, ord) = (depth(terms.ord), depth(terms.ird));
                    self.report(engine, name, Ok(StreamParameters { private_data, ird, ord }), now);
                }
                Err(error) => {
                    self.leave(name, device);
                    self.report(engine, name, Err(StreamFailure::Other(error)), now);
                }
            }
        }
    }

    /// Handles the end of a queue pair's stream: moves the queue pair to ERROR and informs the engine.
    pub(super) fn ended<M: Memory>(
        &mut self,
        qp: QpHandle,
        engine: &mut Manager<Machine>,
        device: &mut Device<M>,
        now: Instant,
    ) {
        if let Some(name) = self.established.remove(&qp) {
            self.leave(name, device);
            engine.receive(Input::Closed(name), now);
        }
    }
}

impl AsFd for Joining {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.streams.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::thread;
    use std::time::Duration;

    use nichrome_rdma::{PathMtu, QpCapacity};

    use super::*;
    use crate::arena::Arena;
    use crate::cm::{Connected, ConnectionManager};
    use crate::connected_stream::ConnectedStream;
    use crate::testing::TERMS;
    use crate::{Adapter, AdapterConfig, QueuePair, Transport};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn queue_pair(adapter: &Adapter) -> QueuePair {
        let cq = adapter.completion_queue(8).unwrap();
        adapter.queue_pair(QpCapacity::default(), &cq, &cq).unwrap()
    }

    #[test]
    fn the_end_of_its_connection_is_nothing_to_a_queue_pair_that_was_reset() {
        let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
        let (client, server) = (Adapter::open(&config).unwrap(), Adapter::open(&config).unwrap());
        let (listener, terms) = (server.listen(0, 0).unwrap(), crate::Connection::new(PathMtu::B1024));
        let [_peer, connected]: [Connected; 2] = thread::scope(|scope| {
            let peer =
                scope.spawn(|| client.connect(listener.address(), queue_pair(&client), b"", &terms).unwrap());
            let request = listener.accept(PATIENCE).unwrap().unwrap();
            let connected = request.accept(queue_pair(&server), b"", &terms).unwrap();
            [peer.join().unwrap(), connected]
        });
        let qp = connected.queue_pair();
        for state in [QpState::Reset, QpState::Init] {
            server.inner.driver.modify_qp(qp.handle(), &QpChange::to(state)).unwrap();
        }
        assert!(connected.wait_disconnected(PATIENCE).unwrap());
        assert_eq!(qp.state(), QpState::Init);
    }

    #[test]
    fn the_end_of_an_attempt_is_nothing_to_a_queue_pair_that_was_reset_and_is_connected_again() {
        let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let qp = queue_pair(&adapter);
        let (earlier, later) = (StreamName::Incoming(1), StreamName::Incoming(2));
        for (first, second, state) in [(earlier, later, QpState::Rtr), (later, earlier, QpState::Err)] {
            let leave = |name| {
                adapter.manage(|manager, device, _| manager.joining.as_mut().unwrap().leave(name, device))
            };
            adapter
                .manage(|manager, device, _| {
                    for name in [earlier, later] {
                        for state in [QpState::Reset, QpState::Init] {
                            device.modify_qp(qp.handle(), &QpChange::to(state)).unwrap();
                        }
                        let number = device.qp_number(qp.handle()).unwrap();
                        let (joining, connections) =
                            (manager.joining.as_mut().unwrap(), &manager.connections);
                        joining.reserve(name, number, connections, device).unwrap();
                    }
                })
                .unwrap();
            leave(first).unwrap();
            assert_eq!(qp.state(), state);
            leave(second).unwrap();
            assert_eq!(qp.state(), QpState::Err);
        }
    }

    #[test]
    fn a_queue_pair_whose_stream_cannot_be_watched_enters_error() {
        let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let qp = queue_pair(&adapter);
        // epoll cannot watch a regular file.
        let socket = TcpStream::from(OwnedFd::from(tempfile::tempfile().unwrap()));
        let join = |manager: &mut ConnectionManager, device: &mut Device<Arena>, _| {
            device.modify_qp(qp.handle(), &QpChange::to(QpState::Init)).unwrap();
            let number = device.qp_number(qp.handle()).unwrap();
            let (name, joining) = (StreamName::Incoming(1), manager.joining.as_mut().unwrap());
            joining.reserve(name, number, &manager.connections, device).unwrap();
            let stream = ConnectedStream::new(socket, Vec::new(), Vec::new());
            joining.ready.push(Ready { name, terms: TERMS, private_data: Vec::new(), stream });
        };
        adapter.manage(join).unwrap();
        assert_eq!(qp.state(), QpState::Err);
    }
}
