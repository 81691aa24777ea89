//! The thread that carries the handshakes of an adapter.
//!
//! Registrations with the epoll persist, and all waits have deadlines, so an idle connection costs nothing.
//! Bounds:
//!
//! | resource | bound | at the bound |
//! |---|---|---|
//! | outbound handshakes | `outbound`; of one peer as many as there are places left | requests queue; inbound handshakes do not count |
//! | inbound handshakes of one source address that no request matches yet | `per_source` | its oldest opening connection is closed, else the new one |
//! | opening connections | `inbound` | the oldest of the source that has most is closed: at once if it has several, else after `opening_grace`, and until then the listener leaves the epoll |
//! | parked connections | `inbound` | the oldest of the source that has most is closed if that source has more than the new one's, or after `parked_grace`; else the new one |
//! | inbound handshakes that a request of this side matches, refused ones until the peer has read it | `inbound` | the listener leaves the epoll |
//! | input of a handshake, time of a phase | by the handshake | the connection is closed |
//! | descriptors of the process | by the kernel | the listener leaves the epoll for [`PAUSE`] |
//!
//! A connection that has sent its whole request is never displaced by one that has not. Before an opening
//! connection is displaced, the bytes that its peer has sent are read.
//!
//! Each peer that does not answer takes at most half of the outbound places that are left: by default, eight
//! such peers leave one. An honest peer keeps within `per_source`, which is half of its own `outbound`.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nichrome_port::{Epoll, Interest, Waker, clock, close_in_child, spawn_quiet};
use nichrome_rdma::QpNumber;
use nichrome_wire::Instant;

use super::handshake::{Cause, Context, Handshake, Phase, RequestOf};
use super::inbound::Inbound;
use super::source_shares::{SourceShares, Victim};
use super::stream::{Direction, HandshakeStream, dial};

/// Bounds of the handshakes that run at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    outbound: usize,
    /// Opening connections, parked ones, and those that a request matches: each.
    inbound: usize,
    per_source: usize,
    /// Time in which a source's only opening connection is not displaced: an honest peer is faster.
    opening_grace: Duration,
    /// Time in which a parked connection is not displaced by one of a source that has as many.
    parked_grace: Duration,
}

