//! A connection: smoltcp's TCP with its own interface, so that the cost per connection does not grow with their
//! number.

use std::collections::VecDeque;
use std::fmt;

use nichrome_wire::{Instant, Ipv4Header, LinkHeader, SeqNumber, TcpHeader};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant as TcpInstant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::application::{Application, Done, Reading, Role};
use super::config::{CongestionControl, HostConfig, Nagle};
use super::outgoing_stream::{OutgoingStream, Payload};
use super::port::Port;
use crate::HostId;

/// The addresses of a connection, from the host's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// The local port.
    pub local_port: u16,
    /// The remote host.
    pub remote: HostId,
    /// The remote port.
    pub remote_port: u16,
}

/// A connection with its program.
pub struct Connection {
    endpoints: Endpoints,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    application: Application,
    outgoing: OutgoingStream,
    times: Times,
    sent_until: Option<SeqNumber>,
    retransmitted: u64,
    /// When to poll it next.
    pub(super) due: Option<Instant>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoints", &self.endpoints)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// Milestones of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The handshake completed.
    pub established: Option<Instant>,
    /// Last time that bytes were read.
    pub last_read: Option<Instant>,
    /// The program finished.
    pub complete: Option<Instant>,
}

impl Connection {
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
        Self {
            endpoints,
            interface,
            sockets,
            socket,
            application: Application::new(role),
            outgoing: OutgoingStream::new(payload),
            times: Times::default(),
            sent_until: None,
            retransmitted: 0,
            due: None,
        }
    }

    pub(super) fn connect(&mut self) {
        let Endpoints { local_port, remote, remote_port } = self.endpoints;
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        // Fails only if the socket is in use, or a port or address is zero.
        let _ = socket.connect(self.interface.context(), (remote.ip(), remote_port), local_port);
    }

    pub(super) fn listen(&mut self) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
        // Fails only if the socket is in use or the port is zero.
        let _ = socket.listen(self.endpoints.local_port);
    }

    pub(super) fn set_reading(&mut self, reading: Reading) {
        self.application.reading = reading;
    }

    /// Passes bytes to TCP; returns the number accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.sockets.get_mut::<tcp::Socket<'_>>(self.socket).send_slice(bytes).unwrap_or(0)
    }

    /// Appends up to `most` received bytes to `into`; returns the number.
    pub(super) fn read(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
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
        into.len() - before
    }

    /// Passes an IP packet to TCP, if any; runs TCP and the program; appends the frames to send to `port.sent`.
    pub(super) fn poll(&mut self, mut port: Port<'_>, now: Instant, latency: &mut impl FnMut(u64)) {
        let tcp_now = TcpInstant::from_micros((now.as_nanos() / 1000) as i64);
        let sent_before = port.sent.len();
        loop {
            self.interface.poll(tcp_now, &mut port, &mut self.sockets);
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
            let read_before = self.application.done.received;
            let goes_on = self.application.run(socket, now, latency);
            if self.application.done.received > read_before {
                self.times.last_read = Some(now);
            }
            if socket.may_send() && self.times.established.is_none() {
                self.times.established = Some(now);
            }
            if !goes_on {
                break;
            }
        }
        if self.times.complete.is_none() && self.application.is_complete() {
            self.times.complete = Some(now);
        }
        for frame in port.sent.range_mut(sent_before..) {
            self.outgoing.complete(frame);
            self.count_retransmission(frame);
        }
        self.due = self.next_poll(tcp_now, now);
    }

    /// Returns the next time for TCP's timers or the program, which is after `now`.
    fn next_poll(&mut self, tcp_now: TcpInstant, now: Instant) -> Option<Instant> {
        let timer = self.interface.poll_at(tcp_now, &self.sockets).map(|at| {
            let at = Instant::from_nanos(u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000));
            at.max(now.plus_nanos(1000))
        });
        [timer, self.application.resumes()].into_iter().flatten().min()
    }

    fn count_retransmission(&mut self, frame: &[u8]) {
        let Some((seq, len)) = payload_of(frame) else { return };
        let end = seq + len;
        match self.sent_until {
            Some(until) if !end.after(until) => self.retransmitted += 1,
            _ => self.sent_until = Some(end),
        }
    }

    /// Returns its addresses.
    pub fn endpoints(&self) -> Endpoints {
        self.endpoints
    }

    /// Returns its program's counters.
    pub fn done(&self) -> Done {
        self.application.done
    }

    /// Returns its milestones.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Returns the number of retransmitted segments with payload.
    pub fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Returns the TCP state.
    pub fn state(&self) -> tcp::State {
        self.sockets.get::<tcp::Socket<'_>>(self.socket).state()
    }

    /// Returns the unacknowledged bytes, sent or not.
    pub fn unacknowledged(&self) -> usize {
        self.sockets.get::<tcp::Socket<'_>>(self.socket).send_queue()
    }

    /// Returns the free space of the send buffer, in bytes.
    pub fn writable(&self) -> usize {
        let socket = self.sockets.get::<tcp::Socket<'_>>(self.socket);
        if socket.can_send() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    /// Returns the received and unread bytes.
    pub fn unread(&self) -> usize {
        self.sockets.get::<tcp::Socket<'_>>(self.socket).recv_queue()
    }
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

/// Returns `len` zeros in pages of their own, which take memory once they are written; an allocator clears smaller blocks itself.
fn zeroed(len: usize) -> Vec<u8> {
    const SMALL: usize = 16 << 10;
    const OWN_PAGES: usize = 256 << 10;
    let mut bytes = vec![0; if len < SMALL { len } else { len.max(OWN_PAGES) }];
    bytes.truncate(len);
    bytes
}

/// Returns sequence number and length of a segment's payload; `None` if empty.
fn payload_of(frame: &[u8]) -> Option<(SeqNumber, u32)> {
    let packet = LinkHeader::new(frame)?.payload();
    let tcp = TcpHeader::new(Ipv4Header::new(packet)?.payload()?)?;
    let len = tcp.payload()?.len() as u32;
    (len > 0).then(|| (tcp.seq(), len))
}
