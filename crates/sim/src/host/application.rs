//! Simulated application programs.

use std::num::NonZeroU32;

use nichrome_wire::Instant;
use smoltcp::socket::tcp::{Socket, State};

use super::pattern;

/// The behaviour of a program on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends `bytes` bytes and closes; sends endlessly if `None`.
    Send {
        /// The number of bytes.
        bytes: Option<u64>,
    },
    /// Reads everything, and closes when the peer does.
    Receive,
    /// Repeats: sends a request, reads the response, pauses.
    Request {
        /// Sizes of request and response.
        exchange: Exchange,
        /// Closes after this many exchanges; `None`: never.
        count: Option<u64>,
        /// Pause between a response and the next request, in nanoseconds.
        pause: u64,
    },
    /// Answers each request with a response, and closes when the peer does.
    Respond {
        /// Sizes of request and response.
        exchange: Exchange,
    },
    /// Does nothing: the world reads and writes with [`Host::read`](super::Host::read) and
    /// [`Host::write`](super::Host::write).
    Attached,
}

/// A request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Length of the request, in bytes.
    pub request: NonZeroU32,
    /// Length of the response, in bytes.
    pub response: NonZeroU32,
}

/// Counters of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounters {
    /// Bytes passed to TCP.
    pub sent: u64,
    /// Bytes read from TCP.
    pub received: u64,
    /// Reads with corrupted bytes: 0 unless a component is broken.
    pub wrong_reads: u64,
    /// Completed exchanges.
    pub exchanges: u64,
}

/// Whether a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    On,
    Off,
}

/// The result of a step of TCP and the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stepped {
    /// True if the program read, wrote or closed: TCP may have more to do.
    pub(super) progressed: bool,
    pub(super) is_established: bool,
    pub(super) is_complete: bool,
}

/// A running program.
#[derive(Clone, Debug)]
pub(super) struct Application {
    role: Role,
    pub(super) reading: Reading,
    pub(super) counters: ProgramCounters,
    /// Bytes to send now.
    owed: u64,
    /// Outstanding bytes of the request or response.
    awaited: u64,
    /// When the current request was started.
    begun: Instant,
    /// When the next request starts.
    resumes: Option<Instant>,
    has_closed: bool,
}

impl Application {
    pub(super) fn new(role: Role) -> Self {
        let (owed, awaited) = match role {
            Role::Send { bytes } => (bytes.unwrap_or(u64::MAX), 0),
            Role::Receive => (0, u64::MAX),
            Role::Request { .. } | Role::Attached => (0, 0),
            Role::Respond { exchange } => (0, u64::from(exchange.request.get())),
        };
        let (reading, counters) = (Reading::On, ProgramCounters::default());
        Self {
            role,
            reading,
            counters,
            owed,
            awaited,
            begun: Instant::ZERO,
            resumes: None,
            has_closed: false,
        }
    }

    /// Returns when the program needs to run again without input.
    pub(super) fn resumes(&self) -> Option<Instant> {
        self.resumes
    }

    /// Runs as far as the socket allows; returns true on progress. `latency` gets the duration of each
    /// exchange.
    pub(super) fn run(
        &mut self,
        socket: &mut Socket<'_>,
        now: Instant,
        latency: &mut impl FnMut(u64),
    ) -> bool {
        let before = (self.counters, self.has_closed);
        self.read(socket, now, latency);
        self.begin_request(socket, now);
        self.send(socket);
        self.close(socket);
        before != (self.counters, self.has_closed)
    }

    fn read(&mut self, socket: &mut Socket<'_>, now: Instant, latency: &mut impl FnMut(u64)) {
        while self.reading == Reading::On && self.awaited > 0 && socket.can_recv() {
            let offset = self.counters.received;
            let most = usize::try_from(self.awaited).unwrap_or(usize::MAX);
            let read = socket.recv(|bytes| {
                let bytes = &bytes[..bytes.len().min(most)];
                (bytes.len(), (bytes.len() as u64, pattern::matches(offset, bytes)))
            });
            let Ok((len, is_right)) = read else { return };
            self.counters.received += len;
            self.counters.wrong_reads += u64::from(!is_right);
            self.awaited -= len;
            if self.awaited == 0 {
                self.message_read(now, latency);
            }
        }
    }

    /// Continues after a complete request or response.
    fn message_read(&mut self, now: Instant, latency: &mut impl FnMut(u64)) {
        match self.role {
            Role::Send { .. } | Role::Attached => {}
            Role::Receive => self.awaited = u64::MAX,
            Role::Request { pause, .. } => {
                self.counters.exchanges += 1;
                latency(now.nanos_since(self.begun));
                self.resumes = Some(now.plus_nanos(pause));
            }
            Role::Respond { exchange } => {
                self.counters.exchanges += 1;
                self.owed += u64::from(exchange.response.get());
                self.awaited = u64::from(exchange.request.get());
            }
        }
    }

    fn begin_request(&mut self, socket: &Socket<'_>, now: Instant) {
        let Role::Request { exchange, .. } = self.role else { return };
        let is_due = self.resumes.is_none_or(|resumes| resumes <= now);
        if self.awaited > 0 || !is_due {
            return;
        }
        // Cleared also if the program has finished or the connection was reset: otherwise the request would
        // be due forever.
        self.resumes = None;
        if self.is_complete() || !socket.may_send() {
            return;
        }
        self.begun = now;
        self.owed = u64::from(exchange.request.get());
        self.awaited = u64::from(exchange.response.get());
    }

    fn send(&mut self, socket: &mut Socket<'_>) {
        while self.owed > 0 && socket.can_send() {
            let most = usize::try_from(self.owed).unwrap_or(usize::MAX);
            // Writes no bytes: `outgoing_stream.rs` writes them into the segments.
            let sent = socket.send(|room| {
                let len = room.len().min(most);
                (len, len as u64)
            });
            let Ok(len) = sent else { return };
            self.counters.sent += len;
            self.owed -= len;
        }
    }

    fn close(&mut self, socket: &mut Socket<'_>) {
        if self.role == Role::Attached {
            return;
        }
        let peer_has_closed = socket.state() == State::CloseWait && !socket.can_recv() && self.owed == 0;
        if !self.has_closed && socket.may_send() && (self.is_complete() || peer_has_closed) {
            self.has_closed = true;
            self.resumes = None;
            socket.close();
        }
    }

    /// Returns true if the program has finished.
    pub(super) fn is_complete(&self) -> bool {
        match self.role {
            Role::Send { bytes } => bytes == Some(self.counters.sent),
            Role::Request { count, .. } => count == Some(self.counters.exchanges),
            Role::Receive | Role::Respond { .. } => self.has_closed,
            Role::Attached => false,
        }
    }
}
