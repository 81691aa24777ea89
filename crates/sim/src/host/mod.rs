//! TCP hosts: smoltcp in virtual time between Ethernet frames and simulated programs.
//!
//! A [`Host`] is an [`Engine`] over frames. Its TCP has congestion control, delayed ACKs, window scaling,
//! SACK (sent, but not used by the sender) and PSH at the end of the send buffer; a minimum retransmission
//! timeout of one second (RFC 6298); no timestamps, no ECN. TCP's time resolution is one microsecond. A host
//! sends as much at once as TCP allows; the queue of the following link should hold that. Programs that
//! accept a connection and only read from it have a separate TCP, which sends the same segments as smoltcp
//! and keeps no bytes (`sink.rs`).

mod application;
mod compact;
mod config;
mod connection;
mod endpoints;
mod outgoing_stream;
mod pattern;
mod port;
mod segment;
mod sink;
mod stack;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;

use nichrome_wan::DelayHistogram;
use nichrome_wire::{Engine, EtherType, Instant, IpProtocol, Ipv4Header, LinkHeader, TcpFlags, TcpHeader};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use thiserror::Error;

use self::application::Reading;
pub use self::application::{Exchange, ProgramCounters, Role};
pub(crate) use self::compact::Compact;
pub use self::config::{CongestionControl, HostConfig, HostConfigError, Nagle, Segmentation};
pub use self::connection::{Connection, Times};
pub use self::endpoints::Endpoints;
use self::port::Port;
use crate::HostId;

/// The number of a host's connection, in order of creation from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub usize);

/// A host: connections and their programs.
pub struct Host {
    id: HostId,
    config: HostConfig,
    connections: Vec<Connection>,
    /// Never iterated: the iteration order differs from run to run.
    by_endpoints: HashMap<Endpoints, ConnectionId>,
    /// The connections to poll, by time.
    due: BTreeSet<(Instant, ConnectionId)>,
    listening: HashMap<u16, Role>,
    random: Pcg64Mcg,
    next_port: u16,
    outbox: VecDeque<Vec<u8>>,
    latencies: DelayHistogram,
    counters: HostCounters,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("id", &self.id).field("config", &self.config).finish_non_exhaustive()
    }
}

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Received frames that are not TCP over IPv4 for this host.
    pub not_tcp_for_host: u64,
    /// Segments without a connection or a listening port.
    pub unmatched: u64,
    /// SYNs rejected because of the connection limit.
    pub refused: u64,
}

/// A failed attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// The configured connection limit is reached.
    #[error("the host has had its {0} connections: raise max_connections")]
    TooMany(usize),
    /// All ports are in use for this peer.
    #[error("every local port has a connection to this host and port already")]
    NoPort,
}

/// The first ephemeral port and the number of them, as in Linux.
const FIRST_PORT: u16 = 32_768;
const PORTS: u16 = 28_232;

