//! iWARP's connections by address and port: TCP and MPA's start-up, until queue pairs have their streams.
//!
//! The connection manager issues requests ([`Streams::connect`], [`accept`](Streams::accept) and so on) and
//! gets their results as [`Outcome`]s. All sockets are in one epoll, nested in the adapter's.
//!
//! | connection | bound | time |
//! |---|---|---|
//! | inbound, its Request not complete | [`MAX_OPENING`]: the oldest of the source that has most is closed | 5 s (`REQUEST_TIMEOUT`) |
//! | inbound, the program has not answered | the manager's backlog and half-open connections | [`PROGRAM_TIMEOUT`] |
//! | outbound | the program's identifiers | [`PROGRAM_TIMEOUT`] |

mod call;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nichrome_cm::{IdName, StreamFailure, StreamName, StreamParameters};
use nichrome_port::{Epoll, Interest};
use nichrome_wire::{Instant, NumberMap};
use rustix::io::Errno;

use self::call::{Call, Outcomes, failure};
pub(super) use self::call::{Outcome, Ready};
use crate::connect::{Cause, Handshake, HandshakeStream, Phase, Route, SourceShares, dial_from};
use crate::iwarp::{self, IwarpOptions};

/// Connections whose Request is not complete.
const MAX_OPENING: usize = 512;

/// Connections accepted in one round.
const MAX_ACCEPTS: usize = 64;

/// How long the listeners leave the epoll after accept(2) has failed, because no descriptor is left.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the sockets are checked while a program polls.
const INTERVAL: Duration = Duration::from_micros(50);

/// A listening socket.
struct ListeningSocket {
    socket: TcpListener,
    address: SocketAddr,
    /// The identifiers that listen at its port, of either address family.
    owners: Vec<IdName>,
}

/// The connections of an adapter that are being set up.
pub(super) struct Streams {
    options: IwarpOptions,
    epoll: Epoll,
    last_token: u64,
    /// By token.
    listeners: BTreeMap<u64, ListeningSocket>,
    /// By token, which is the number of an inbound connection.
    calls: NumberMap<u64, HandshakeStream<Call>>,
    /// The tokens of the outbound calls.
    outgoing: BTreeMap<IdName, u64>,
    opening: SourceShares,
    outcomes: Outcomes,
    /// The earliest deadline of the calls.
    due: Option<Instant>,
    next_check: Instant,
    /// Set while the listeners are out of the epoll.
    paused_until: Option<Instant>,
    /// The kernel's error from the last accept(2); `None` once it has accepted a connection, or no connection
    /// waits.
    accept_error: Option<Errno>,
}