impl Limits {
    /// The default, with another bound for inbound handshakes in each phase.
    pub(crate) fn with_inbound(inbound: usize) -> Self {
        Self { inbound, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let (opening_grace, parked_grace) = (Duration::from_millis(250), Duration::from_secs(5));
        let outbound = 256;
        Self { outbound, inbound: 256, per_source: outbound / 2, opening_grace, parked_grace }
    }
}

/// How long the listener leaves the epoll if it is not known when there will be room. It returns earlier if a
/// connection ends.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections accepted in one round, so that a flood does not delay the handshakes.
const MAX_ACCEPTS: usize = 64;

/// Tokens of the epoll; streams count up from [`FIRST_STREAM`].
const WAKER: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_STREAM: u64 = 2;

/// Handle of the thread, which ends when the handle is dropped. Handshakes that are not complete end by
/// [`Cause::Shutdown`].
pub(crate) struct Connector<R> {
    commands: Sender<Command<R>>,
    control: Arc<Control>,
    /// The socket that the thread accepts from.
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
    /// The process that started the thread: a forked child has no such thread.
    process: u32,
}

/// A command of the program to the thread.
enum Command<R> {
    /// Sets up a connection.
    Request(R),
    /// Ends the set-up of a queue pair's connection, then drops the sender.
    Withdraw(QpNumber, Sender<Infallible>),
}

struct Control {
    waker: Waker,
    ended: AtomicBool,
    /// Times that the thread has woken.
    rounds: AtomicU64,
}

impl<R: Send + 'static> Connector<R> {
    /// Starts a thread named `name`, which runs handshakes of type `H` and accepts from `listener`.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub(crate) fn start<H>(
        limits: Limits,
        name: &str,
        listener: TcpListener,
        context: H::Context,
    ) -> io::Result<Self>
    where
        H: Handshake<Context: Context<Request = R> + Send + 'static>,
    {
        let (commands, inbox) = channel();
        let control =
            Control { waker: Waker::new()?, ended: AtomicBool::new(false), rounds: AtomicU64::new(0) };
        let control = Arc::new(control);
        let epoll = Epoll::new()?;
        listener.set_nonblocking(true)?;
        epoll.add(&control.waker, WAKER, Interest::READ)?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        let (shared, listener) = (Arc::clone(&control), Arc::new(listener));
        let accepting = Arc::clone(&listener);
        // Creates the reactor in its thread, so that handshakes need not be `Send`.
        let run = move || {
            let reactor = Reactor::<H> {
                limits,
                epoll,
                listener: accepting,
                paused_until: None,
                inbox,
                context,
                streams: HashMap::new(),
                inbound: Inbound::default(),
                outbound: SourceShares::default(),
                next_token: FIRST_STREAM,
            };
            reactor.run(&shared);
        };
        let thread = spawn_quiet(name, run)?;
        Ok(Self { commands, control, listener, thread: Some(thread), process: process::id() })
    }

    /// Requests the set-up of a connection.
    pub(crate) fn request(&self, request: R) {
        self.command(Command::Request(request));
    }

    /// Ends the set-up of a queue pair's connection: returns when neither its success nor its failure can
    /// reach the queue pair.
    pub(crate) fn withdraw(&self, qp: QpNumber) {
        if self.process != process::id() {
            return;
        }
        let (done, is_done) = channel();
        self.command(Command::Withdraw(qp, done));
        // Nothing is received: the thread drops the sender.
        let _ = is_done.recv();
    }

    /// Gives up the port in a forked child; its parent keeps it.
    pub(crate) fn close_in_child(&self) {
        close_in_child([self.listener.as_fd()]);
    }

    fn command(&self, command: Command<R>) {
        // The thread outlives the handle unless epoll_wait(2) fails, and then no connection can be set up.
        let _ = self.commands.send(command);
        self.control.waker.wake();
    }
}

impl<R> Drop for Connector<R> {
    fn drop(&mut self) {
        self.control.ended.store(true, Ordering::SeqCst);
        self.control.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
        }
    }
}

struct Reactor<H: Handshake> {
    limits: Limits,
    epoll: Epoll,
    listener: Arc<TcpListener>,
    /// Set while the listener is out of the epoll.
    paused_until: Option<Instant>,
    inbox: Receiver<Command<RequestOf<H>>>,
    context: H::Context,
    streams: HashMap<u64, HandshakeStream<H>>,
    inbound: Inbound,
    /// Outbound streams by peer.
    outbound: SourceShares,
    next_token: u64,
}

