//! Who negotiates for all queue pairs of an adapter: a thread of its own.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nichrome_port::{Waker, clock};
use nichrome_rdma::star::{Refusal, Wish};
use nichrome_rdma::{Device, Memory, QpChange, QpHandle, QpNumber, QpState};
use nichrome_wire::star::STAR_PORT;
use nichrome_wire::{Instant, SeqNumber};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::negotiation::{Failure, Negotiation, Progress};

/// Set-ups at a time that this side has called for, or that others have.
const MOST: usize = 256;

/// How long the peer's kernel may take to answer a call, and to take in what is said.
const CALL: Duration = Duration::from_secs(3);

/// Failures that are told one by one.
const TOLD: usize = 8;

/// How long the last word may take to be heard.
const LINGER: Duration = Duration::from_secs(1);

/// How often the wait is ended to see whether the adapter is.
const ROUND: Duration = Duration::from_secs(5);

/// A queue pair that is to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) qp: QpHandle,
    pub(crate) number: QpNumber,
    pub(crate) address: IpAddr,
    pub(crate) peer: (IpAddr, QpNumber),
    pub(crate) wish: Wish,
}

impl Order {
    /// Whether this side calls the other.
    pub(super) fn calls(&self) -> bool {
        (self.address, self.number) < self.peer
    }

    /// A connection of a queue pair with itself.
    pub(crate) fn is_loop(&self) -> bool {
        (self.address, self.number) == self.peer
    }
}

/// The device, for what set-up comes to.
pub(crate) trait Host<M>: Send + Sync {
    /// Calls verbs, and sends what they bring about.
    fn with(&self, verbs: &mut dyn FnMut(&mut Device<M>));
}

/// The thread's handle. It ends when this goes.
pub(crate) struct Negotiator {
    orders: Sender<Order>,
    waker: Arc<Waker>,
    ended: Arc<AtomicBool>,
    /// Set-ups that are not over.
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Negotiator {
    /// Negotiates for the device behind `host`, whose address `listener` has.
    pub(crate) fn start<M: Memory + Send + 'static>(
        listener: TcpListener,
        host: Arc<dyn Host<M>>,
        report: fn(&str),
    ) -> std::io::Result<Self> {
        let (orders, inbox) = channel();
        let (waker, ended) = (Arc::new(Waker::new()?), Arc::new(AtomicBool::new(false)));
        let open = Arc::new(AtomicUsize::new(0));
        let work = Work {
            listener,
            host,
            report,
            inbox,
            waker: Arc::clone(&waker),
            ended: Arc::clone(&ended),
            open: Arc::clone(&open),
            to_call: VecDeque::new(),
            expected: HashMap::new(),
            talks: Vec::new(),
            failures: 0,
        };
        let thread = thread::Builder::new().name("nichrome-star".to_owned()).spawn(move || work.run())?;
        Ok(Self { orders, waker, ended, open, thread: Some(thread) })
    }

    /// How many set-ups are not over.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn order(&self, order: Order) {
        self.open.fetch_add(1, Ordering::SeqCst);
        // The thread lives as long as this.
        let _ = self.orders.send(order);
        self.waker.wake();
    }
}

impl Drop for Negotiator {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It reports nothing.
            let _ = thread.join();
        }
    }
}

struct Work<M> {
    listener: TcpListener,
    host: Arc<dyn Host<M>>,
    report: fn(&str),
    inbox: Receiver<Order>,
    waker: Arc<Waker>,
    ended: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    to_call: VecDeque<Order>,
    /// Queue pairs that their peers will call for, by number.
    expected: HashMap<QpNumber, (Order, Instant)>,
    talks: Vec<Negotiation>,
    /// Set-ups that have failed.
    failures: usize,
}

impl<M: Memory> Work<M> {
    fn run(mut self) {
        while !self.ended.load(Ordering::SeqCst) {
            if self.wait().is_err() {
                return;
            }
            self.waker.clear();
            self.take_orders();
            self.answer();
            self.call();
            self.talk();
            self.give_up();
        }
        for mut talk in self.talks {
            talk.refuse(Refusal::Shutdown);
        }
    }

