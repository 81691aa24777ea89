//! The TCP connection of a queue pair.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nichrome_port::{Acknowledgements, Interest, acknowledgements, uninterrupted};
use nichrome_rdma::{QpHandle, StreamEnd};
use nichrome_wire::Instant;
use rustix::net::sockopt::set_socket_linger;

use super::buffers::Buffer;
use super::trace::Trace;

/// A queue pair's connection.
pub(super) struct Stream {
    socket: TcpStream,
    pub(super) qp: QpHandle,
    /// The peer was connected by queue pair number.
    pub(super) by_number: bool,
    /// Received bytes that the transport has not consumed.
    pub(super) held: Option<Buffer>,
    /// On an impaired path: the peer has closed its direction behind the bytes in `held`.
    pub(super) has_ended: bool,
    /// Bytes that the socket has not accepted.
    unsent: Vec<u8>,
    /// A FIN follows the bytes that the socket has not accepted.
    finishes: bool,
    pub(super) state: State,
    /// The inbound impaired path has no room for bytes of the socket.
    pub(super) is_stalled: bool,
    /// The readiness that the epoll watches the socket for.
    pub(super) watched: Interest,
    /// Since when the peer has answered nothing, by the last check.
    unanswered: Option<Instant>,
    /// Time of the first check after the peer's last ACK, and how often the retransmission timer had expired
    /// then.
    expirations: Option<(Instant, u8)>,
    /// Sequence numbers of the capture.
    pub(super) trace: Option<Box<Trace>>,
}

/// Whether a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// The transport wants no bytes.
    Paused,
    /// The peer's direction has ended, which the device does not know yet.
    Ended,
    /// The queue pair has left the stream. Received bytes are discarded until the peer closes it, but no
    /// longer than until this time. Otherwise the kernel would reset the connection, and discard bytes that
    /// the peer has not read.
    Closing(Instant),
}

/// Result of a read.
pub(super) enum ReadOutcome {
    Bytes(usize),
    /// No bytes are waiting.
    Nothing,
    End(StreamEnd),
}

impl Stream {
    pub(super) fn new(socket: TcpStream, qp: QpHandle, by_number: bool, trace: Option<Box<Trace>>) -> Self {
        let (state, watched) = (State::Open, Interest::READ);
        Self {
            socket,
            qp,
            by_number,
            held: None,
            has_ended: false,
            unsent: Vec::new(),
            finishes: false,
            state,
            is_stalled: false,
            watched,
            unanswered: None,
            expirations: None,
            trace,
        }
    }

    /// The readiness to watch the socket for.
    pub(super) fn interest(&self) -> Interest {
        let is_unread = match self.state {
            State::Open => self.is_stalled,
            State::Paused | State::Ended => true,
            State::Closing(_) => false,
        };
        match (is_unread, self.unsent.is_empty()) {
            (false, true) => Interest::READ,
            (false, false) => Interest::READ_WRITE,
            (true, true) => Interest::NONE,
            (true, false) => Interest::WRITE,
        }
    }

    /// Reads once.
    pub(super) fn read(&mut self, room: &mut [u8]) -> ReadOutcome {
        loop {
            return match self.socket.read(room) {
                Ok(0) => ReadOutcome::End(StreamEnd::Closed),
                Ok(len) => ReadOutcome::Bytes(len),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => ReadOutcome::Nothing,
                    _ => ReadOutcome::End(StreamEnd::Lost),
                },
            };
        }
    }

    /// Reads once into `scratch` and discards the bytes; returns true if the stream has ended.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> bool {
        matches!(self.read(scratch), ReadOutcome::End(_))
    }

    /// Writes `bytes`, behind those not accepted before; keeps what the socket does not accept. Adds to
    /// `sent` the system calls that sent bytes.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn write(&mut self, bytes: &[u8], sent: &mut u64) -> io::Result<()> {
        let accepted = if self.unsent.is_empty() { self.offer(bytes, sent)? } else { 0 };
        self.unsent.extend(&bytes[accepted..]);
        Ok(())
    }

    /// Writes the bytes not accepted before. Adds to `sent` the system calls that sent bytes.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn flush(&mut self, sent: &mut u64) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        let accepted = self.offer(&unsent, sent)?;
        if accepted < unsent.len() {
            self.unsent = unsent;
            self.unsent.drain(..accepted);
        } else if self.finishes {
            self.finish();
        }
        Ok(())
    }

    /// Returns true if the socket has not accepted all bytes.
    pub(super) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends a FIN after all bytes.
    pub(super) fn finish(&mut self) {
        self.finishes = true;
        if !self.is_blocked() {
            // Fails if the connection is lost.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Checks what the peer has acknowledged; returns true if it has not acknowledged all.
    pub(super) fn check_answers(&mut self, now: Instant) -> bool {
        let Ok(answers) = acknowledgements(&self.socket) else {
            self.unanswered = None;
            return false;
        };
        let is_awaited = self.has_expired(&answers, now) || answers.is_awaited;
        // Counts from the first check that finds an ACK awaited: the peer's last ACK may precede a long idle
        // period.
        self.unanswered = is_awaited.then(|| match self.unanswered {
            Some(since) if since + answers.since_last >= now => since,
            _ => now,
        });
        is_awaited || answers.queued > 0
    }

    /// Returns true if the retransmission timer has expired between two checks, both after the peer's last
    /// ACK. The times of [`Acknowledgements`] do not show it if this machine's interface is down: then the
    /// kernel records no transmission.
    fn has_expired(&mut self, answers: &Acknowledgements, now: Instant) -> bool {
        match self.expirations {
            Some((first, before)) if first + answers.since_last >= now => answers.expirations > before,
            _ => {
                self.expirations = Some((now, answers.expirations));
                false
            }
        }
    }

    /// Returns true if the peer has answered nothing for `silence`, by the checks until `now`.
    pub(super) fn is_unanswered_for(&self, silence: Duration, now: Instant) -> bool {
        self.unanswered.is_some_and(|since| since + silence <= now)
    }

    /// Returns true if the FIN has been sent.
    pub(super) fn is_finished(&self) -> bool {
        self.finishes && !self.is_blocked()
    }

    /// Returns true if the report of the peer's end can be delayed: no connection manager reports it, and no
    /// bytes are in flight.
    pub(super) fn has_grace(&self) -> bool {
        self.by_number && self.held.is_none() && !self.is_blocked()
    }

    /// Makes closing the socket reset the connection.
    pub(super) fn reset_on_close(&self) {
        // If it fails, the peer sees a FIN instead of the reset.
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    fn offer(&mut self, bytes: &[u8], sent: &mut u64) -> io::Result<usize> {
        let mut accepted = 0;
        while accepted < bytes.len() {
            match uninterrupted(|| self.socket.write(&bytes[accepted..])) {
                Ok(len) => {
                    accepted += len;
                    *sent += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(accepted)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
