//! A handshake on its TCP socket.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nichrome_port::{Interest, uninterrupted};
use nichrome_wire::Instant;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::handshake::{Cause, Context, Handshake, Phase, Route};

/// How long the peer's kernel may leave a SYN or data unacknowledged.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the peer may take to read the last message.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes of one read.
const CHUNK: usize = 16 << 10;

/// Reads in one turn, so that one stream does not delay the others.
const MAX_READS: usize = 8;

/// Which side connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The peer.
    Inbound,
    /// This side.
    Outbound,
}

/// A handshake and the socket that carries it.
pub(crate) struct HandshakeStream<H> {
    socket: TcpStream,
    pub(crate) peer: IpAddr,
    pub(super) direction: Direction,
    pub(super) opened_at: Instant,
    pub(crate) handshake: H,
    /// No byte has been received.
    is_silent: bool,
    /// Bytes to be written.
    output: Vec<u8>,
    /// Set when the handshake enters [`Phase::Closing`].
    lingers_until: Option<Instant>,
}

impl<H: Handshake> HandshakeStream<H> {
    /// Starts an inbound handshake on an accepted socket.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn accepted(socket: TcpStream, peer: IpAddr, now: Instant) -> io::Result<Self> {
        prepare(&socket)?;
        Ok(Self::new(socket, peer, Direction::Inbound, H::inbound(peer, now), now))
    }

    /// Carries an outbound handshake on a socket that is connecting.
    pub(crate) fn connecting(socket: TcpStream, route: Route, handshake: H, now: Instant) -> Self {
        Self::new(socket, route.to.ip(), Direction::Outbound, handshake, now)
    }

    fn new(socket: TcpStream, peer: IpAddr, direction: Direction, handshake: H, now: Instant) -> Self {
        let (output, lingers_until) = (Vec::new(), None);
        Self { socket, peer, direction, opened_at: now, handshake, is_silent: true, output, lingers_until }
    }

    /// The readiness to watch the socket for.
    pub(crate) fn interest(&self) -> Interest {
        if self.output.is_empty() { Interest::READ } else { Interest::READ_WRITE }
    }

    /// When [`Cause::Deadline`] closes the stream.
    pub(crate) fn deadline(&self) -> Instant {
        self.lingers_until.unwrap_or_else(|| self.handshake.deadline())
    }

    /// Reads, runs the handshake and writes. If the phase is then [`Phase::Done`], the caller must call
    /// [`HandshakeStream::end`].
    pub(crate) fn advance(&mut self, context: &mut H::Context, now: Instant) {
        self.read(context, now);
        // After the read, which finds out if a peer has withdrawn and closed the stream.
        if self.handshake.phase() == Phase::Parked {
            self.handshake.resume(context, now);
        }
        self.write(context, now);
    }

    /// Ends the handshake for `cause`, and the stream.
    pub(crate) fn close(mut self, context: &mut H::Context, cause: Cause) {
        let has_sent_last_message = self.handshake.phase() == Phase::Closing;
        self.handshake.close(context, cause);
        self.finish(has_sent_last_message);
    }

    /// Ends the stream of a handshake in [`Phase::Done`].
    pub(crate) fn end(self) {
        self.finish(false);
    }

    /// Returns true if the handshake can take over the socket.
    pub(crate) fn is_connected(&self) -> bool {
        self.handshake.phase() == Phase::Connected && self.output.is_empty()
    }

    /// Gives the handshake its socket, with TCP's usual behaviour.
    pub(crate) fn hand_over(self, context: &mut H::Context) {
        // TCP sockets support both options.
        let _ = set_socket_linger(&self.socket, None);
        let _ = set_tcp_user_timeout(&self.socket, 0);
        self.handshake.connected(context, self.socket);
    }

    /// Writes the handshake's remaining output, then closes the stream: by FIN if the peer may have bytes to
    /// read, which a reset would discard.
    fn finish(mut self, has_unread: bool) {
        self.output.extend(self.handshake.take_output());
        let has_last_message = !self.output.is_empty();
        // If it fails, the peer sees the end of the stream.
        let _ = self.write_all();
        if has_unread || has_last_message {
            // If it fails, the peer sees a reset.
            let _ = set_socket_linger(&self.socket, None);
        }
    }

    fn read(&mut self, context: &mut H::Context, now: Instant) {
        if self.handshake.phase() == Phase::Connected {
            return;
        }
        let mut chunk = [0; CHUNK];
        for _ in 0..MAX_READS {
            match self.socket.read(&mut chunk) {
                Ok(0) => return self.handshake.close(context, Cause::Closed),
                Ok(_) if mem::take(&mut self.is_silent) && !context.trusts(&self.socket) => {
                    let cause = if self.is_closed() { Cause::Closed } else { Cause::Untrusted };
                    return self.handshake.close(context, cause);
                }
                Ok(len) if self.handshake.phase() != Phase::Closing => {
                    self.handshake.receive(context, &chunk[..len], now);
                }
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted => {}
                    _ => return self.handshake.close(context, Cause::Io(error)),
                },
            }
            if matches!(self.handshake.phase(), Phase::Connected | Phase::Done) {
                return;
            }
        }
    }

    /// Returns true if the peer has closed the stream and all its bytes are read. The kernel does not know
    /// the owner of a closed socket, so [`Context::trusts`] fails for it.
    fn is_closed(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    fn write(&mut self, context: &mut H::Context, now: Instant) {
        if self.handshake.phase() == Phase::Done {
            return;
        }
        self.output.extend(self.handshake.take_output());
        if let Err(error) = self.write_all() {
            self.handshake.close(context, Cause::Io(error));
        } else if self.handshake.phase() == Phase::Closing && self.lingers_until.is_none() {
            self.lingers_until = Some(now + LINGER);
        }
    }

    /// Writes as much as the socket takes.
    fn write_all(&mut self) -> io::Result<()> {
        let mut written = 0;
        let mut result = Ok(());
        while written < self.output.len() {
            match uninterrupted(|| self.socket.write(&self.output[written..])) {
                Ok(len) => written += len,
                Err(error) => {
                    result = if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
                    break;
                }
            }
        }
        self.output.drain(..written);
        result
    }
}

impl<H> AsFd for HandshakeStream<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Starts to connect, without waiting for the peer.
pub(super) fn dial(route: Route) -> io::Result<TcpStream> {
    let family = if route.from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let stream = TcpStream::from(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    bind(&stream, &SocketAddr::new(route.from, 0))?;
    dial_from(stream, route.to)
}

/// Starts to connect from a bound socket, without waiting for the peer.
pub(crate) fn dial_from(stream: TcpStream, to: SocketAddr) -> io::Result<TcpStream> {
    prepare(&stream)?;
    set_tcp_user_timeout(&stream, TCP_TIMEOUT.as_millis() as u32)?;
    match connect(&stream, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Sets the options of a handshake's socket. Closing it resets the stream, so that no port stays in
/// TIME_WAIT; [`HandshakeStream::finish`] has the exceptions.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    set_socket_linger(stream, Some(Duration::ZERO))?;
    Ok(())
}
