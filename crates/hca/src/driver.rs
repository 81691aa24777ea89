//! Who drives the device: whoever polls it, and a thread of its own while nobody does.
//!
//! The target of a WRITE or READ never calls a verb, so something must: the thread waits for datagrams and timers. A
//! program that polls does the same work inline, which saves two context switches per message. The thread then naps, longer
//! each time, and looks after each nap whether the program still polls. If it does not, the thread does what there is to do
//! and waits at the socket. So a program that polls now and then, and in between looks at memory for what its peer writes
//! there, is served too.
//!
//! A program that polls in vain gives up its processor now and then: the peer that it waits for may need it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nichrome_port::{Waker, clock};
use nichrome_rdma::star::Wish;
use nichrome_rdma::{Device, Event, Memory, ModifyError, ObjectError, QpChange, QpHandle, QpState};
use nichrome_wire::Instant;
use rustix::io::Errno;

use crate::config::{AdapterConfig, OpenError, Port, Transport};
use crate::star::{Host, Negotiator, Order, StarPort};
use crate::wire::{Wire, WireCounters};

/// Batches that are received and sent before the lock is given up.
const ROUNDS: usize = 8;

/// Time without a poll after which a program is one that does not poll.
const PATIENCE: Duration = Duration::from_micros(10);

/// How long the thread keeps away from the socket of a program that polls: at first, and after longer and longer naps.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(640));

/// How long a program may poll in vain before others get their turn, where there are several processors: longer than a
/// peer on another takes to answer, shorter than a time slice. A shorter time would let the scheduler leave both ends
/// of a connection on one processor.
const SPIN: Duration = Duration::from_millis(1);

/// How often the peer of a queue pair that goes is told what has arrived. It takes silence for a failure, and its
/// repetitions will find nobody who answers: one lost acknowledgement must not turn success into an error.
const FAREWELLS: usize = 3;

/// How long what is delayed on its way out keeps an adapter from being closed.
const LINGER: Duration = Duration::from_secs(1);

/// How long what waits for a full socket waits.
const FULL_SOCKET: Duration = Duration::from_micros(50);

/// What is told of events. It is called under the device's lock, and calls no verb.
pub type EventSink = Box<dyn Fn(Event) + Send + Sync>;

/// A device at an address, and what makes it go.
pub struct Driver<M: Memory + Send + 'static> {
    shared: Arc<Shared<M>>,
    /// How long a program may poll in vain.
    spin: Duration,
    /// Who sets up connections that may be StaR's, and which side this one wants to be stateless.
    negotiator: Option<(Negotiator, Wish)>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<M> {
    card: Mutex<Card<M>>,
    /// Where datagrams come from, to wait for.
    socket: OwnedFd,
    local: SocketAddr,
    /// Calls the thread.
    waker: Waker,
    /// When the program last polled, in nanoseconds: whoever polls drives the device.
    polled_at: AtomicU64,
    /// When something last came or went, in nanoseconds.
    busy_at: AtomicU64,
    /// Programs that wait for an event, and drive the device meanwhile.
    waiters: AtomicUsize,
    /// Events that programs wait for with descriptors that the driver does not know.
    attended: AtomicUsize,
    /// Whether the thread naps.
    is_napping: AtomicBool,
    /// When the thread wakes by itself, in nanoseconds; 0 while it is awake or naps.
    wakes_at: AtomicU64,
    ended: AtomicBool,
    events: EventSink,
}

struct Card<M> {
    device: Device<M>,
    wire: Wire,
    /// Whether the lock was given up before everything was done.
    is_unfinished: bool,
}

