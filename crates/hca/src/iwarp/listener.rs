//! Connecting by address and port with private data, as with rdma_cm: the passive side.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use nichrome_port::{Epoll, Interest, clock};
use nichrome_rdma::iwarp::setup::{Options, Responder, SetupError};
use nichrome_wire::Instant;

use super::counters::{IwarpCounters, Refused, SharedCounters};
use super::establish::{EstablishError, Established, StartupStream};
use crate::connect::{SourceShares, listen};

/// Maximum number of connections whose Request is not complete. Beyond it, the oldest of the source that has
/// most is closed.
const MAX_OPENING: usize = 512;

/// Connections accepted in one round.
const MAX_ACCEPTS: usize = 64;

/// Tokens of the epoll; connections count up from [`FIRST_CONNECTION`].
const LISTENER: u64 = 0;
const FIRST_CONNECTION: u64 = 1;

/// Accepts connections at an address and port. Peers that are silent, or send no Request, do not delay the
/// others, and are counted.
pub struct Listener {
    listener: TcpListener,
    epoll: Epoll,
    opening: Mutex<Opening>,
    counters: SharedCounters,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// The connections whose Request is not complete.
struct Opening {
    connections: HashMap<u64, Incoming>,
    shares: SourceShares,
    next_token: u64,
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The port is taken, the address is not of this machine, or no descriptor is left.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let (listener, epoll) = (listen(address)?, Epoll::new()?);
        listener.set_nonblocking(true)?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        let (connections, shares) = (HashMap::new(), SourceShares::default());
        let opening = Mutex::new(Opening { connections, shares, next_token: FIRST_CONNECTION });
        Ok(Self { listener, epoll, opening, counters: SharedCounters::default() })
    }

    /// The address, with the port that the kernel chose for port 0.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Connections that were closed before their Request was complete, by reason. A peer has 5 s for its
    /// Request once TCP has accepted the connection.
    pub fn counters(&self) -> IwarpCounters {
        self.counters.get()
    }

    /// Waits for a peer and its Request.
    ///
    /// # Errors
    /// The kernel's, such as that no descriptor is left.
    pub fn accept(&self) -> Result<Incoming, EstablishError> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ready = Vec::new();
        loop {
            self.epoll.wait(&mut ready, opening.poll_timeout()).map_err(io::Error::from)?;
            // Reads before it accepts, so that no connection is displaced whose Request has come.
            ready.sort_unstable_by_key(|token| Reverse(*token));
            for token in ready.drain(..) {
                match token {
                    LISTENER => self.take_connections(&mut opening)?,
                    token => {
                        if let Some(incoming) = self.advance(&mut opening, token) {
                            return Ok(incoming);
                        }
                    }
                }
            }
            for token in opening.late(clock::now()) {
                self.close(&mut opening, token, Refused::TimedOut);
            }
        }
    }

    /// Accepts connections that TCP has set up. The next round reads their bytes.
    fn take_connections(&self, opening: &mut Opening) -> io::Result<()> {
        for _ in 0..MAX_ACCEPTS {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            while opening.connections.len() >= MAX_OPENING
                && let Some(victim) = opening.shares.victim()
            {
                self.close(opening, victim.token, Refused::Displaced);
            }
            opening.add(&self.epoll, socket, peer)?;
        }
        Ok(())
    }

    /// Reads from a connection; returns it if its Request is complete.
    fn advance(&self, opening: &mut Opening, token: u64) -> Option<Incoming> {
        let outcome = opening.connections.get_mut(&token)?.read();
        match outcome {
            Ok(None) => None,
            Ok(Some(private_data)) => {
                let incoming = self.remove(opening, token)?;
                match incoming.stream.socket.set_nonblocking(false) {
                    Ok(()) => Some(Incoming { private_data, ..incoming }),
                    Err(_) => None,
                }
            }
            Err(why) => {
                self.close(opening, token, why);
                None
            }
        }
    }

    fn close(&self, opening: &mut Opening, token: u64, why: Refused) {
        if self.remove(opening, token).is_some() {
            self.counters.count(why);
        }
    }

    fn remove(&self, opening: &mut Opening, token: u64) -> Option<Incoming> {
        let incoming = opening.connections.remove(&token)?;
        opening.shares.remove(incoming.source(), token);
        // A forked child may have the socket, too, and keep its registration.
        let _ = self.epoll.remove(&incoming.stream.socket);
        Some(incoming)
    }
}

impl Opening {
    fn add(&mut self, epoll: &Epoll, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let (token, stream) = (self.next_token, StartupStream::new(socket)?);
        self.next_token += 1;
        epoll.add(&stream.socket, token, Interest::READ)?;
        let responder = Responder::new(clock::now());
        let incoming = Incoming { stream, responder, peer, private_data: Vec::new() };
        self.shares.insert(incoming.source(), token);
        self.connections.insert(token, incoming);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connections.values().map(|incoming| incoming.responder.deadline()).min()
    }

    /// Returns the tokens of connections whose Request is overdue.
    fn late(&self, now: Instant) -> Vec<u64> {
        let is_late = |incoming: &Incoming| incoming.responder.deadline() <= now;
        let late = self.connections.iter().filter(|(_, incoming)| is_late(incoming));
        late.map(|(token, _)| *token).collect()
    }
}

/// A peer's Request, to be accepted or rejected. Dropping it closes the connection.
pub struct Incoming {
    stream: StartupStream,
    responder: Responder,
    peer: SocketAddr,
    private_data: Vec<u8>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Incoming {
    /// The peer's address and port.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Rejects the Request with private data.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn reject(mut self, private_data: &[u8]) -> io::Result<()> {
        self.responder.reject(private_data);
        self.stream.write(self.responder.take_output())
    }

    /// Accepts the Request with private data.
    pub(crate) fn accept(
        mut self,
        options: &Options,
        private_data: &[u8],
    ) -> Result<Established, EstablishError> {
        let outcome = self.responder.accept(options, private_data);
        self.stream.write(self.responder.take_output())?;
        let connected = outcome?;
        let stream = self.stream.into_stream(Vec::new())?;
        Ok(Established { terms: connected.terms, private_data: connected.private_data, stream })
    }

    /// The source whose connections share places: the peer's IP address.
    fn source(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Reads once; returns the private data of a complete Request.
    fn read(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        let bytes = match self.stream.read() {
            Ok(bytes) if bytes.is_empty() => return Err(Refused::Closed),
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(None),
                _ => return Err(Refused::Closed),
            },
        };
        let private_data =
            self.responder.receive(&bytes).map_err(|error: SetupError| Refused::from(&error))?;
        Ok(private_data.map(<[u8]>::to_vec))
    }
}