impl Host {
    /// Creates a host without connections.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn new(id: HostId, config: HostConfig) -> Result<Self, HostConfigError> {
        config.validate()?;
        // Hosts with the same seed draw different random numbers.
        let mut random = Pcg64Mcg::seed_from_u64(config.seed ^ u64::from(id.0) << 48);
        let next_port = (random.next_u64() % u64::from(PORTS)) as u16;
        Ok(Self {
            id,
            config,
            connections: Vec::new(),
            by_endpoints: HashMap::new(),
            due: BTreeSet::new(),
            listening: HashMap::new(),
            random,
            next_port,
            outbox: VecDeque::new(),
            latencies: DelayHistogram::new(),
            counters: HostCounters::default(),
        })
    }

    /// Returns its number.
    pub fn id(&self) -> HostId {
        self.id
    }

    /// Accepts connections on a port, each with a program of this role.
    pub fn listen(&mut self, port: u16, role: Role) {
        self.listening.insert(port, role);
    }

    /// Opens a connection to a port of another host, with a program of this role. [`Engine::poll`] returns
    /// the SYN.
    ///
    /// # Errors
    /// The connection limit is reached, or all ports are in use.
    pub fn connect(
        &mut self,
        remote: HostId,
        remote_port: u16,
        role: Role,
        now: Instant,
    ) -> Result<ConnectionId, ConnectError> {
        let local_port = self.free_port(remote, remote_port).ok_or(ConnectError::NoPort)?;
        let id = self.add(Connection::connecting, Endpoints { local_port, remote, remote_port }, role)?;
        self.poll_connection(id, None, now);
        Ok(id)
    }

    /// Stops the program of a connection from reading: the receive window closes, and the sender stops.
    pub fn stop_reading(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.set_reading(Reading::Off);
        }
    }

    /// Resumes reading after [`Self::stop_reading`].
    pub fn resume_reading(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.set_reading(Reading::On);
            self.poll_connection(id, None, now);
        }
    }

    /// Writes to a connection of role [`Role::Attached`]; returns the number of bytes that TCP accepted.
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8], now: Instant) -> usize {
        let Some(connection) = self.connections.get_mut(id.0) else { return 0 };
        let written = connection.write(bytes);
        if written > 0 {
            self.poll_connection(id, None, now);
        }
        written
    }

    /// Appends up to `most` bytes from a connection of role [`Role::Attached`] to `into`; returns the number.
    pub fn read(&mut self, id: ConnectionId, into: &mut Vec<u8>, most: usize, now: Instant) -> usize {
        let Some(connection) = self.connections.get_mut(id.0) else { return 0 };
        let read = connection.read(into, most);
        if read > 0 {
            self.poll_connection(id, None, now);
        }
        read
    }

    /// Returns the connections in order of creation.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Returns the durations of all exchanges, from the first byte of the request to the last of the
    /// response.
    pub fn latencies(&self) -> &DelayHistogram {
        &self.latencies
    }

    /// Returns the bytes that all programs have read.
    pub fn bytes_read(&self) -> u64 {
        self.connections.iter().map(|connection| connection.program_counters().received).sum()
    }

    /// Returns the counters.
    pub fn counters(&self) -> HostCounters {
        self.counters
    }

    fn add(
        &mut self,
        create: fn(HostId, &HostConfig, Endpoints, Role, u64) -> Connection,
        endpoints: Endpoints,
        role: Role,
    ) -> Result<ConnectionId, ConnectError> {
        if self.connections.len() >= self.config.max_connections {
            return Err(ConnectError::TooMany(self.config.max_connections));
        }
        let id = ConnectionId(self.connections.len());
        let seed = self.random.next_u64();
        self.connections.push(create(self.id, &self.config, endpoints, role, seed));
        self.by_endpoints.insert(endpoints, id);
        Ok(id)
    }

    fn free_port(&mut self, remote: HostId, remote_port: u16) -> Option<u16> {
        (0..PORTS).find_map(|_| {
            let local_port = FIRST_PORT + self.next_port;
            self.next_port = (self.next_port + 1) % PORTS;
            let taken = self.by_endpoints.contains_key(&Endpoints { local_port, remote, remote_port });
            (!taken && !self.listening.contains_key(&local_port)).then_some(local_port)
        })
    }

    /// Returns the connection of a segment; a new one for a SYN to a listening port.
    fn connection_for(&mut self, segment: &Segment) -> Option<ConnectionId> {
        if let Some(id) = self.by_endpoints.get(&segment.endpoints) {
            return Some(*id);
        }
        let role = self.listening.get(&segment.endpoints.local_port).filter(|_| segment.opens);
        let Some(role) = role.copied() else {
            self.counters.unmatched += 1;
            return None;
        };
        let Ok(id) = self.add(Connection::listening, segment.endpoints, role) else {
            self.counters.refused += 1;
            return None;
        };
        Some(id)
    }

    fn poll_connection(&mut self, id: ConnectionId, packet: Option<&[u8]>, now: Instant) {
        let Self { connections, due, outbox, latencies, config, .. } = self;
        let connection = &mut connections[id.0];
        let was_due = connection.due;
        let port = Port { host: self.id, config, received: packet, sent: outbox };
        connection.poll(port, now, &mut |nanos| latencies.record(std::time::Duration::from_nanos(nanos)));
        if connection.due != was_due {
            was_due.map(|at| due.remove(&(at, id)));
            connection.due.map(|at| due.insert((at, id)));
        }
    }
}

/// The fields that identify a segment's connection.
struct Segment {
    endpoints: Endpoints,
    /// True for a SYN that opens a connection.
    opens: bool,
}

impl Segment {
    fn read(packet: &[u8], host: HostId) -> Option<Self> {
        let ip =
            Ipv4Header::new(packet).filter(|ip| ip.dst() == host.ip() && ip.protocol() == IpProtocol::TCP)?;
        let tcp = TcpHeader::new(ip.payload()?)?;
        let remote = HostId::of_ip(ip.src())?;
        let endpoints = Endpoints { local_port: tcp.dst_port(), remote, remote_port: tcp.src_port() };
        let flags = tcp.flags();
        let opens = flags.contains(TcpFlags::SYN) && !flags.intersects(TcpFlags::ACK | TcpFlags::RST);
        Some(Self { endpoints, opens })
    }
}

impl Engine for Host {
    /// A received frame.
    type Input = Vec<u8>;
    /// A frame to send.
    type Output = Vec<u8>;

    fn receive(&mut self, frame: Vec<u8>, now: Instant) {
        self.counters.received += 1;
        let packet = LinkHeader::new(&frame).filter(|link| link.ethertype() == EtherType::IPV4);
        let packet = packet.map(|link| link.payload());
        let Some((packet, segment)) =
            packet.and_then(|packet| Some((packet, Segment::read(packet, self.id)?)))
        else {
            self.counters.not_tcp_for_host += 1;
            return;
        };
        if let Some(id) = self.connection_for(&segment) {
            self.poll_connection(id, Some(packet), now);
        }
    }

    fn poll(&mut self) -> Option<Vec<u8>> {
        let frame = self.outbox.pop_front()?;
        self.counters.sent += 1;
        Some(frame)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.poll_connection(id, None, now);
        }
    }
}