impl Streams {
    /// Starts without connections.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn new(shared: iwarp::Shared) -> rustix::io::Result<Self> {
        let iwarp::Shared { options, counters } = shared;
        Ok(Self {
            options,
            epoll: Epoll::new()?,
            last_token: 0,
            listeners: BTreeMap::new(),
            calls: NumberMap::default(),
            outgoing: BTreeMap::new(),
            opening: SourceShares::default(),
            outcomes: Outcomes::new(counters),
            due: None,
            next_check: Instant::ZERO,
            paused_until: None,
            accept_error: None,
        })
    }

    /// Starts accepting connections for an identifier.
    ///
    /// # Errors
    /// The kernel cannot watch the socket.
    pub(super) fn listen(&mut self, id: IdName, socket: TcpListener) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let token = self.next_token();
        self.epoll.add(&socket, token, Interest::READ)?;
        self.listeners.insert(token, ListeningSocket { socket, address, owners: vec![id] });
        Ok(())
    }

    /// Accepts connections for another identifier at a port, too.
    pub(super) fn share_listener(&mut self, id: IdName, port: u16) {
        let at_port = self.listeners.values_mut().filter(|listener| listener.address.port() == port);
        at_port.for_each(|listener| listener.owners.push(id));
    }

    /// Stops accepting connections for an identifier. Returns the listener's address if no other identifier
    /// listens there.
    pub(super) fn stop_listening(&mut self, id: IdName) -> Option<SocketAddr> {
        let (token, listener) =
            self.listeners.iter_mut().find(|(_, listener)| listener.owners.contains(&id))?;
        listener.owners.retain(|owner| *owner != id);
        let token = Some(*token).filter(|_| listener.owners.is_empty())?;
        let ListeningSocket { socket, address, .. } = self.listeners.remove(&token)?;
        // A forked child may have the socket, too, and keep its registration.
        let _ = self.epoll.remove(&socket);
        Some(address)
    }

    /// Connects an identifier from `local`. `bound` is the socket that reserves its port; `None` if another
    /// connection has taken that socket.
    pub(super) fn connect(
        &mut self,
        id: IdName,
        (local, peer): (SocketAddr, SocketAddr),
        bound: Option<OwnedFd>,
        parameters: &StreamParameters,
        now: Instant,
    ) {
        let token = self.next_token();
        let call = Call::outgoing(StreamName::Outgoing(id), &self.options, parameters, now);
        let dialled = match bound {
            Some(socket) => dial_from(socket.into(), peer),
            None => Err(ErrorKind::AddrInUse.into()),
        };
        match dialled {
            Ok(socket) => {
                let route = Route { from: local.ip(), to: peer };
                self.add(token, HandshakeStream::connecting(socket, route, call, now), now);
            }
            Err(error) => self.outcomes.add(Outcome::Failed(StreamName::Outgoing(id), failure(&error))),
        }
    }

    /// Accepts an inbound connection.
    pub(super) fn accept(&mut self, name: StreamName, parameters: &StreamParameters, now: Instant) {
        let options = self.options;
        let known = self.with_call(name, now, |call, outcomes| call.accept(&options, parameters, outcomes));
        if !known {
            self.outcomes.add(Outcome::Failed(name, StreamFailure::Refused(nichrome_cm::Errno::ECONNRESET)));
        }
    }

    /// Rejects an inbound connection.
    pub(super) fn reject(&mut self, name: StreamName, private_data: &[u8], now: Instant) {
        self.with_call(name, now, |call, _| call.reject(private_data));
    }

    /// Closes a connection without reporting an event.
    pub(super) fn forget(&mut self, name: StreamName) {
        let Some(token) = self.token_of(name) else { return };
        if let Some(mut stream) = self.remove(token) {
            stream.handshake.forget();
            stream.end();
        }
    }

    /// Serves the sockets and deadlines, at most once per [`INTERVAL`].
    pub(super) fn progress(&mut self, now: Instant) {
        if self.listeners.is_empty() && self.calls.is_empty() {
            (self.due, self.paused_until) = (None, None);
            return;
        }
        if now < self.next_check {
            return;
        }
        self.next_check = now + INTERVAL;
        let mut tokens = Vec::new();
        // If epoll_wait(2) fails, no socket is served in this round.
        let _ = self.epoll.wait(&mut tokens, Some(Instant::ZERO));
        for token in tokens {
            match self.listeners.contains_key(&token) {
                true => self.take_connections(token, now),
                false => self.advance(token, now),
            }
        }
        if self.due.is_some_and(|due| due <= now) {
            let is_late = |(token, stream): (&u64, &HandshakeStream<Call>)| {
                (stream.deadline() <= now).then_some(*token)
            };
            for token in self.calls.iter().filter_map(is_late).collect::<Vec<_>>() {
                self.close(token, Cause::Deadline);
            }
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.watch_listeners(Interest::READ);
            self.paused_until = None;
        }
        self.due = self.calls.values().map(HandshakeStream::deadline).min();
    }

    /// Returns the changes of connections since the last call.
    pub(super) fn take_outcomes(&mut self) -> Vec<Outcome> {
        self.outcomes.take()
    }

    /// The kernel's error if it could not accept the last connection.
    pub(super) const fn accept_error(&self) -> Option<Errno> {
        self.accept_error
    }

    /// The earliest deadline of the calls, or the end of the listeners' pause; zero if there are outcomes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let outcomes = (!self.outcomes.is_empty()).then_some(Instant::ZERO);
        [self.due, self.paused_until, outcomes].into_iter().flatten().min()
    }

    fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    fn token_of(&self, name: StreamName) -> Option<u64> {
        match name {
            StreamName::Incoming(token) => Some(token),
            StreamName::Outgoing(id) => self.outgoing.get(&id).copied(),
        }
    }

    /// Calls `f` with a call, then sends the call's output; returns false if there is no such call.
    fn with_call(
        &mut self,
        name: StreamName,
        now: Instant,
        act: impl FnOnce(&mut Call, &mut Outcomes),
    ) -> bool {
        let Some(token) = self.token_of(name) else { return false };
        let Some(stream) = self.calls.get_mut(&token) else { return false };
        act(&mut stream.handshake, &mut self.outcomes);
        self.advance(token, now);
        true
    }

    /// Accepts connections that TCP has set up, at most [`MAX_ACCEPTS`], and reads their first bytes.
    fn take_connections(&mut self, listener: u64, now: Instant) {
        for _ in 0..MAX_ACCEPTS {
            let Some(ListeningSocket { socket, .. }) = self.listeners.get(&listener) else { return };
            let (socket, peer) = match socket.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.accept_error = None;
                        return;
                    }
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    _ => {
                        self.accept_error = Errno::from_io_error(&error);
                        self.pause(now);
                        return;
                    }
                },
            };
            self.accept_error = None;
            while self.opening.len() >= MAX_OPENING
                && let Some(victim) = self.opening.victim()
            {
                self.displace(victim.token, now);
            }
            let source = peer.ip().to_canonical();
            // The peer has closed the connection already.
            let Ok(local) = socket.local_addr() else { continue };
            let Ok(mut stream) = HandshakeStream::<Call>::accepted(socket, source, now) else { continue };
            let token = self.next_token();
            stream.handshake.name_inbound(token, (local, peer));
            self.opening.insert(source, token);
            self.add(token, stream, now);
        }
    }

    /// Closes a connection, unless the bytes that have arrived complete its Request.
    fn displace(&mut self, token: u64, now: Instant) {
        self.advance(token, now);
        let is_opening = |stream: &HandshakeStream<Call>| stream.handshake.phase() == Phase::Opening;
        if self.calls.get(&token).is_some_and(is_opening) {
            self.close(token, Cause::Displaced);
        }
    }

    /// Takes the listeners out of the epoll for [`PAUSE`].
    fn pause(&mut self, now: Instant) {
        self.watch_listeners(Interest::NONE);
        self.paused_until = Some(now + PAUSE);
    }

    fn watch_listeners(&self, interest: Interest) {
        for (token, listener) in &self.listeners {
            // If the kernel refuses, the next round tries again.
            let _ = self.epoll.modify(&listener.socket, *token, interest);
        }
    }

    fn add(&mut self, token: u64, stream: HandshakeStream<Call>, now: Instant) {
        match self.epoll.add(&stream, token, stream.interest()) {
            Ok(()) => {
                self.due = Some(self.due.map_or(stream.deadline(), |due| due.min(stream.deadline())));
                if let StreamName::Outgoing(id) = stream.handshake.name() {
                    self.outgoing.insert(id, token);
                }
                self.calls.insert(token, stream);
                self.advance(token, now);
            }
            Err(error) => {
                self.opening.remove(stream.peer, token);
                stream.close(&mut self.outcomes, Cause::Io(error.into()));
            }
        }
    }

    /// Reads, runs the start-up and writes; releases the stream when it is set up or has failed.
    fn advance(&mut self, token: u64, now: Instant) {
        let Some(stream) = self.calls.get_mut(&token) else { return };
        let interest = stream.interest();
        stream.advance(&mut self.outcomes, now);
        if stream.handshake.phase() != Phase::Opening {
            self.opening.remove(stream.peer, token);
        }
        if stream.handshake.phase() == Phase::Done {
            if let Some(stream) = self.remove(token) {
                stream.end();
            }
        } else if stream.is_connected() {
            if let Some(stream) = self.remove(token) {
                stream.hand_over(&mut self.outcomes);
            }
        } else if stream.interest() != interest
            && let Err(error) = self.epoll.modify(&*stream, token, stream.interest())
        {
            self.close(token, Cause::Io(error.into()));
        }
    }

    fn close(&mut self, token: u64, cause: Cause) {
        if let Some(stream) = self.remove(token) {
            stream.close(&mut self.outcomes, cause);
        }
    }

    fn remove(&mut self, token: u64) -> Option<HandshakeStream<Call>> {
        let stream = self.calls.remove(&token)?;
        self.opening.remove(stream.peer, token);
        if let StreamName::Outgoing(id) = stream.handshake.name() {
            self.outgoing.remove(&id);
        }
        // A forked child may have the socket, too, and keep its registration.
        let _ = self.epoll.remove(&stream);
        Some(stream)
    }
}