impl<M: Memory + Send + 'static> Driver<M> {
    /// Opens a device whose memory is `memory`.
    ///
    /// # Errors
    /// The address, the capture, the faults or the device cannot be had.
    pub fn open(config: &AdapterConfig, memory: M, events: EventSink) -> Result<Self, OpenError> {
        let port = Port::open(config.place)?;
        let device = Device::new(port.device(config)?, memory)?;
        let wire = Wire::new(port, config)?;
        let (socket, local) = (wire.source().try_clone_to_owned(), wire.socket().local());
        let failed =
            |error: std::io::Error| OpenError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        let shared = Arc::new(Shared {
            card: Mutex::new(Card { device, wire, is_unfinished: false }),
            socket: socket.map_err(failed)?,
            local,
            waker: Waker::new().map_err(OpenError::Thread)?,
            polled_at: AtomicU64::new(0),
            busy_at: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            is_napping: AtomicBool::new(false),
            wakes_at: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            events,
        });
        let negotiator = match config.transport {
            Transport::Roce => None,
            Transport::Star => {
                let host = Arc::clone(&shared) as Arc<dyn Host<M>>;
                let wish = config.star.stateless.wish();
                let listener = StarPort::listen(local)?;
                Some((Negotiator::start(listener, host, config.star.report).map_err(failed)?, wish))
            }
        };
        let driven = Arc::clone(&shared);
        let thread = thread::Builder::new().name("nichrome-hca".to_owned()).spawn(move || driven.drive());
        let is_alone = thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let spin = if is_alone { Duration::ZERO } else { SPIN };
        Ok(Self { shared, spin, negotiator, thread: Some(thread.map_err(failed)?) })
    }

    /// Calls verbs, and sends what they bring about.
    pub fn call<T>(&self, verbs: impl FnOnce(&mut Device<M>) -> T) -> T {
        self.shared.call(verbs)
    }

    /// Changes a queue pair. One whose transport is to be negotiated begins to send when that is done.
    ///
    /// # Errors
    /// As [`Device::modify_qp`].
    pub fn modify_qp(&self, qp: QpHandle, change: &QpChange) -> Result<(), ModifyError> {
        let Some((negotiator, wish)) = &self.negotiator else {
            return self.call(|device| device.modify_qp(qp, change));
        };
        let order = self.call(|device| {
            device.modify_qp(qp, change)?;
            // A program that only receives goes no further. Of the other services there is only RoCE.
            if change.state != Some(QpState::Rtr) || device.hold_qp(qp).is_err() {
                return Ok(None);
            }
            let report = device.query_qp(qp)?;
            let address = self.shared.local.ip();
            let peer = report.path.map(|path| path.destination).zip(report.destination);
            let order = |peer| Order { qp, number: report.number, address, peer, wish: *wish };
            Ok::<_, ModifyError>(peer.map(order))
        })?;
        match order {
            Some(order) if order.is_loop() => drop(self.call(|device| device.release_qp(qp))),
            Some(order) => negotiator.order(order),
            None => {}
        }
        Ok(())
    }

    /// Queue pairs that wait until their transport is negotiated.
    pub fn held_qps(&self) -> usize {
        self.negotiator.as_ref().map_or(0, |(negotiator, _)| negotiator.open())
    }

    /// Destroys a queue pair, after its peer has heard for sure what has arrived.
    ///
    /// # Errors
    /// It does not exist.
    pub fn destroy_qp(&self, qp: QpHandle) -> Result<(), ObjectError> {
        for _ in 0..FAREWELLS {
            self.call(|device| device.acknowledge_again(qp))?;
        }
        self.call(|device| device.destroy_qp(qp))
    }

    /// Does something with the device's memory while the device does not.
    pub fn touch<T>(&self, f: impl FnOnce(&mut M) -> T) -> T {
        f(self.shared.card().device.memory_mut())
    }

    /// Takes in what has arrived, sends what is due, then calls verbs: for polling. Where nothing is found and there has
    /// been no traffic for a while, others get the processor: where both ends of a connection poll on one, each would
    /// otherwise keep the other from answering until its time slice is over.
    pub fn poll<T>(&self, verbs: impl FnOnce(&mut Device<M>) -> Option<T>) -> Option<T> {
        let shared = &*self.shared;
        let (found, now) = {
            let card = &mut *shared.card();
            let before = card.wire.counters();
            let now = card.progress(&shared.events);
            shared.polled_at.store(now.as_nanos(), Ordering::Relaxed);
            if card.wire.counters() != before {
                shared.busy_at.store(now.as_nanos(), Ordering::Relaxed);
            }
            (verbs(&mut card.device), now)
        };
        if found.is_none() && now - shared.busy_at() > self.spin {
            thread::yield_now();
        }
        found
    }

    /// Drives the device until `waker` is woken or it is `until`: for waiting.
    pub fn wait(&self, waker: &Waker, until: Option<Instant>) {
        let shared = &*self.shared;
        shared.waiters.fetch_add(1, Ordering::SeqCst);
        loop {
            let due = {
                let card = &mut *shared.card();
                card.progress(&shared.events);
                card.poll_timeout()
            };
            let deadline = [due, until].into_iter().flatten().min();
            let woken = clock::wait([waker.as_fd(), shared.socket.as_fd()], deadline);
            if !matches!(woken, Ok([false, _])) || until.is_some_and(|until| until <= clock::now()) {
                break;
            }
        }
        shared.waiters.fetch_sub(1, Ordering::SeqCst);
        // The thread may wait for the waker alone.
        shared.call_for(Some(Instant::ZERO));
    }

    /// The program is going to wait for an event without telling the driver: until [`Driver::leave`], the thread stays at
    /// the socket however often the program polls.
    pub fn attend(&self) {
        self.shared.attended.fetch_add(1, Ordering::SeqCst);
        if self.shared.is_napping.swap(false, Ordering::SeqCst) {
            self.shared.waker.wake();
        }
    }

    /// An event that the program waited for has come, or it waits no more. To be called as often as
    /// [`Driver::attend`].
    pub fn leave(&self) {
        self.shared.attended.fetch_sub(1, Ordering::SeqCst);
    }

    /// Keeps all others from the device as long as the result lives: for a process that is about to fork, whose child
    /// would find it half changed.
    pub fn pause(&self) -> Paused<'_, M> {
        Paused(self.shared.card())
    }

    /// Where the device is.
    pub fn local(&self) -> SocketAddr {
        self.shared.local
    }

    /// What the wire has done.
    pub fn wire_counters(&self) -> WireCounters {
        self.shared.card().wire.counters()
    }
}

