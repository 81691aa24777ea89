//! The thread that carries the handshakes of an adapter.
//!
//! Registrations with the epoll persist, and all waits have deadlines, so an idle connection costs nothing. Bounds:
//!
//! | resource | bound | at the bound |
//! |---|---|---|
//! | outbound handshakes | `outbound` | requests queue; inbound handshakes do not count |
//! | inbound handshakes of one source address that no request matches yet | `per_source` | its oldest opening connection is closed, else the new one |
//! | inbound handshakes | `inbound` | the oldest opening, else the oldest parked for `parked_grace` is closed; else the listener leaves the epoll until there is room, or one that gives way |
//! | input of a handshake, time of a phase | by the handshake | the connection is closed |
//! | descriptors of the process | by the kernel | the listener leaves the epoll for [`PAUSE`] |
//!
//! An honest peer keeps within `per_source`, which is not less than its own `outbound`.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nichrome_port::{Epoll, Interest, Waker, clock};
use nichrome_wire::Instant;

use super::handshake::{Cause, Context, Handshake, Phase, RequestOf};
use super::stream::{Direction, Stream, dial};

/// Bounds of the handshakes that run at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    outbound: usize,
    inbound: usize,
    per_source: usize,
    /// An inbound handshake that has been opening for less gives way to none: an honest peer is not as slow.
    opening_grace: Duration,
    /// How long a parked connection keeps its place when there is no other.
    parked_grace: Duration,
}

impl Limits {
    /// The default, with other bounds for inbound handshakes in all.
    pub(crate) fn with_inbound(inbound: usize) -> Self {
        Self { inbound, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let (opening_grace, parked_grace) = (Duration::from_millis(250), Duration::from_secs(5));
        Self { outbound: 128, inbound: 256, per_source: 128, opening_grace, parked_grace }
    }
}

/// How long the listener leaves the epoll, unless a connection ends, where no time is known at which there is room.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections accepted in one round, so that a flood does not hold up the handshakes.
const MAX_ACCEPTS: usize = 64;

/// Tokens of the epoll; streams count up from [`FIRST_STREAM`].
const WAKER: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_STREAM: u64 = 2;

/// Handle of the thread, which ends when the handle is dropped. Handshakes that are not complete end by
/// [`Cause::Shutdown`].
pub(crate) struct Connector<R> {
    requests: Sender<R>,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
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
        let (requests, inbox) = channel();
        let control =
            Control { waker: Waker::new()?, ended: AtomicBool::new(false), rounds: AtomicU64::new(0) };
        let control = Arc::new(control);
        let epoll = Epoll::new()?;
        listener.set_nonblocking(true)?;
        epoll.add(&control.waker, WAKER, Interest::READ)?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        let shared = Arc::clone(&control);
        // Handshakes need not be Send: the thread makes them.
        let run = move || {
            let reactor = Reactor::<H> {
                limits,
                epoll,
                listener,
                paused_until: None,
                inbox,
                context,
                queue: VecDeque::new(),
                streams: HashMap::new(),
                next_token: FIRST_STREAM,
            };
            reactor.run(&shared);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { requests, control, thread: Some(thread) })
    }

    /// Has a connection set up.
    pub(crate) fn request(&self, request: R) {
        // The thread outlives the handle unless the kernel refuses to wait, and then nothing can be set up.
        let _ = self.requests.send(request);
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
    listener: TcpListener,
    /// While the listener is out of the epoll.
    paused_until: Option<Instant>,
    inbox: Receiver<RequestOf<H>>,
    context: H::Context,
    /// Requests that wait for an outbound place.
    queue: VecDeque<RequestOf<H>>,
    streams: HashMap<u64, Stream<H>>,
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
            self.take_requests(now);
            self.handle_timeout(now);
            self.connect(now);
        }
        for (_, stream) in self.streams {
            stream.close(&mut self.context, Cause::Shutdown);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let streams = self.streams.values().map(Stream::deadline).min();
        [streams, self.context.poll_timeout(), self.paused_until].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_late = |(token, stream): (&u64, &Stream<_>)| (stream.deadline() <= now).then_some(*token);
        let late: Vec<u64> = self.streams.iter().filter_map(is_late).collect();
        for token in late {
            self.close(token, Cause::Deadline);
        }
        self.context.handle_timeout(now);
        if self.paused_until.is_some_and(|until| until <= now) {
            self.resume_accepting();
        }
    }

    /// Takes the program's requests. They may be what parked handshakes wait for.
    fn take_requests(&mut self, now: Instant) {
        let mut has_new = false;
        while let Ok(request) = self.inbox.try_recv() {
            has_new = true;
            self.queue.extend(self.context.request(request, now));
        }
        if !has_new {
            return;
        }
        let is_parked = |(token, stream): (&u64, &Stream<H>)| {
            (stream.handshake.phase() == Phase::Parked).then_some(*token)
        };
        for token in self.streams.iter().filter_map(is_parked).collect::<Vec<_>>() {
            self.with_stream(token, |stream, context| stream.resume(context, now));
        }
    }

    fn advance(&mut self, token: u64, now: Instant) {
        self.with_stream(token, |stream, context| stream.advance(context, now));
    }

