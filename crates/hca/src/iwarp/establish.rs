//! Connecting by address and port with private data, as with rdma_cm: the active side.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nichrome_port::clock;
use nichrome_rdma::ModifyError;
use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::iwarp::setup::{Initiator, Options, SetupError};
use nichrome_wire::Instant;
use thiserror::Error;

use super::pending::AttachError;
use crate::connected_stream::{ConnectedStream, Sender};

/// How long the peer's kernel may take to accept the TCP connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of one read: more than a start frame.
const CHUNK: usize = 4096;

/// Why a connection by address and port was not established.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EstablishError {
    /// The TCP connection cannot be opened, or is lost.
    #[error("no TCP connection with the peer: {0}")]
    Tcp(#[from] io::Error),
    /// MPA's start-up failed: for example, the peer rejected with private data.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The queue pair is connected already, or cannot be connected.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The queue pair does not accept the stream.
    #[error("the queue pair does not accept the connection: {0}")]
    Attach(String),
    /// The adapter's transport is not iWARP.
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
    /// The peer's private data.
    pub(crate) private_data: Vec<u8>,
    pub(crate) stream: ConnectedStream,
}

/// A TCP connection during MPA's start-up.
pub(super) struct StartupStream {
    pub(super) socket: TcpStream,
    transcript: Vec<(Sender, Vec<u8>)>,
}

impl StartupStream {
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, transcript: Vec::new() })
    }

    pub(super) fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if !bytes.is_empty() {
            self.socket.write_all(&bytes)?;
            self.transcript.push((Sender::Local, bytes));
        }
        Ok(())
    }

    /// Reads once. An empty result is the end of the stream.
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut chunk = [0; CHUNK];
        let len = self.socket.read(&mut chunk)?;
        self.transcript.push((Sender::Peer, chunk[..len].to_vec()));
        Ok(chunk[..len].to_vec())
    }

    /// Waits for bytes of the peer until `deadline`.
    fn wait(&mut self, deadline: Instant) -> Result<Vec<u8>, EstablishError> {
        let left = Duration::from_nanos(deadline.nanos_since(clock::now()));
        if left.is_zero() {
            return Err(SetupError::Timeout.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        match self.read() {
            Ok(bytes) if bytes.is_empty() => Err(SetupError::Closed.into()),
            Ok(bytes) => Ok(bytes),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(SetupError::Timeout.into()),
                ErrorKind::Interrupted => Ok(Vec::new()),
                _ => Err(error.into()),
            },
        }
    }

    pub(super) fn into_stream(self, rest: Vec<u8>) -> io::Result<ConnectedStream> {
        self.socket.set_nonblocking(true)?;
        Ok(ConnectedStream::new(self.socket, self.transcript, rest))
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
    let mut startup = StartupStream::new(TcpStream::connect_timeout(&to, DIAL_TIMEOUT)?)?;
    let mut initiator = Initiator::new(options, private_data, clock::now());
    startup.write(initiator.take_output())?;
    loop {
        let bytes = startup.wait(initiator.deadline())?;
        let outcome = initiator.receive(&bytes);
        // A TERMINATE if this side cannot accept the Reply.
        startup.write(initiator.take_output())?;
        if let Some(mut connected) = outcome? {
            let rest = mem::take(&mut connected.rest);
            let stream = startup.into_stream(rest)?;
            return Ok(Established { terms: connected.terms, private_data: connected.private_data, stream });
        }
    }
}
