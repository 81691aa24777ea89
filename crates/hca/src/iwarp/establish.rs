//! Connections by address and port, with private data of the programs, as rdma_cm makes them: blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nichrome_port::clock;
use nichrome_rdma::ModifyError;
use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::iwarp::setup::{Initiator, Options, Responder, SetupError};
use nichrome_wire::Instant;
use thiserror::Error;

use super::pending::AttachError;
use crate::connected_stream::{ConnectedStream, Sender};

/// How long the peer's kernel may take to accept the TCP connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of one read: more than a start frame.
const CHUNK: usize = 4096;

/// Why a connection by address and port was not made.
#[derive(Debug, Error)]
pub enum EstablishError {
    /// TCP.
    #[error("no TCP connection with the peer: {0}")]
    Tcp(#[from] io::Error),
    /// MPA's start-up, such as a rejection with private data.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The queue pair is connected already, or cannot be.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The queue pair cannot have the stream.
    #[error("the queue pair cannot take the connection: {0}")]
    Attach(String),
    /// The adapter's transport is another.
    #[error("connections by address and port are iWARP's: open the adapter with that transport")]
    Transport,
}

impl From<AttachError> for EstablishError {
    fn from(error: AttachError) -> Self {
        Self::Attach(error.to_string())
    }
}

/// A connection for a queue pair.
pub(crate) struct Established {
    pub(crate) terms: Terms,
    /// The peer's.
    pub(crate) private_data: Vec<u8>,
    pub(crate) stream: ConnectedStream,
}

/// A TCP connection during MPA's start-up.
struct Talk {
    socket: TcpStream,
    transcript: Vec<(Sender, Vec<u8>)>,
}

impl Talk {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, transcript: Vec::new() })
    }

    fn say(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if !bytes.is_empty() {
            self.socket.write_all(&bytes)?;
            self.transcript.push((Sender::Local, bytes));
        }
        Ok(())
    }

    /// Waits for bytes of the peer until `deadline`.
    fn hear(&mut self, deadline: Instant) -> Result<Vec<u8>, EstablishError> {
        let left = Duration::from_nanos(deadline.nanos_since(clock::now()));
        if left.is_zero() {
            return Err(SetupError::Timeout.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut chunk = [0; CHUNK];
        match self.socket.read(&mut chunk) {
            Ok(0) => Err(SetupError::Closed.into()),
            Ok(len) => {
                self.transcript.push((Sender::Peer, chunk[..len].to_vec()));
                Ok(chunk[..len].to_vec())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(SetupError::Timeout.into()),
                ErrorKind::Interrupted => Ok(Vec::new()),
                _ => Err(error.into()),
            },
        }
    }

    fn into_stream(self, rest: Vec<u8>) -> io::Result<ConnectedStream> {
        self.socket.set_nonblocking(true)?;
        let mut set_up = self.transcript;
        if let Some((Sender::Peer, last)) = set_up.last_mut() {
            last.truncate(last.len() - rest.len());
        }
        Ok(ConnectedStream { socket: self.socket, set_up, rest, by_number: false })
    }
}

/// Connects to a listener.
///
/// # Errors
/// TCP or MPA's start-up fails, or the peer rejects.
pub(crate) fn connect(
    to: SocketAddr,
    options: Options,
    private_data: &[u8],
) -> Result<Established, EstablishError> {
    let mut talk = Talk::new(TcpStream::connect_timeout(&to, DIAL_TIMEOUT)?)?;
    let mut initiator = Initiator::new(options, private_data, clock::now());
    talk.say(initiator.take_output())?;
    loop {
        let heard = talk.hear(initiator.deadline())?;
        let outcome = initiator.receive(&heard);
        // A TERMINATE, if the Reply cannot be agreed to.
        talk.say(initiator.take_output())?;
        if let Some(mut connected) = outcome? {
            let rest = mem::take(&mut connected.rest);
            let stream = talk.into_stream(rest)?;
            return Ok(Established { terms: connected.terms, private_data: connected.private_data, stream });
        }
    }
}

/// Accepts connections at an address and port.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The port is taken, or the address is not of this machine.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address)? })
    }

    /// The address, with the port that the kernel chose for port 0.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for a peer and its Request. The peer has 5 s for the Request once TCP has accepted it.
    ///
    /// # Errors
    /// The peer does not send a Request in time; the listener can accept others.
    pub fn accept(&self) -> Result<Incoming, EstablishError> {
        let (socket, peer) = self.listener.accept()?;
        let mut talk = Talk::new(socket)?;
        let mut responder = Responder::new(clock::now());
        loop {
            let heard = talk.hear(responder.deadline())?;
            if let Some(private_data) = responder.receive(&heard)? {
                let private_data = private_data.to_vec();
                return Ok(Incoming { talk, responder, peer, private_data });
            }
        }
    }
}

/// A peer's Request, to be accepted or rejected. Dropping it closes the connection.
pub struct Incoming {
    talk: Talk,
    responder: Responder,
    peer: SocketAddr,
    private_data: Vec<u8>,
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
        self.talk.say(self.responder.take_output())
    }

    /// Accepts the Request with private data.
    pub(crate) fn accept(
        mut self,
        options: &Options,
        private_data: &[u8],
    ) -> Result<Established, EstablishError> {
        let outcome = self.responder.accept(options, private_data);
        self.talk.say(self.responder.take_output())?;
        let connected = outcome?;
        let stream = self.talk.into_stream(Vec::new())?;
        Ok(Established { terms: connected.terms, private_data: connected.private_data, stream })
    }
}