/// A device that nobody else reaches.
pub struct Paused<'a, M>(MutexGuard<'a, Card<M>>);

impl<M> Paused<'_, M> {
    /// Cuts the device off from the network for good: the socket is the parent's.
    pub fn cut_off(&mut self) {
        self.0.wire.cut_off();
    }
}

impl<M: Memory> Shared<M> {
    /// The device. A panic under the lock leaves a device that is no worse than its state machine.
    fn card(&self) -> MutexGuard<'_, Card<M>> {
        self.card.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls verbs, and sends what they bring about.
    fn call<T>(&self, verbs: impl FnOnce(&mut Device<M>) -> T) -> T {
        let card = &mut *self.card();
        let result = verbs(&mut card.device);
        let (now, before) = (clock::now(), card.wire.counters().sent);
        card.transmit(now);
        if card.wire.counters().sent != before {
            self.busy_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        card.tell(&self.events);
        // What was begun may have a timer, which the thread does not know of.
        self.call_for(card.poll_timeout());
        result
    }

    /// When something last came or went.
    fn busy_at(&self) -> Instant {
        Instant::from_nanos(self.busy_at.load(Ordering::Relaxed))
    }

    /// Calls the thread if it would sleep for longer than until `due`.
    fn call_for(&self, due: Option<Instant>) {
        let Some(due) = due else { return };
        let wakes_at = self.wakes_at.load(Ordering::SeqCst);
        if due.as_nanos() < wakes_at
            && self.wakes_at.compare_exchange(wakes_at, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            self.waker.wake();
        }
    }
}

impl<M: Memory> Shared<M> {
    /// What the thread does.
    fn drive(&self) {
        // Where the kernel takes no wishes, the thread waits for its turn.
        let _ = clock::sleep_precisely();
        let (shortest, longest) = NAPS;
        let mut nap = shortest;
        while !self.ended.load(Ordering::SeqCst) {
            if self.is_polled() {
                self.nap(nap);
                nap = longest.min(2 * nap);
                continue;
            }
            match self.watch() {
                Ok(true) => nap = shortest,
                Ok(false) => {}
                // Without descriptors to wait for nothing can be received any more.
                Err(_) => return,
            }
        }
    }

