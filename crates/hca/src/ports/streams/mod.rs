//! The streams of an adapter: a TCP connection for each queue pair, and one epoll for all.
//!
//! - A stream that is idle has no buffer; [`buffers`] bounds what the others hold.
//! - A transport that consumes less than it got and wants no more pauses its stream: the epoll stops watching
//!   the socket, so that it wakes no thread, and TCP's window stops the peer. So does a full inbound impaired
//!   path.
//! - A single stream is read without asking the epoll first, which saves a system call per poll.

mod buffers;
mod closing;
mod device;
mod faults;
mod keepalive;
mod sending;
mod stalls;
mod stream;
mod trace;
mod unanswered;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nichrome_port::{Epoll, Interest, incoming_processor};
use nichrome_rdma::{QpHandle, StreamEnd};
use nichrome_wire::{Instant, NumberMap};
use rustix::io;

use self::buffers::{Buffer, Pool};
use self::device::StreamDevice;
use self::faults::{Content, StreamPath};
use self::keepalive::{limit_silence, within_limits};
use self::stream::{ReadOutcome, State, Stream};
use self::trace::{Output, Trace};
use super::flow_between;
use crate::config::{Faults, StreamFaultsError};
use crate::connected_stream::{ConnectedStream, Sender};
use crate::recorder::Capture;

/// Delay before the end of an idle stream is reported to the device, if the peer was connected by queue pair
/// number. Without a connection manager, a program that has received all its messages may end in that time,
/// and does not see its other receives flushed.
const GRACE: Duration = Duration::from_millis(500);

/// Bytes that a queue pair sends in its turn: one system call for several of the longest FPDUs.
const SEND_LEN: usize = 256 << 10;

/// The epoll token of descriptors other than streams.
const OTHER: u64 = u64::MAX;

/// Counters of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamCounters {
    /// System calls that sent bytes.
    pub(crate) sent: u64,
    /// System calls that received bytes.
    pub(crate) received: u64,
}

/// The streams of an adapter.
pub(crate) struct StreamPorts {
    /// By token.
    streams: NumberMap<u64, Stream>,
    by_qp: NumberMap<QpHandle, u64>,
    next_token: u64,
    ready: Epoll,
    tokens: Vec<u64>,
    /// Streams whose transport wants no bytes, and new streams with bytes that arrived during their set-up.
    paused: Vec<u64>,
    /// Streams that are not read because the inbound impaired path is full.
    stalled: Vec<u64>,
    /// Streams that their queue pair has left, in this order.
    draining: VecDeque<u64>,
    /// Of these, the streams whose FIN has been sent, in the order of the FINs.
    lingering: VecDeque<u64>,
    /// Queue pairs of a connection manager that were detached from their streams.
    detached_qps: Vec<QpHandle>,
    /// Streams that the peer has ended, and when to report it to the device.
    ended: VecDeque<(Instant, u64)>,
    pool: Pool,
    send_buffer: Box<[u8]>,
    /// How long a peer's machine may leave sent bytes and probes unanswered.
    silence: Duration,
    /// When to check for streams that are not answered; `None` while all that was sent is acknowledged.
    check_at: Option<Instant>,
    /// The impaired paths out and back.
    paths: Option<[StreamPath; 2]>,
    counters: StreamCounters,
}