    /// Waits for whatever comes first.
    fn wait(&self) -> rustix::io::Result<()> {
        if !self.to_call.is_empty() && self.talks.len() < MOST {
            return Ok(());
        }
        let mut sources = vec![
            PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        for talk in &self.talks {
            let wanted = if talk.is_writing() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            sources.push(PollFd::from_borrowed_fd(talk.source(), wanted));
        }
        let expected = self.expected.values().map(|(_, until)| *until);
        let due = self.talks.iter().map(Negotiation::until).chain(expected).min();
        let wait = due.map_or(ROUND, |due| Duration::from_nanos(due.nanos_since(clock::now())).min(ROUND));
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut sources, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn take_orders(&mut self) {
        while let Ok(order) = self.inbox.try_recv() {
            if order.calls() {
                self.to_call.push_back(order);
            } else {
                self.expected.insert(order.number, (order, clock::now() + super::negotiation::PATIENCE));
            }
        }
    }

    /// Accepts calls.
    fn answer(&mut self) {
        while self.talks.len() < MOST
            && let Ok((stream, _)) = self.listener.accept()
        {
            if prepare(&stream).is_ok() {
                self.talks.push(Negotiation::new(stream, clock::now()));
            }
        }
    }

    /// Calls the peers of queue pairs.
    fn call(&mut self) {
        while self.talks.len() < MOST
            && let Some(order) = self.to_call.pop_front()
        {
            let talk = dial(&order).map_err(Failure::from).and_then(|stream| {
                let mut talk = Negotiation::new(stream, clock::now());
                self.begin(&mut talk, order)?;
                Ok(talk)
            });
            match talk {
                Ok(talk) => self.talks.push(talk),
                Err(failure) => self.fail(&order, &failure),
            }
        }
    }

    fn begin(&self, talk: &mut Negotiation, order: Order) -> Result<(), Failure> {
        let first_element = SeqNumber(RandomState::new().build_hasher().finish() as u32);
        let mut result = Ok(());
        self.host.with(&mut |device| result = talk.begin(order, first_element, device));
        result
    }

    /// Goes on with all talks.
    fn talk(&mut self) {
        let now = clock::now();
        for mut talk in std::mem::take(&mut self.talks) {
            match self.go_on(&mut talk, now) {
                Ok(Progress::Waits) => self.talks.push(talk),
                Ok(Progress::Lingers) => {
                    talk.hurry(now + LINGER);
                    if now < talk.until() {
                        self.talks.push(talk);
                    } else {
                        talk.leave();
                    }
                }
                Ok(Progress::Over) => {}
                Err(failure) => {
                    talk.refuse(Refusal::Connection);
                    if let Some(order) = talk.order().copied() {
                        self.fail(&order, &failure);
                    }
                }
            }
        }
    }

    fn go_on(&mut self, talk: &mut Negotiation, now: Instant) -> Result<Progress, Failure> {
        let was_over = talk.is_over();
        let progress = self.hear(talk, now);
        if talk.is_over() && !was_over {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        progress
    }

    fn hear(&mut self, talk: &mut Negotiation, now: Instant) -> Result<Progress, Failure> {
        let progress = talk.advance(|verbs| self.host.with(verbs), now)?;
        let Some((address, offer)) = talk.caller()? else { return Ok(progress) };
        let order = offer.peer_connection.and_then(|number| self.expected.get(&number));
        let order = order.map(|(order, _)| *order).filter(|order| order.peer == (address, offer.connection));
        let Some(order) = order else { return Ok(progress) };
        self.expected.remove(&order.number);
        if let Err(failure) = self.begin(talk, order) {
            self.fail(&order, &failure);
            return Err(failure);
        }
        talk.advance(|verbs| self.host.with(verbs), now)
    }

    /// Gives up waiting for calls that do not come.
    fn give_up(&mut self) {
        let now = clock::now();
        let late: Vec<Order> =
            self.expected.values().filter(|(_, until)| *until <= now).map(|(order, _)| *order).collect();
        for order in late {
            self.expected.remove(&order.number);
            self.fail(&order, &Failure::Silence);
        }
    }

    /// There will be no connection: the queue pair is in error, and its program is told why.
    fn fail(&mut self, order: &Order, failure: &Failure) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        // It may be gone, and then nobody minds.
        self.host.with(&mut |device| _ = device.modify_qp(order.qp, &QpChange::to(QpState::Err)));
        self.failures += 1;
        if self.failures > TOLD {
            if self.failures == TOLD + 1 {
                (self.report)("more queue pairs have no connection: they are not told one by one");
            }
            return;
        }
        let Order { number, peer: (address, theirs), .. } = order;
        (self.report)(&format!(
            "queue pair {:#x} has no connection with {:#x} at {address}: {failure}",
            number.value(),
            theirs.value()
        ));
    }
}

/// Calls the peer from the adapter's address, by which it knows the caller; does not wait for its answer, which other
/// set-ups would wait for too.
fn dial(order: &Order) -> std::io::Result<TcpStream> {
    let family = if order.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let stream = TcpStream::from(socket(family, SocketType::STREAM, None)?);
    prepare(&stream)?;
    set_tcp_user_timeout(&stream, CALL.as_millis() as u32)?;
    bind(&stream, &SocketAddr::new(order.address, 0))?;
    match connect(&stream, &SocketAddr::new(order.peer.0, STAR_PORT)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Nothing waits; and as whoever hears the last word ends the stream, no port is kept busy by streams that have ended.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    set_socket_linger(stream, Some(Duration::ZERO))?;
    Ok(())
}
