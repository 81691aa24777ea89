//! A node: processors, card, TCP and adapter.

use nichrome_wire::{Engine, Instant};

use super::adapter::Adapter;
use super::card::{Card, padded};
use super::config::{HostCosts, TestbedConfig, Transport};
use super::processors::Processors;
use crate::experiment::RunError;
use crate::host::{ConnectionId, Host, HostConfig, Role};
use crate::{HostId, Link, Packet, Timer};

/// The server's port.
const PORT: u16 = 5201;

/// Who pays for TCP's transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// A program, in its system call.
    Call,
    /// The kernel, after an interrupt or a timer.
    Kernel,
    /// The card.
    Card,
}

impl Context {
    /// Returns the context outside of a program's calls.
    pub(super) fn in_background(transport: Transport) -> Self {
        match transport {
            Transport::Sockets => Self::Kernel,
            Transport::Rdma | Transport::Packets(_) => Self::Card,
        }
    }
}

/// A node.
pub(super) struct Node {
    pub(super) costs: HostCosts,
    pub(super) processors: Processors,
    pub(super) card: Card,
    /// TCP of the kernel or of the card.
    pub(super) tcp: Host,
    pub(super) timer: Timer,
    /// The adapter, for RDMA transports.
    pub(super) adapter: Option<Adapter>,
    pub(super) uplink: Link,
    /// Bytes received by programs.
    pub(super) received: u64,
    /// Maximum bytes of a program's write: a segment, or the send buffer if that is smaller.
    pub(super) longest_write: usize,
    /// Content of programs' data, whose value is irrelevant.
    zeros: Vec<u8>,
    scratch: Vec<u8>,
}

impl Node {
    /// Creates a node for this number of programs and of application processes.
    pub(super) fn new(
        id: HostId,
        config: &TestbedConfig,
        programs: usize,
        application: usize,
    ) -> Result<Self, RunError> {
        let refused = |error: &dyn std::fmt::Display| RunError::Impossible(error.to_string());
        let longest_write = config.mss().min(config.tcp.send_buffer);
        let tcp = HostConfig { seed: config.seed, ..config.tcp };
        let adapter = match config.transport {
            Transport::Sockets => None,
            Transport::Rdma | Transport::Packets(_) => Some(Adapter::new(id, config)?),
        };
        Ok(Self {
            costs: config.costs,
            processors: Processors::new(config.interrupts, programs, application, config.balancing),
            card: Card::new(config.card),
            tcp: Host::new(id, tcp).map_err(|error| refused(&error))?,
            timer: Timer::default(),
            adapter,
            uplink: Link::new(config.link),
            received: 0,
            longest_write,
            zeros: vec![0; longest_write],
            scratch: Vec::new(),
        })
    }

    pub(super) fn listen(&mut self) {
        self.tcp.listen(PORT, Role::Attached);
    }

    pub(super) fn connect(&mut self, server: HostId, now: Instant) -> Result<(), RunError> {
        let connected = self.tcp.connect(server, PORT, Role::Attached, now);
        connected.map(|_| ()).map_err(|error| RunError::Impossible(error.to_string()))
    }

    /// Returns the next frame of TCP or the adapter.
    pub(super) fn poll(&mut self) -> Option<Packet> {
        let frame = self.tcp.poll().or_else(|| self.adapter.as_mut()?.poll());
        frame.map(|frame| Packet::from(padded(frame)))
    }

    /// Returns when TCP or the adapter has work.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let adapter = self.adapter.as_ref().and_then(Adapter::poll_timeout);
        [self.tcp.poll_timeout(), adapter].into_iter().flatten().min()
    }

    /// Returns the writable bytes of a connection.
    pub(super) fn writable(&self, connection: usize) -> usize {
        self.tcp.connections().get(connection).map_or(0, crate::host::Connection::writable)
    }

    /// Returns the readable bytes of a connection.
    pub(super) fn readable(&self, connection: usize) -> usize {
        self.tcp.connections().get(connection).map_or(0, crate::host::Connection::unread)
    }

    /// Writes a program's bytes, at most [the longest write](Self::longest_write).
    pub(super) fn write(&mut self, connection: usize, bytes: usize, now: Instant) -> usize {
        self.tcp.write(ConnectionId(connection), &self.zeros[..bytes.min(self.zeros.len())], now)
    }

    /// Reads bytes for a program.
    pub(super) fn read(&mut self, connection: usize, bytes: usize, now: Instant) -> usize {
        self.scratch.clear();
        let read = self.tcp.read(ConnectionId(connection), &mut self.scratch, bytes, now);
        self.received += read as u64;
        read
    }

    /// Attaches established TCP connections to streams of the adapter and begins MPA start-up.
    pub(super) fn start_streams(&mut self, now: Instant) {
        let Some(adapter) = &mut self.adapter else { return };
        while let Some(connection) = self.tcp.connections().get(adapter.connections()) {
            if connection.times().established.is_none() {
                return;
            }
            let id = ConnectionId(adapter.connections());
            if connection.endpoints().local_port == PORT {
                adapter.accept(now);
            } else {
                let request = adapter.open(now);
                self.tcp.write(id, &request, now);
            }
        }
    }

    /// Returns the number of retransmitted segments and datagrams.
    pub(super) fn retransmitted(&self) -> u64 {
        let by_tcp: u64 = self.tcp.connections().iter().map(crate::host::Connection::retransmitted).sum();
        by_tcp + self.adapter.as_ref().map_or(0, Adapter::retransmitted)
    }
}