impl StreamPorts {
    /// Checks whether impairments apply to streams.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn check(faults: &Faults) -> Result<(), StreamFaultsError> {
        StreamPath::both(faults).map(drop)
    }

    /// Starts without streams.
    ///
    /// # Errors
    /// The impairments do not apply to streams.
    pub(crate) fn new(
        ready: Epoll,
        silence: Duration,
        faults: Option<&Faults>,
    ) -> Result<Self, StreamFaultsError> {
        Ok(Self {
            streams: NumberMap::default(),
            by_qp: NumberMap::default(),
            next_token: 0,
            ready,
            tokens: Vec::new(),
            paused: Vec::new(),
            stalled: Vec::new(),
            draining: VecDeque::new(),
            lingering: VecDeque::new(),
            detached_qps: Vec::new(),
            ended: VecDeque::new(),
            pool: Pool::default(),
            send_buffer: vec![0; SEND_LEN].into_boxed_slice(),
            silence: within_limits(silence),
            check_at: None,
            paths: faults.map(StreamPath::both).transpose()?,
            counters: StreamCounters::default(),
        })
    }

    pub(crate) fn counters(&self) -> StreamCounters {
        self.counters
    }

    /// The processor that received the last packet of a stream, if the kernel reports it. If there are
    /// several streams, takes any: the queue pairs of a program mostly have one peer.
    pub(crate) fn incoming_processor(&self) -> Option<u32> {
        self.streams.values().next().and_then(incoming_processor)
    }

    /// Deadline of the next chunk on an impaired path, of a stream that is closing, or of the next check for
    /// unanswered streams.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let paths = self.paths.iter().flatten().filter_map(StreamPath::poll_timeout);
        let ended = self.ended.front().map(|(until, _)| *until);
        paths.chain(self.closing_until()).chain(ended).chain(self.check_at).min()
    }

    /// Returns true if a transport wants bytes of a stream that is not read, as after the program has posted
    /// a receive.
    #[inline]
    pub(crate) fn has_wanted(&self, device: &impl StreamDevice) -> bool {
        let mut paused = self.paused.iter().filter_map(|token| self.streams.get(token));
        paused.any(|stream| stream.state == State::Paused && device.wants(stream.qp))
    }

    /// Deadline of the work that keeps an adapter from closing.
    pub(crate) fn outgoing_timeout(&self) -> Option<Instant> {
        let out = self.paths.as_ref().and_then(|[out, _]| out.poll_timeout());
        out.into_iter().chain(self.closing_until()).min()
    }

    /// Returns true if a stream has bytes that its socket has not accepted.
    pub(crate) fn has_unsent(&self) -> bool {
        self.paths.as_ref().is_some_and(|[out, _]| out.poll_timeout().is_some())
            || self.streams.values().any(Stream::is_blocked)
    }

    /// Watches a descriptor besides the streams.
    ///
    /// # Errors
    /// The kernel cannot watch it.
    pub(crate) fn watch_other(&self, descriptor: &impl AsFd) -> io::Result<()> {
        self.ready.add(descriptor, OTHER, Interest::READ)
    }

    /// Takes the queue pairs of a connection manager that were detached from their streams since the last
    /// call.
    #[inline]
    pub(crate) fn take_detached_qps(&mut self) -> Vec<QpHandle> {
        std::mem::take(&mut self.detached_qps)
    }

    /// Attaches a stream to its queue pair.
    ///
    /// # Errors
    /// The kernel cannot watch the socket.
    pub(crate) fn attach(
        &mut self,
        qp: QpHandle,
        connected: ConnectedStream,
        capture: &mut Capture,
        now: Instant,
    ) -> io::Result<()> {
        let ConnectedStream { socket, set_up, rest, by_number } = connected;
        let token = self.next_token;
        // Fails if the connection has failed already; the next read reports that.
        let _ = limit_silence(&socket, self.silence);
        self.ready.add(&socket, token, Interest::READ)?;
        self.next_token += 1;
        let trace = if capture.is_on() { traced(&socket) } else { None };
        let mut stream = Stream::new(socket, qp, by_number, trace);
        if let Some(trace) = &mut stream.trace {
            trace.record_set_up(&set_up, &mut Output::new(capture, now));
        }
        if !rest.is_empty() {
            record(&mut stream, Sender::Peer, &rest, capture, now);
            (stream.held, stream.state) = (Some(Buffer::own(rest)), State::Paused);
            self.paused.push(token);
        }
        self.streams.insert(token, stream);
        self.watch(token);
        // The end of the set-up may not be acknowledged yet.
        self.expect_answers(now);
        if let Some(before) = self.by_qp.insert(qp, token) {
            self.remove(before);
        }
        Ok(())
    }

    /// Resets the stream of a queue pair.
    fn reset(&mut self, qp: QpHandle) {
        let Some(token) = self.by_qp.remove(&qp) else { return };
        if let Some(stream) = self.streams.get(&token) {
            stream.reset_on_close();
            if !stream.by_number {
                self.detached_qps.push(qp);
            }
        }
        self.remove(token);
    }

    /// Closes the streams of all queue pairs.
    pub(crate) fn close_all(&mut self, now: Instant) {
        for qp in self.by_qp.keys().copied().collect::<Vec<_>>() {
            self.close(qp, now);
        }
    }

    /// Closes the descriptors of all streams in a forked child. The connections go on in its parent.
    pub(crate) fn close_in_child(&mut self) {
        self.streams.clear();
        self.by_qp.clear();
    }

    /// Receives bytes of the streams that have any; returns true if more may wait.
    pub(crate) fn receive(
        &mut self,
        device: &mut impl StreamDevice,
        capture: &mut Capture,
        now: Instant,
    ) -> bool {
        self.resume(device, now);
        // Bytes that are due to be sent are older than a received end of the stream.
        self.release_sent(device, capture, now);
        self.release_received(device, now);
        self.expire(now);
        self.end_unanswered(device, now);
        while let Some((_, token)) = self.ended.pop_front_if(|(until, _)| *until <= now) {
            self.end(token, StreamEnd::Closed, device, now);
        }
        self.end_stalls();
        let mut tokens = std::mem::take(&mut self.tokens);
        tokens.clear();
        match self.only_open_stream() {
            Some(token) => tokens.push(token),
            // If epoll_wait(2) fails, nothing is received in this call.
            None => drop(self.ready.wait(&mut tokens, Some(Instant::ZERO))),
        }
        let mut more = false;
        for token in &tokens {
            more |= self.advance(*token, device, capture, now);
        }
        self.tokens = tokens;
        self.release_received(device, now);
        more
    }

    /// The only stream, if the driver waits for nothing but its received bytes.
    fn only_open_stream(&self) -> Option<u64> {
        if self.streams.len() > 1 {
            return None;
        }
        let (token, stream) = self.streams.iter().next()?;
        (stream.state == State::Open && !stream.is_stalled && !stream.is_blocked()).then_some(*token)
    }

    /// Passes the device the bytes that have passed the impaired path.
    fn release_received(&mut self, device: &mut impl StreamDevice, now: Instant) {
        while let Some(chunk) = self.paths.as_mut().and_then(|[_, back]| back.poll(now)) {
            match chunk.content {
                Content::Bytes(bytes) => {
                    let Some(stream) = self.streams.get_mut(&chunk.stream) else { continue };
                    let mut buffer = self.pool.lend(&mut stream.held);
                    buffer.extend(&bytes);
                    self.deliver(chunk.stream, buffer, device, now);
                }
                Content::End(end) => self.end_behind_held(chunk.stream, end, device, now),
            }
        }
    }

    /// Handles the end of the peer's direction, which has passed the impaired path. If bytes are held, the
    /// end remains behind them: the transport may need receives for them.
    fn end_behind_held(&mut self, token: u64, end: StreamEnd, device: &mut impl StreamDevice, now: Instant) {
        match self.streams.get_mut(&token) {
            Some(stream) if end == StreamEnd::Closed && stream.held.is_some() => {
                stream.has_ended = true;
                if stream.state != State::Paused {
                    stream.state = State::Paused;
                    self.paused.push(token);
                }
            }
            _ => self.end(token, end, device, now),
        }
    }

    /// Passes the held bytes to transports that want bytes again, and resumes reading.
    fn resume(&mut self, device: &mut impl StreamDevice, now: Instant) {
        if self.paused.is_empty() {
            return;
        }
        let paused = std::mem::take(&mut self.paused);
        for token in paused {
            let Some(stream) = self.streams.get_mut(&token) else { continue };
            match stream.state {
                State::Paused if device.wants(stream.qp) => {
                    stream.state = State::Open;
                    let (buffer, has_ended) = (self.pool.lend(&mut stream.held), stream.has_ended);
                    self.deliver(token, buffer, device, now);
                    match has_ended {
                        false => self.watch(token),
                        true if self.is_paused(token) => {}
                        true => self.end(token, StreamEnd::Closed, device, now),
                    }
                }
                State::Paused => self.paused.push(token),
                State::Open | State::Ended | State::Closing(_) => {}
            }
        }
    }

    fn is_paused(&self, token: u64) -> bool {
        self.streams.get(&token).is_some_and(|stream| stream.state == State::Paused)
    }

    /// Serves a stream whose socket is ready; returns true if more bytes may wait.
    fn advance(
        &mut self,
        token: u64,
        device: &mut impl StreamDevice,
        capture: &mut Capture,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(&token) else { return false };
        if stream.is_blocked() {
            if stream.flush(&mut self.counters.sent).is_err() {
                self.end(token, StreamEnd::Lost, device, now);
                return false;
            }
            let is_stalled = stream.state == State::Open && stream.is_stalled;
            if !stream.is_blocked() {
                device.unblock(stream.qp);
                self.linger_if_finished(token, now);
                self.watch(token);
            }
            self.expect_answers(now);
            if is_stalled {
                return false;
            }
        } else if stream.state == State::Paused {
            // The epoll reports resets of sockets without any interest.
            self.end(token, StreamEnd::Lost, device, now);
            return false;
        }
        self.read(token, device, capture, now)
    }

    /// Reads a stream once; returns true if more bytes may wait.
    fn read(
        &mut self,
        token: u64,
        device: &mut impl StreamDevice,
        capture: &mut Capture,
        now: Instant,
    ) -> bool {
        // Goes on with a stream that is stalled already: the epoll reports its reset, and the bytes received
        // before the reset are read nevertheless.
        if self.is_path_full() && self.stall(token) {
            return false;
        }
        let Self { streams, pool, paths, counters, ready, .. } = self;
        let Some(stream) = streams.get_mut(&token) else { return false };
        match stream.state {
            State::Open => {}
            State::Paused => return false,
            State::Ended => {
                // Fails only if the socket is removed already.
                let _ = ready.remove(&*stream);
                return false;
            }
            State::Closing(_) => {
                let is_over = stream.discard(&mut self.send_buffer);
                if is_over {
                    self.remove(token);
                }
                return false;
            }
        }
        let mut buffer = if paths.is_some() { pool.lend(&mut None) } else { pool.lend(&mut stream.held) };
        let limit = pool.read_limit(&buffer);
        let room = buffer.room();
        let capacity = room.len().min(limit);
        let outcome = stream.read(&mut room[..capacity]);
        let ReadOutcome::Bytes(len) = outcome else {
            let held = pool.keep(buffer);
            if paths.is_none() {
                stream.held = held;
            }
            if let ReadOutcome::End(end) = outcome {
                if let Some(trace) = &mut stream.trace {
                    trace.record_end(Sender::Peer, &mut Output::new(capture, now));
                }
                self.peer_ended(token, end, device, now);
            }
            return false;
        };
        counters.received += 1;
        buffer.add(len);
        let from = buffer.bytes().len() - len;
        record(stream, Sender::Peer, &buffer.bytes()[from..], capture, now);
        match paths {
            Some([_, back]) => {
                back.send(token, buffer.bytes(), now);
                buffer.consume(len);
                pool.keep(buffer);
            }
            None => self.deliver(token, buffer, device, now),
        }
        len == capacity
    }

    /// Gives a transport the bytes of its stream, and pauses the stream if it wants no more.
    fn deliver(&mut self, token: u64, mut buffer: Buffer, device: &mut impl StreamDevice, now: Instant) {
        let Some(stream) = self.streams.get_mut(&token) else {
            self.pool.discard(Some(buffer));
            return;
        };
        let is_closing = matches!(stream.state, State::Closing(_));
        let consumed = match is_closing || buffer.bytes().is_empty() {
            true => buffer.bytes().len(),
            false => device.receive(stream.qp, buffer.bytes(), now),
        };
        buffer.consume(consumed);
        stream.held = self.pool.keep(buffer);
        if stream.state == State::Open && stream.held.is_some() && !device.wants(stream.qp) {
            stream.state = State::Paused;
            self.paused.push(token);
            self.watch(token);
        }
    }

    /// Handles the end of the peer's direction of a stream. On an impaired path it follows the bytes in
    /// flight.
    fn peer_ended(&mut self, token: u64, end: StreamEnd, device: &mut impl StreamDevice, now: Instant) {
        let Some(stream) = self.streams.get_mut(&token) else { return };
        if let Some([_, back]) = &mut self.paths {
            stream.state = State::Ended;
            back.end(token, end, now);
            self.watch(token);
        } else if end == StreamEnd::Closed && stream.has_grace() {
            // The peer waits for this end's FIN. The socket has nothing more to read.
            stream.finish();
            stream.state = State::Ended;
            let _ = self.ready.remove(&*stream);
            self.ended.push_back((now + GRACE, token));
        } else {
            self.end(token, end, device, now);
        }
    }

    /// Removes a stream and reports its end to the device.
    fn end(&mut self, token: u64, end: StreamEnd, device: &mut impl StreamDevice, now: Instant) {
        let Some(stream) = self.streams.get(&token) else { return };
        let (qp, is_closing) = (stream.qp, matches!(stream.state, State::Closing(_)));
        if !is_closing && !stream.by_number {
            self.detached_qps.push(qp);
        }
        // The held bytes are an incomplete message.
        let end = if stream.held.is_none() { end } else { StreamEnd::Lost };
        self.remove(token);
        if !is_closing {
            self.by_qp.remove(&qp);
            device.closed(qp, end, now);
        }
    }

    fn remove(&mut self, token: u64) {
        let Some(stream) = self.streams.remove(&token) else { return };
        // Closing the socket does not end its registration while a forked child has it, too.
        let _ = self.ready.remove(&stream);
        self.pool.discard(stream.held);
    }

    /// Updates the readiness that the epoll watches a stream for.
    fn watch(&mut self, token: u64) {
        let Some(stream) = self.streams.get_mut(&token) else { return };
        let interest = stream.interest();
        if stream.watched != interest && self.ready.modify(&*stream, token, interest).is_ok() {
            stream.watched = interest;
        }
    }
}

impl AsFd for StreamPorts {
    /// Readable while a stream has bytes, or accepts bytes again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// The trace of a connection; `None` if the kernel does not know its addresses any more.
fn traced(socket: &TcpStream) -> Option<Box<Trace>> {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (local, peer) = (canonical(socket.local_addr().ok()?), canonical(socket.peer_addr().ok()?));
    flow_between(local, peer).map(|flow| Box::new(Trace::new(flow)))
}

/// Adds bytes of a stream to the capture.
#[inline]
fn record(stream: &mut Stream, sender: Sender, bytes: &[u8], capture: &mut Capture, now: Instant) {
    if let Some(trace) = &mut stream.trace {
        trace.record(sender, bytes, &mut Output::new(capture, now));
    }
}

#[cfg(test)]
mod tests;