    /// Does something with a stream, then ends it or adapts its registration.
    fn with_stream(&mut self, token: u64, f: impl FnOnce(&mut Stream<H>, &mut H::Context)) {
        let Some(stream) = self.streams.get_mut(&token) else { return };
        let before = stream.interest();
        f(stream, &mut self.context);
        if stream.handshake.phase() == Phase::Done {
            if let Some(stream) = self.remove(token) {
                stream.end();
            }
        } else if stream.is_connected() {
            if let Some(stream) = self.remove(token) {
                stream.hand_over(&mut self.context);
            }
        } else if stream.interest() != before
            && let Err(error) = self.epoll.modify(&*stream, token, stream.interest())
        {
            self.close(token, Cause::Io(error.into()));
        }
    }

    fn close(&mut self, token: u64, cause: Cause) {
        if let Some(stream) = self.remove(token) {
            stream.close(&mut self.context, cause);
        }
    }

    /// Forgets a stream, which makes room for another.
    fn remove(&mut self, token: u64) -> Option<Stream<H>> {
        let stream = self.streams.remove(&token)?;
        // Closing would not end the registration where a child of fork has the socket too.
        let _ = self.epoll.remove(&stream);
        if stream.direction == Direction::Inbound {
            self.resume_accepting();
        }
        Some(stream)
    }

    /// Adds a stream and runs its handshake.
    fn add(&mut self, stream: Stream<H>, now: Instant) {
        let token = self.next_token;
        self.next_token += 1;
        match self.epoll.add(&stream, token, stream.interest()) {
            Ok(()) => {
                self.streams.insert(token, stream);
                self.advance(token, now);
            }
            Err(error) => stream.close(&mut self.context, Cause::Io(error.into())),
        }
    }

    fn count(&self, direction: Direction) -> usize {
        self.streams.values().filter(|stream| stream.direction == direction).count()
    }

    /// Starts queued outbound handshakes while there is room.
    fn connect(&mut self, now: Instant) {
        while self.count(Direction::Outbound) < self.limits.outbound
            && let Some(request) = self.context.retry().or_else(|| self.queue.pop_front())
        {
            let outbound = H::outbound(request, &mut self.context, now);
            let Some((route, mut handshake)) = outbound else { continue };
            match dial(route) {
                Ok(socket) => self.add(Stream::connecting(socket, route, handshake, now), now),
                Err(error) => handshake.close(&mut self.context, Cause::Io(error)),
            }
        }
    }

    /// Accepts connections while there is room.
    fn accept(&mut self, now: Instant) {
        for _ in 0..MAX_ACCEPTS {
            let is_full = self.count(Direction::Inbound) >= self.limits.inbound;
            let displaced = if is_full { self.displaceable(None, now) } else { None };
            if is_full && displaced.is_none() {
                return self.pause_accepting(self.next_displaceable().unwrap_or(now + PAUSE));
            }
            let (socket, peer) = match self.listener.accept() {
                Ok((socket, peer)) => (socket, peer.ip().to_canonical()),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // No descriptor is left, most likely: the listener would stay readable.
                    _ => return self.pause_accepting(now + PAUSE),
                },
            };
            let is_unmatched =
                |stream: &&Stream<H>| matches!(stream.handshake.phase(), Phase::Opening | Phase::Parked);
            let from_source = self.streams.values().filter(|stream| stream.is_from(peer));
            let of_source = from_source.filter(is_unmatched).count();
            let displaced = if of_source < self.limits.per_source {
                displaced
            } else if let Some(own) = self.displaceable(Some(peer), now) {
                Some(own)
            } else {
                // The connection is closed.
                continue;
            };
            if let Some(token) = displaced {
                self.close(token, Cause::Displaced);
            }
            if let Ok(stream) = Stream::accepted(socket, peer, now) {
                self.add(stream, now);
            }
        }
    }

    /// The inbound stream that gives way to a new one: the oldest that has been opening for `opening_grace`, else the oldest
    /// that has been parked for `parked_grace`. Of one source, only streams that are opening give way.
    fn displaceable(&self, source: Option<IpAddr>, now: Instant) -> Option<u64> {
        let candidates = self.streams.iter().filter_map(|(token, stream)| {
            let is_parked = match (stream.handshake.phase(), source) {
                (Phase::Opening, Some(source)) if !stream.is_from(source) => return None,
                (Phase::Opening, _) => false,
                (Phase::Parked, None) => true,
                _ => return None,
            };
            let gives_way = self.gives_way_at(stream).is_some_and(|at| at <= now);
            gives_way.then_some((is_parked, stream.opened_at, *token))
        });
        candidates.min().map(|(_, _, token)| token)
    }

    /// When a stream begins to give way to new ones; `None` if it never does.
    fn gives_way_at(&self, stream: &Stream<H>) -> Option<Instant> {
        match stream.handshake.phase() {
            Phase::Opening => Some(stream.opened_at + self.limits.opening_grace),
            Phase::Parked => Some(stream.opened_at + self.limits.parked_grace),
            _ => None,
        }
    }

    /// When the next stream begins to give way.
    fn next_displaceable(&self) -> Option<Instant> {
        let inbound = self.streams.values().filter(|stream| stream.direction == Direction::Inbound);
        inbound.filter_map(|stream| self.gives_way_at(stream)).min()
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
