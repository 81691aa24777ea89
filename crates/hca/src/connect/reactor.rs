//! The thread that carries the handshakes of an adapter.
//!
//! Registrations with the epoll persist, and all waits have deadlines, so an idle connection costs nothing. Bounds:
//!
//! | resource | bound | at the bound |
//! |---|---|---|
//! | outbound handshakes | `outbound` | requests queue; inbound handshakes do not count |
//! | inbound handshakes of one source address | `per_source` | its oldest opening connection is closed, else the new one |
//! | inbound handshakes | `inbound` | the oldest opening, else the oldest parked for `parked_grace` is closed; else the listener leaves the epoll until there is room, or for [`PAUSE`] |
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
    /// How long a parked connection keeps its place when there is no other.
    parked_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { outbound: 128, inbound: 256, per_source: 128, parked_grace: Duration::from_secs(5) }
    }
}

/// How long the listener leaves the epoll unless a connection ends.
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
            && let Some(request) = self.queue.pop_front()
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
                return self.pause_accepting(now);
            }
            let (socket, peer) = match self.listener.accept() {
                Ok((socket, peer)) => (socket, peer.ip().to_canonical()),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // No descriptor is left, most likely: the listener would stay readable.
                    _ => return self.pause_accepting(now),
                },
            };
            let of_source = self.streams.values().filter(|stream| stream.is_from(peer)).count();
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

    /// The inbound stream that gives way to a new one: the oldest that is opening, else the oldest that has been parked for
    /// `parked_grace`. Of one source, only streams that are opening give way.
    fn displaceable(&self, source: Option<IpAddr>, now: Instant) -> Option<u64> {
        let candidates = self.streams.iter().filter_map(|(token, stream)| {
            let is_parked = match (stream.handshake.phase(), source) {
                (Phase::Opening, None) => false,
                (Phase::Opening, Some(source)) if stream.is_from(source) => false,
                (Phase::Parked, None) if now >= stream.opened_at + self.limits.parked_grace => true,
                _ => return None,
            };
            Some((is_parked, stream.opened_at, *token))
        });
        candidates.min().map(|(_, _, token)| token)
    }

    fn pause_accepting(&mut self, now: Instant) {
        // If the kernel refuses, the next round tries again.
        if self.epoll.modify(&self.listener, LISTENER, Interest::NONE).is_ok() {
            self.paused_until = Some(now + PAUSE);
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
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Mutex;

    use super::super::handshake::Route;
    use super::*;

    /// Enters the phase that a byte names, and sends a byte back: `p`arked, `r`unning, `c`losing, `d`one.
    struct Toy {
        phase: Phase,
        opened_at: Instant,
        output: Vec<u8>,
    }

    /// Time of every phase.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// The causes by which handshakes have ended, with their phases.
    type Ends = Arc<Mutex<Vec<(Phase, &'static str)>>>;

    impl Handshake for Toy {
        type Context = ToyContext;

        fn inbound(_: IpAddr, now: Instant) -> Self {
            Self { phase: Phase::Opening, opened_at: now, output: vec![] }
        }

        fn outbound(request: Option<SocketAddr>, _: &mut ToyContext, now: Instant) -> Option<(Route, Self)> {
            let route = Route { from: local(1).ip(), to: request? };
            Some((route, Self { phase: Phase::Running, opened_at: now, output: b"hi".to_vec() }))
        }

        fn receive(&mut self, _: &mut ToyContext, bytes: &[u8], _: Instant) {
            for byte in bytes {
                self.phase = match byte {
                    b'p' => Phase::Parked,
                    b'r' => Phase::Running,
                    b'c' => Phase::Closing,
                    b'd' => Phase::Done,
                    _ => continue,
                };
                self.output.push(byte.to_ascii_uppercase());
            }
        }

        fn resume(&mut self, _: &mut ToyContext, _: Instant) {
            self.phase = Phase::Running;
            self.output.push(b'!');
        }

        fn close(&mut self, context: &mut ToyContext, cause: Cause) {
            let name = match cause {
                Cause::Closed => "closed",
                Cause::Deadline => "deadline",
                Cause::Displaced => "displaced",
                Cause::Shutdown => "shutdown",
                Cause::Io(_) => "io",
            };
            context.ends.lock().unwrap().push((self.phase, name));
            self.phase = Phase::Done;
        }

        fn take_output(&mut self) -> Vec<u8> {
            std::mem::take(&mut self.output)
        }

        fn phase(&self) -> Phase {
            self.phase
        }

        fn deadline(&self) -> Instant {
            self.opened_at + PATIENCE
        }
    }

    struct ToyContext {
        ends: Ends,
    }

    impl Context for ToyContext {
        type Request = Option<SocketAddr>;

        fn request(&mut self, request: Self::Request, _: Instant) -> Option<Self::Request> {
            request.map(Some)
        }

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn handle_timeout(&mut self, _: Instant) {}
    }

    fn local(host: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, host], 0))
    }

    struct Fixture {
        connector: Connector<Option<SocketAddr>>,
        address: SocketAddr,
        ends: Ends,
    }

    impl Fixture {
        fn new(inbound: usize, per_source: usize) -> Self {
            let ends = Ends::default();
            let listener = TcpListener::bind(local(1)).unwrap();
            let address = listener.local_addr().unwrap();
            let context = ToyContext { ends: Arc::clone(&ends) };
            let limits = Limits { outbound: 4, inbound, per_source, parked_grace: PATIENCE / 10 };
            let connector = Connector::start::<Toy>(limits, "reactor-test", listener, context).unwrap();
            Self { connector, address, ends }
        }

        /// A connection from 127.0.0.`host`, after `bytes` have been sent and answered.
        fn connect(&self, host: u8, bytes: &[u8]) -> TcpStream {
            let mut stream = dial(Route { from: local(host).ip(), to: self.address }).unwrap();
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(bytes).unwrap();
            stream.read_exact(&mut vec![0; bytes.len()]).unwrap();
            stream
        }

        /// Rounds of the thread during 300 ms.
        fn rounds(&self) -> u64 {
            let before = self.connector.control.rounds.load(Ordering::Relaxed);
            thread::sleep(Duration::from_millis(300));
            self.connector.control.rounds.load(Ordering::Relaxed) - before
        }

        /// Has the thread connect to a listener that answers `d`.
        fn connects_out(&self) -> bool {
            let listener = TcpListener::bind(local(1)).unwrap();
            self.connector.request(Some(listener.local_addr().unwrap()));
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 2];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(b"d").unwrap();
            heard == *b"hi"
        }

        fn ends(&self, phase: Phase, cause: &str) -> usize {
            self.ends.lock().unwrap().iter().filter(|end| **end == (phase, cause)).count()
        }

        /// Returns after `count` handshakes have ended like this.
        fn await_ends(&self, phase: Phase, cause: &str, count: usize) {
            let start = std::time::Instant::now();
            while self.ends(phase, cause) < count {
                let so_far = self.ends.lock().unwrap().clone();
                assert!(start.elapsed() < Duration::from_secs(10), "{phase:?} {cause}: {so_far:?}");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn is_open(mut stream: &TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    #[test]
    fn idle_connections_cost_no_rounds_and_give_way_to_new_ones() {
        let fixture = Fixture::new(256, 200);
        let idle: Vec<_> = (0..300).map(|nth| fixture.connect(2 + nth as u8 % 3, b"")).collect();
        fixture.await_ends(Phase::Opening, "displaced", 300 - 256);
        assert!(fixture.rounds() <= 2);
        fixture.connect(9, b"d");
        assert!(fixture.connects_out());
        let open: Vec<bool> = idle.iter().map(is_open).collect();
        assert_eq!(open.iter().filter(|open| **open).count(), 255, "the new one displaced one more");
        assert!(open[..45].iter().all(|open| !open), "the oldest");
    }

    #[test]
    fn a_full_table_takes_the_listener_out_of_the_epoll_and_leaves_outbound_alone() {
        let fixture = Fixture::new(8, 8);
        let mut busy: Vec<_> = (0..8).map(|_| fixture.connect(2, b"r")).collect();
        let mut waiting = fixture.connect(3, b"");
        waiting.write_all(b"d").unwrap();
        assert!(fixture.rounds() <= 3);
        assert!(fixture.connects_out() && is_open(&waiting));
        waiting.set_nonblocking(false).unwrap();
        busy.truncate(7);
        waiting.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn a_source_has_its_share() {
        let fixture = Fixture::new(64, 4);
        let busy: Vec<_> = (0..3).map(|_| fixture.connect(2, b"r")).collect();
        let idle = fixture.connect(2, b"");
        let newer = fixture.connect(2, b"r");
        assert_eq!((fixture.ends(Phase::Opening, "displaced"), is_open(&idle)), (1, false));
        let mut refused = fixture.connect(2, b"");
        assert!(!matches!(refused.read(&mut [0]), Ok(1..)), "closed at once");
        fixture.connect(3, b"d");
        assert!(busy.iter().chain([&newer]).all(is_open));
    }

    #[test]
    fn a_deadline_ends_idle_and_slow_peers() {
        let fixture = Fixture::new(64, 64);
        let (idle, mut slow) = (fixture.connect(2, b""), fixture.connect(2, b""));
        let start = std::time::Instant::now();
        while slow.write_all(b"x").is_ok() && start.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(start.elapsed() < 2 * PATIENCE && !is_open(&idle));
        assert_eq!(fixture.ends(Phase::Opening, "deadline"), 2);
    }

    #[test]
    fn a_peer_may_close_in_each_phase() {
        let fixture = Fixture::new(64, 64);
        for (bytes, phase) in [
            (&b""[..], Phase::Opening),
            (b"p", Phase::Parked),
            (b"r", Phase::Running),
            (b"c", Phase::Closing),
        ] {
            let stream = fixture.connect(2, bytes);
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            fixture.await_ends(phase, "closed", 1);
            drop(fixture.connect(2, bytes));
            let start = std::time::Instant::now();
            while fixture.ends.lock().unwrap().len() < 2 {
                assert!(start.elapsed() < PATIENCE / 2, "{phase:?} reset");
            }
            fixture.ends.lock().unwrap().clear();
        }
        assert!(fixture.rounds() <= 1);
    }

    #[test]
    fn parked_handshakes_resume_after_a_request() {
        let fixture = Fixture::new(64, 64);
        let mut parked = fixture.connect(2, b"p");
        fixture.connector.request(None);
        let mut heard = [0];
        parked.read_exact(&mut heard).unwrap();
        assert_eq!(heard, *b"!");
    }

    #[test]
    fn a_parked_connection_keeps_its_place_for_a_while() {
        let fixture = Fixture::new(2, 2);
        let parked = [fixture.connect(2, b"p"), fixture.connect(2, b"p")];
        let start = std::time::Instant::now();
        fixture.connect(3, b"r");
        assert!(start.elapsed() >= PATIENCE / 10 - Duration::from_millis(20));
        assert_eq!(parked.each_ref().map(is_open), [false, true]);
        assert_eq!(fixture.ends(Phase::Parked, "displaced"), 1);
    }

    #[test]
    fn the_last_message_is_read_however_late() {
        let fixture = Fixture::new(64, 64);
        let mut stream = dial(Route { from: local(2).ip(), to: fixture.address }).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.write_all(b"c").unwrap();
        fixture.await_ends(Phase::Closing, "deadline", 1);
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"C");
    }

    #[test]
    fn handshakes_end_with_the_adapter() {
        let fixture = Fixture::new(64, 64);
        let _running = fixture.connect(2, b"r");
        drop(fixture.connector);
        assert_eq!(*fixture.ends.lock().unwrap(), [(Phase::Running, "shutdown")]);
    }
}