impl AsFd for Streams {
    /// Readable while a socket is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use nichrome_cm::PortCondition;
    use nichrome_port::clock;
    use nichrome_rdma::iwarp::setup::{Initiator, Options};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

    use super::super::tcp_ports::TcpPorts;
    use super::*;

    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn connections_that_fail_at_once_leave_nothing() {
        let mut streams = Streams::new(iwarp::Shared::default()).unwrap();
        let address = ([127, 0, 0, 1], 1).into();
        for id in (0..1000).map(IdName) {
            let parameters = StreamParameters { private_data: Vec::new(), ird: 1, ord: 1 };
            streams.connect(id, (address, address), None, &parameters, clock::now());
            streams.forget(StreamName::Outgoing(id));
        }
        assert_eq!(streams.take_outcomes().len(), 1000);
        assert!(streams.outgoing.is_empty() && streams.calls.is_empty());
    }

    #[test]
    fn a_connection_whose_request_has_come_is_not_displaced() {
        let mut streams = Streams::new(iwarp::Shared::default()).unwrap();
        let listener = TcpListener::bind(HERE).unwrap();
        let address = listener.local_addr().unwrap();
        streams.listen(IdName(1), listener).unwrap();
        let mut now = clock::now();
        let mut progress = |streams: &mut Streams| {
            now = now + INTERVAL;
            streams.progress(now);
        };
        let mut honest = TcpStream::connect(address).unwrap();
        progress(&mut streams);
        let mut silent = Vec::new();
        // Each source has one connection.
        let mut connect_from = |nth: usize| {
            let stream =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            bind(&stream, &SocketAddr::from(([127, 0, 82 + (nth >> 8) as u8, nth as u8], 0))).unwrap();
            connect(&stream, &address).unwrap();
            silent.push(stream);
        };
        for nth in 1..MAX_OPENING {
            connect_from(nth);
            progress(&mut streams);
        }
        assert_eq!((streams.opening.len(), streams.take_outcomes().len()), (MAX_OPENING, 0));
        connect_from(MAX_OPENING);
        let request = Initiator::new(Options::default(), b"", Instant::ZERO).take_output();
        honest.write_all(&request).unwrap();
        progress(&mut streams);
        assert!(matches!(streams.take_outcomes()[..], [Outcome::Requested { .. }]));
    }

    /// A deadline that has passed would keep the driver's thread awake.
    #[test]
    fn without_connections_and_listeners_there_is_no_deadline() {
        let mut streams = Streams::new(iwarp::Shared::default()).unwrap();
        let parameters = StreamParameters { private_data: Vec::new(), ird: 1, ord: 1 };
        let peer = TcpListener::bind(HERE).unwrap();
        let (id, now, mut ports) = (IdName(1), clock::now(), TcpPorts::default());
        assert_eq!(ports.reserve(HERE, PortCondition::Reusable), Ok(()));
        let ends = (HERE, peer.local_addr().unwrap());
        streams.connect(id, ends, ports.take_bound(0), &parameters, now);
        assert!(streams.poll_timeout().is_some());
        streams.forget(StreamName::Outgoing(id));
        streams.progress(now + INTERVAL);
        assert_eq!(streams.poll_timeout(), None);

        streams.listen(id, peer).unwrap();
        streams.pause(now);
        streams.stop_listening(id);
        streams.progress(now + 2 * INTERVAL);
        assert_eq!(streams.poll_timeout(), None);
    }
}