    /// Whether the program polls, or is about to: who calls verbs one after the other polls in the end. Who waits for an
    /// event does not, however often it polls.
    fn is_polled(&self) -> bool {
        let polled_at = Instant::from_nanos(self.polled_at.load(Ordering::Relaxed));
        self.attended.load(Ordering::SeqCst) == 0
            && (clock::now() - polled_at <= PATIENCE
                || matches!(self.card.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Leaves the socket to who polls.
    fn nap(&self, time: Duration) {
        // Someone who begins to wait for events after this calls the thread.
        self.is_napping.store(true, Ordering::SeqCst);
        if self.attended.load(Ordering::SeqCst) == 0
            && matches!(clock::wait([self.waker.as_fd()], Some(clock::now() + time)), Ok([true]))
        {
            self.waker.clear();
        }
        self.is_napping.store(false, Ordering::SeqCst);
    }

    /// Does what there is to do and waits for the next datagram or timer; returns whether there was something to do.
    fn watch(&self) -> rustix::io::Result<bool> {
        // Who sets a timer after this calls the thread.
        self.wakes_at.store(u64::MAX, Ordering::SeqCst);
        let (due, was_needed) = {
            let card = &mut *self.card();
            let before = card.wire.counters();
            card.progress(&self.events);
            (card.poll_timeout(), card.wire.counters() != before)
        };
        if let Some(due) = due {
            self.wakes_at.fetch_min(due.as_nanos(), Ordering::SeqCst);
        }
        let was_called = if self.waiters.load(Ordering::SeqCst) > 0 {
            clock::wait([self.waker.as_fd()], due).map(|[called]| called)
        } else {
            clock::wait([self.waker.as_fd(), self.socket.as_fd()], due).map(|[called, _]| called)
        };
        self.wakes_at.store(0, Ordering::SeqCst);
        if was_called? {
            self.waker.clear();
        }
        Ok(was_needed)
    }
}

impl<M: Memory + Send> Host<M> for Shared<M> {
    fn with(&self, verbs: &mut dyn FnMut(&mut Device<M>)) {
        self.call(verbs);
    }
}

impl<M: Memory> Card<M> {
    /// Does what is due, receives and sends; returns when that was.
    fn progress(&mut self, events: &EventSink) -> Instant {
        self.is_unfinished = true;
        let mut now = Instant::ZERO;
        for _ in 0..ROUNDS {
            now = clock::now();
            if self.device.poll_timeout().is_some_and(|due| due <= now) {
                self.device.handle_timeout(now);
            }
            let more_comes = self.wire.receive(&mut self.device, now);
            let more_goes = self.wire.transmit(&mut self.device, now);
            if !more_comes && !more_goes {
                self.is_unfinished = false;
                break;
            }
        }
        self.tell(events);
        now
    }

    /// Sends.
    fn transmit(&mut self, now: Instant) {
        let mut rounds = 0..ROUNDS;
        self.is_unfinished |= rounds.all(|_| self.wire.transmit(&mut self.device, now));
    }

    fn tell(&mut self, events: &EventSink) {
        while let Some(event) = self.device.poll_event() {
            events(event);
        }
    }

    /// Sends what is delayed on its way out.
    fn linger(&mut self) {
        let until = clock::now() + LINGER;
        while let Some(due) = self.wire.outgoing_timeout().filter(|due| *due < until) {
            // A wait that fails is one that was too short.
            let _ = clock::wait([], Some(due));
            self.wire.let_out(clock::now());
        }
    }

    /// When there is something to do without a datagram.
    fn poll_timeout(&self) -> Option<Instant> {
        if self.is_unfinished {
            return Some(Instant::ZERO);
        }
        let socket = self.wire.is_full().then(|| clock::now() + FULL_SOCKET);
        [self.device.poll_timeout(), self.wire.poll_timeout(), socket].into_iter().flatten().min()
    }
}

impl<M: Memory + Send + 'static> Drop for Driver<M> {
    fn drop(&mut self) {
        self.negotiator = None;
        self.call(Device::acknowledge_all);
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It reports nothing.
            let _ = thread.join();
        }
        self.shared.card().linger();
    }
}