impl<H: Handshake> Reactor<H> {
    fn run(mut self, control: &Control) {
        let mut ready = Vec::new();
        while !control.ended.load(Ordering::SeqCst) {
            if self.epoll.wait(&mut ready, self.poll_timeout()).is_err() {
                break;
            }
            control.rounds.fetch_add(1, Ordering::Relaxed);
            let now = clock::now();
            for token in ready.drain(..) {
                match token {
                    WAKER => control.waker.clear(),
                    LISTENER => self.accept(now),
                    token => self.advance(token, now),
                }
            }
            self.take_commands(now);
            self.handle_timeout(now);
            self.connect(now);
        }
        for (_, stream) in self.streams {
            stream.close(&mut self.context, Cause::Shutdown);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let streams = self.streams.values().map(HandshakeStream::deadline).min();
        [streams, self.context.poll_timeout(), self.paused_until].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        for token in self.tokens(|stream| stream.deadline() <= now) {
            self.close(token, Cause::Deadline);
        }
        self.context.handle_timeout(now);
        if self.paused_until.is_some_and(|until| until <= now) {
            self.resume_accepting();
        }
    }

    /// Executes the program's commands, then advances the parked handshakes that a new request may match.
    fn take_commands(&mut self, now: Instant) {
        let mut requested = HashSet::new();
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Request(request) => _ = requested.insert(self.context.request(request, now)),
                Command::Withdraw(qp, _done) => self.withdraw(qp),
            }
        }
        if requested.is_empty() {
            return;
        }
        let is_requested = |handshake: &H| handshake.qp().is_some_and(|qp| requested.contains(&qp));
        // The newest first: an older one may be of a peer that vanished without closing its stream.
        let mut parked = self
            .tokens(|stream| stream.handshake.phase() == Phase::Parked && is_requested(&stream.handshake));
        parked.sort_unstable_by_key(|token| Reverse(*token));
        for token in parked {
            self.advance(token, now);
        }
    }

    /// Ends the set-up of a queue pair's connection.
    fn withdraw(&mut self, qp: QpNumber) {
        self.context.withdraw(qp);
        let has_request = |handshake: &H| handshake.phase() != Phase::Parked && handshake.qp() == Some(qp);
        for token in self.tokens(|stream| has_request(&stream.handshake)) {
            self.close(token, Cause::Withdrawn);
        }
    }

    /// Returns the tokens of the streams for which `matches` returns true.
    fn tokens(&self, matches: impl Fn(&HandshakeStream<H>) -> bool) -> Vec<u64> {
        self.streams.iter().filter(|(_, stream)| matches(stream)).map(|(token, _)| *token).collect()
    }

    /// Advances a stream, then ends it or adapts its registration and its place.
    fn advance(&mut self, token: u64, now: Instant) {
        let Some(stream) = self.streams.get_mut(&token) else { return };
        let (interest, phase) = (stream.interest(), stream.handshake.phase());
        stream.advance(&mut self.context, now);
        let (source, is_inbound) = (stream.peer, stream.direction == Direction::Inbound);
        let has_moved = is_inbound && stream.handshake.phase() != phase;
        if has_moved {
            self.inbound.remove(source, token, phase);
            self.inbound.insert(source, token, stream.handshake.phase());
        }
        if stream.handshake.phase() == Phase::Done {
            if let Some(stream) = self.remove(token) {
                stream.end();
            }
        } else if stream.is_connected() {
            if let Some(stream) = self.remove(token) {
                stream.hand_over(&mut self.context);
            }
        } else if stream.interest() != interest
            && let Err(error) = self.epoll.modify(&*stream, token, stream.interest())
        {
            self.close(token, Cause::Io(error.into()));
        } else if has_moved {
            if stream.handshake.phase() == Phase::Parked {
                self.limit_parked(token, source, now);
            }
            self.resume_accepting();
        }
    }

    fn close(&mut self, token: u64, cause: Cause) {
        if let Some(stream) = self.remove(token) {
            stream.close(&mut self.context, cause);
        }
    }

    /// Removes a stream, which makes room for another.
    fn remove(&mut self, token: u64) -> Option<HandshakeStream<H>> {
        let stream = self.streams.remove(&token)?;
        // Closing the socket does not end its registration while a forked child has it, too.
        let _ = self.epoll.remove(&stream);
        match stream.direction {
            Direction::Inbound => {
                self.inbound.remove(stream.peer, token, stream.handshake.phase());
                self.resume_accepting();
            }
            Direction::Outbound => self.outbound.remove(stream.peer, token),
        }
        Some(stream)
    }

    /// Adds a stream and runs its handshake.
    fn add(&mut self, stream: HandshakeStream<H>, now: Instant) {
        let token = self.next_token;
        self.next_token += 1;
        match self.epoll.add(&stream, token, stream.interest()) {
            Ok(()) => {
                match stream.direction {
                    Direction::Inbound => {
                        self.inbound.insert(stream.peer, token, stream.handshake.phase());
                    }
                    Direction::Outbound => self.outbound.insert(stream.peer, token),
                }
                self.streams.insert(token, stream);
                self.advance(token, now);
            }
            Err(error) => stream.close(&mut self.context, Cause::Io(error.into())),
        }
    }

    /// Takes a request for an outbound handshake to a peer that has room.
    fn next_outbound(&mut self) -> Option<RequestOf<H>> {
        let Self { limits, outbound, context, .. } = self;
        let left = limits.outbound.saturating_sub(outbound.len());
        if left == 0 {
            return None;
        }
        context.next_outbound(|peer| outbound.share(peer) < left)
    }

    /// Starts outbound handshakes while there is room.
    fn connect(&mut self, now: Instant) {
        while let Some(request) = self.next_outbound() {
            let outbound = H::outbound(request, &mut self.context, now);
            let Some((route, mut handshake)) = outbound else { continue };
            match dial(route) {
                Ok(socket) => self.add(HandshakeStream::connecting(socket, route, handshake, now), now),
                Err(error) => handshake.close(&mut self.context, Cause::Io(error)),
            }
        }
    }

    /// Accepts connections while there is room.
    fn accept(&mut self, now: Instant) {
        for _ in 0..MAX_ACCEPTS {
            let room_from = self.room_from(now);
            if room_from > now {
                return self.pause_accepting(room_from);
            }
            let (socket, peer) = match self.listener.accept() {
                Ok((socket, peer)) => (socket, peer.ip().to_canonical()),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // Most likely no descriptor is left: the listener would stay readable.
                    _ => return self.pause_accepting(now + PAUSE),
                },
            };
            if !self.make_room_of(peer, now) {
                // Drops the socket, which closes the connection.
                continue;
            }
            self.make_room(now);
            if let Ok(stream) = HandshakeStream::accepted(socket, peer, now) {
                self.add(stream, now);
            }
        }
    }

    /// Returns when there will be room for another opening stream, unless a stream ends earlier; `now` if
    /// there is room or a stream may be displaced at once.
    fn room_from(&self, now: Instant) -> Instant {
        if self.inbound.matched >= self.limits.inbound {
            return now + PAUSE;
        }
        match self.inbound.opening.victim() {
            Some(Victim { token, share: 1 }) if self.inbound.opening.len() >= self.limits.inbound => {
                self.opened_at(token) + self.limits.opening_grace
            }
            _ => now,
        }
    }

    /// Makes room for an opening stream.
    fn make_room(&mut self, now: Instant) {
        while self.inbound.opening.len() >= self.limits.inbound
            && let Some(Victim { token, .. }) = self.inbound.opening.victim()
        {
            self.displace_opening(token, now);
        }
    }

    /// Displaces opening streams of a source until it has fewer than its share; returns false if too many of
    /// its streams are parked.
    fn make_room_of(&mut self, source: IpAddr, now: Instant) -> bool {
        while self.inbound.unmatched(source) >= self.limits.per_source {
            let Some(token) = self.inbound.opening.oldest(source) else { return false };
            self.displace_opening(token, now);
        }
        true
    }

    /// Closes an opening stream unless its request is complete.
    fn displace_opening(&mut self, token: u64, now: Instant) {
        self.advance(token, now);
        if self.streams.get(&token).is_some_and(|stream| stream.handshake.phase() == Phase::Opening) {
            self.close(token, Cause::Displaced);
        }
    }

    /// Closes a parked stream if there are more than the bound: the newest, unless it displaces another.
    fn limit_parked(&mut self, newest: u64, source: IpAddr, now: Instant) {
        let parked = &self.inbound.parked;
        if parked.len() > self.limits.inbound
            && let Some(Victim { token, share }) = parked.victim()
        {
            let gives_way =
                share > parked.share(source) || self.opened_at(token) + self.limits.parked_grace <= now;
            self.close(if gives_way { token } else { newest }, Cause::Displaced);
        }
    }

    /// When a stream was opened.
    fn opened_at(&self, token: u64) -> Instant {
        self.streams.get(&token).map_or(Instant::ZERO, |stream| stream.opened_at)
    }

    fn pause_accepting(&mut self, until: Instant) {
        // If the kernel refuses, the next round tries again.
        if self.epoll.modify(&self.listener, LISTENER, Interest::NONE).is_ok() {
            self.paused_until = Some(until);
        }
    }

    fn resume_accepting(&mut self) {
        if self.paused_until.is_some() && self.epoll.modify(&self.listener, LISTENER, Interest::READ).is_ok()
        {
            self.paused_until = None;
        }
    }
}

#[cfg(test)]
mod tests;
