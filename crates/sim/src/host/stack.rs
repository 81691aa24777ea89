//! smoltcp's TCP of one connection, and its program. Each connection has its own interface, so that the cost
//! per connection does not grow with the number of connections.

use std::collections::VecDeque;

use nichrome_wire::{Instant, Ipv4Header, TcpHeader};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, State};
use smoltcp::time::{Duration, Instant as TcpInstant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, TcpSeqNumber};

use super::application::{Application, ProgramCounters, Reading, Role, Stepped};
use super::config::{CongestionControl, HostConfig, Nagle};
use super::endpoints::Endpoints;
use super::outgoing_stream::{OutgoingStream, Payload};
use super::port::Port;
use super::segment;
use super::window::Window;
use crate::HostId;

/// smoltcp with a single socket, and its program.
pub(super) struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    application: Application,
    outgoing: OutgoingStream,
    endpoints: Endpoints,
    /// The sequence number of the first unread byte; meaningless before the peer's SYN.
    read_until: TcpSeqNumber,
}

impl Stack {
    pub(super) fn new(
        host: HostId,
        config: &HostConfig,
        endpoints: Endpoints,
        role: Role,
        seed: u64,
    ) -> Self {
        let mut hardware = Config::new(HardwareAddress::Ip);
        hardware.random_seed = seed;
        let mut unused = VecDeque::new();
        let mut port = Port { host, config, received: None, sent: &mut unused };
        let mut interface = Interface::new(hardware, &mut port, TcpInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // All hosts are on one network.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(host.ip()), 8));
        });
        let payload = if role == Role::Attached { Payload::Buffered } else { Payload::Pattern };
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(new_socket(config));
        let (application, outgoing) = (Application::new(role), OutgoingStream::new(payload));
        let read_until = TcpSeqNumber::default();
        Self { interface, sockets, socket, application, outgoing, endpoints, read_until }
    }

    pub(super) fn connect(&mut self) {
        let Endpoints { local_port, remote, remote_port } = self.endpoints;
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        // Fails only if the socket is in use, or a port or address is zero.
        let _ = socket.connect(self.interface.context(), (remote.ip(), remote_port), local_port);
    }

    pub(super) fn listen(&mut self) {
        let port = self.endpoints.local_port;
        // Fails only if the socket is in use or the port is zero.
        let _ = self.socket_mut().listen(port);
    }

    pub(super) fn set_reading(&mut self, reading: Reading) {
        self.application.reading = reading;
    }

    /// Passes bytes to TCP; returns the number accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.socket_mut().send_slice(bytes).unwrap_or(0)
    }

    /// Appends up to `most` received bytes to `into`; returns the number.
    pub(super) fn read(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let socket = self.socket_mut();
        let before = into.len();
        while into.len() - before < most && socket.can_recv() {
            let left = most - (into.len() - before);
            let taken = socket.recv(|bytes| {
                let len = bytes.len().min(left);
                into.extend_from_slice(&bytes[..len]);
                (len, len)
            });
            if taken.is_err() {
                break;
            }
        }
        let read = into.len() - before;
        self.read_until += read;
        read
    }

    /// Runs TCP, then the program.
    pub(super) fn step(
        &mut self,
        port: &mut Port<'_>,
        tcp_now: TcpInstant,
        now: Instant,
        latency: &mut impl FnMut(u64),
    ) -> Stepped {
        let packet = port.received.take();
        self.pass(packet, port, tcp_now);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        let read_before = self.application.counters.received;
        let progressed = self.application.run(socket, now, latency);
        self.read_until += (self.application.counters.received - read_before) as usize;
        let is_established = socket.may_send();
        Stepped { progressed, is_established, is_complete: self.application.is_complete() }
    }

    /// Passes an IP packet to TCP, if any, and runs TCP.
    fn pass(&mut self, packet: Option<&[u8]>, port: &mut Port<'_>, now: TcpInstant) {
        let changed = packet.and_then(|packet| self.without_excess(packet, port.host));
        let received = changed.as_deref().or(packet);
        let was_open = is_open(self.socket().state());
        let mut port = Port { host: port.host, config: port.config, received, sent: port.sent };
        self.interface.poll(now, &mut port, &mut self.sockets);
        if !was_open && is_open(self.socket().state()) {
            let syn = packet.and_then(place);
            self.read_until = syn.map_or(self.read_until, |(syn, _)| syn + 1);
        }
    }

    /// Returns the packet without the bytes for which the receive buffer has no room; `None` if there is room
    /// for all. smoltcp 0.14 scales the window field of its SYN ACK, which is not scaled on the wire (RFC
    /// 7323, 2.2), and panics on bytes beyond its buffer.
    fn without_excess(&self, packet: &[u8], host: HostId) -> Option<Vec<u8>> {
        let window = self.room()?;
        let (first, len) = place(packet)?;
        let range = window.cut(first, len);
        let ends_within = range.as_ref().map_or(first + len < window.end, |range| range.end == len);
        if ends_within {
            return None;
        }
        let mut segment = segment::read(packet, host, self.endpoints.remote)?;
        match range {
            Some(range) => segment.payload = &segment.payload[..range.end],
            // Moves a segment beyond the window before the window: TCP answers both in the same way.
            None => segment.seq_number = self.read_until - 1 - len,
        }
        let mut packet = vec![0; segment::packet_len(&segment)];
        segment::write(&segment, self.endpoints.remote, host, &mut packet);
        Some(packet)
    }

    /// Returns the window up to the end of the receive buffer; `None` before the peer's SYN.
    fn room(&self) -> Option<Window> {
        let socket = self.socket();
        let has_fin =
            matches!(socket.state(), State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
        let read_until = self.read_until + usize::from(has_fin);
        is_open(socket.state()).then(|| Window {
            start: read_until + socket.recv_queue(),
            end: read_until + socket.recv_capacity(),
        })
    }

    /// Writes payload and checksum of the frames from `first` on.
    pub(super) fn complete(&mut self, sent: &mut VecDeque<Vec<u8>>, first: usize) {
        for frame in sent.range_mut(first..) {
            self.outgoing.complete(frame);
        }
    }

    /// Returns when TCP's timers are due.
    pub(super) fn poll_at(&mut self, now: TcpInstant) -> Option<TcpInstant> {
        self.interface.poll_at(now, &self.sockets)
    }

    /// Returns when the program needs to run again without input.
    pub(super) fn resumes(&self) -> Option<Instant> {
        self.application.resumes()
    }

    pub(super) fn program_counters(&self) -> ProgramCounters {
        self.application.counters
    }

    pub(super) fn socket(&self) -> &tcp::Socket<'static> {
        self.sockets.get(self.socket)
    }

    /// Returns the free space of the send buffer, in bytes.
    pub(super) fn writable(&self) -> usize {
        let socket = self.socket();
        if socket.can_send() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

/// Returns true if the peer's sequence numbers are known.
fn is_open(state: State) -> bool {
    !matches!(state, State::Closed | State::Listen | State::SynSent)
}

/// Returns the sequence number and the payload length of an IP packet's segment.
fn place(packet: &[u8]) -> Option<(TcpSeqNumber, usize)> {
    let tcp = TcpHeader::new(Ipv4Header::new(packet)?.payload()?)?;
    Some((TcpSeqNumber(tcp.seq().0 as i32), tcp.payload()?.len()))
}

fn new_socket(config: &HostConfig) -> tcp::Socket<'static> {
    let buffer = |len| tcp::SocketBuffer::new(zeroed(len));
    let mut socket = tcp::Socket::new(buffer(config.receive_buffer), buffer(config.send_buffer));
    socket.set_congestion_control(match config.congestion_control {
        CongestionControl::None => tcp::CongestionControl::None,
        CongestionControl::Reno => tcp::CongestionControl::Reno,
        CongestionControl::Cubic => tcp::CongestionControl::Cubic,
    });
    socket.set_nagle_enabled(config.nagle == Nagle::On);
    socket.set_ack_delay(config.ack_delay.map(|nanos| Duration::from_micros(nanos / 1000)));
    socket
}

/// Returns `len` zeros. From 16 KiB on, allocates pages of their own, which take memory only once they are
/// written; an allocator clears smaller blocks itself, which writes them.
fn zeroed(len: usize) -> Vec<u8> {
    const SMALL: usize = 16 << 10;
    const OWN_PAGES: usize = 256 << 10;
    let mut bytes = vec![0; if len < SMALL { len } else { len.max(OWN_PAGES) }];
    bytes.truncate(len);
    bytes
}
