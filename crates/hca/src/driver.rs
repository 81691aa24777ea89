//! Drives a device: the program that polls it, else a thread of the driver (see [`crate::handover`]).
//!
//! A program that polls receives and sends inline, which saves two context switches per message. After a time
//! of empty polls it yields its processor, because the peer that it waits for may need it (see
//! [`crate::spin`]).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nichrome_port::capture::WriteError;
use nichrome_port::{Waker, clock, spawn_quiet};
use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::{
    Device, GroupChange, Memory, ModifyError, MulticastError, ObjectError, QpChange, QpHandle, QpState,
};
use nichrome_wire::Instant;
use rustix::io::Errno;

use crate::cm::{
    ChannelError, ChannelHost, CmChannel, ConnectionManager, DetachedManager, Modify, Unavailable,
};
use crate::config::{AdapterConfig, JoinError, OpenError, RoceSocket, Transport, seed};
use crate::connected_stream::ConnectedStream;
use crate::handover::Handover;
use crate::iwarp::{self, AttachError, IwarpCounters, IwarpOptions, IwarpSetup, StreamHost};
use crate::live_device::{EventSink, LiveDevice, STREAM_LINGER};
use crate::poll_time::PollTime;
use crate::set_up::{SetUp, SetUpPorts};
use crate::shared_device::SharedDevice;
use crate::spin::Spin;
use crate::star::{Host, StarSetup};
use crate::wire::{Wire, WireCounters};

/// Copies of the last ACK sent when a queue pair is destroyed. Later retransmissions of the peer get no
/// answer, so a single lost ACK would turn its success into an error.
const LAST_ACKS: usize = 3;

/// Times of a closing driver: the interval between retransmissions of the ends of connections, the limit of
/// the wait for the peers' answers, and the interval between checks for them.
const DISCONNECT_INTERVAL: Duration = Duration::from_millis(100);
const DISCONNECT_LIMIT: Duration = Duration::from_secs(1);
const EXIT_POLL: Duration = Duration::from_micros(200);

/// A device at an address, and the thread that drives it.
pub struct Driver<M: Memory + Send + 'static> {
    shared: Arc<SharedDevice<M>>,
    spin: Spin,
    /// Sets up connections before queue pairs use them.
    set_up: SetUp,
    thread: Option<JoinHandle<()>>,
}

impl<M: Memory + Send + 'static> fmt::Debug for Driver<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl<M: Memory + Send + 'static> Driver<M> {
    /// Opens a device with the given memory.
    ///
    /// # Errors
    /// The address cannot be used, the capture file cannot be written, an option is out of range, or no
    /// descriptor or thread is left.
    pub fn open(config: &AdapterConfig, memory: M, events: EventSink) -> Result<Self, OpenError> {
        let socket = RoceSocket::open(config.place, config.transport)?;
        let device = Device::new(socket.device(config)?, memory)?;
        let set_up = SetUpPorts::open(&socket, config, device.config().first_qp)?;
        let wire = Wire::open(socket, config)?;
        let (ports, local) = (wire.readiness()?, wire.local());
        let iwarp = iwarp::Shared { options: config.iwarp, ..iwarp::Shared::default() };
        let iwarp = (config.transport == Transport::Iwarp).then_some(iwarp);
        let failed =
            |error: std::io::Error| OpenError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        let shared = Arc::new(SharedDevice {
            live: Mutex::new(LiveDevice::new(device, wire, (config.cm, seed(None)?), iwarp.clone())),
            ports,
            side_ports: OnceLock::new(),
            local,
            handover: Handover::new().map_err(OpenError::Thread)?,
            events,
        });
        let set_up = match (set_up, iwarp) {
            (SetUpPorts::Iwarp(listener), Some(iwarp)) => {
                let host = Arc::clone(&shared) as Arc<dyn StreamHost>;
                SetUp::Iwarp(IwarpSetup::start(listener, host, iwarp).map_err(failed)?)
            }
            (SetUpPorts::Star(port, key), _) => {
                let host = Arc::clone(&shared) as Arc<dyn Host<M>>;
                SetUp::Star(StarSetup::start(port, host, &config.star, key).map_err(failed)?)
            }
            (SetUpPorts::None | SetUpPorts::Iwarp(_), _) => SetUp::None,
        };
        let driven = Arc::clone(&shared);
        let thread = spawn_quiet("nichrome-hca", move || driven.drive());
        Ok(Self { shared, spin: Spin::new(), set_up, thread: Some(thread.map_err(failed)?) })
    }

    /// Opens a channel for a program that speaks the commands of `/dev/infiniband/rdma_cm`. It must not
    /// outlive the driver, which drives it.
    ///
    /// # Errors
    /// The adapter has no connection manager, or no channel or descriptor is left.
    pub fn open_cm_channel(&self) -> Result<CmChannel, ChannelError> {
        CmChannel::open(self.channel_host())
    }

    /// Calls the connection manager, then sends the messages that it has queued.
    ///
    /// # Errors
    /// The adapter has no connection manager.
    pub(crate) fn manage<T>(
        &self,
        commands: impl FnOnce(&mut ConnectionManager, &mut Device<M>, Instant) -> T,
    ) -> Result<T, Unavailable> {
        self.shared.manage(commands)
    }

    /// As [`manage`](Self::manage), for commands that connect queue pairs. `commands` gets a function that
    /// changes a queue pair, and holds it if its transport must be negotiated.
    ///
    /// # Errors
    /// As [`manage`](Self::manage).
    pub(crate) fn manage_qps<T>(
        &self,
        commands: impl FnOnce(&mut ConnectionManager, &mut Device<M>, &mut Modify<'_, M>, Instant) -> T,
    ) -> Result<T, Unavailable> {
        let mut requests = Vec::new();
        let mut modify = |device: &mut Device<M>, qp: QpHandle, change: &QpChange| {
            requests.extend(self.set_up.modify_qp(device, qp, change)?);
            Ok(())
        };
        let result = self.manage(|manager, device, now| commands(manager, device, &mut modify, now));
        requests.into_iter().for_each(|request| self.set_up.request(request));
        result
    }

    /// The adapter as the host of programs' channels.
    pub(crate) fn channel_host(&self) -> Arc<dyn ChannelHost> {
        Arc::clone(&self.shared) as Arc<dyn ChannelHost>
    }

    /// Destroys all channels: sends DREQ for connections, and REJ for unanswered requests. Waits until the
    /// peers have answered, for 1 s at most.
    pub fn close_cm_channels(&self) {
        self.shared.with_live(LiveDevice::close_channels);
        self.await_disconnections();
    }

    /// Waits up to 1 s until all peers have acknowledged the end of their connections; retransmits ten times
    /// per second. After this driver is closed, nothing retransmits, and a peer without the message waits for
    /// its timeout.
    fn await_disconnections(&self) {
        let (mut repetition, end) = (clock::now() + DISCONNECT_INTERVAL, clock::now() + DISCONNECT_LIMIT);
        while self.shared.live().awaits_disconnection() && clock::now() < end {
            if clock::now() >= repetition {
                self.shared.with_live(LiveDevice::repeat_disconnections);
                repetition = clock::now() + DISCONNECT_INTERVAL;
            }
            self.poll(|_| None::<()>);
            thread::sleep(EXIT_POLL);
        }
    }

    /// Waits up to 10 s until the sockets have accepted the bytes of all streams, whose requests have
    /// completed already.
    pub fn await_sent(&self) {
        let end = clock::now() + STREAM_LINGER;
        while self.shared.live().wire.has_unsent() && clock::now() < end {
            self.poll(|_| None::<()>);
            thread::sleep(EXIT_POLL);
        }
    }

    /// Takes over a connection manager that programs use already.
    ///
    /// # Errors
    /// The adapter has no connection manager.
    pub(crate) fn adopt(&self, place: &mut Option<DetachedManager>) -> Result<(), Unavailable> {
        self.shared.with_management(|live| live.adopt(place))
    }

    /// Calls verbs, then sends the packets that they have queued.
    pub fn call<T>(&self, verbs: impl FnOnce(&mut Device<M>) -> T) -> T {
        self.shared.call(verbs)
    }

    /// Changes a queue pair. If its transport must be negotiated, holds the queue pair until it is.
    ///
    /// # Errors
    /// As [`Device::modify_qp`].
    pub fn modify_qp(&self, qp: QpHandle, change: &QpChange) -> Result<(), ModifyError> {
        let request = self.call(|device| self.set_up.modify_qp(device, qp, change))?;
        request.into_iter().for_each(|request| self.set_up.request(request));
        if change.state == Some(QpState::Reset) {
            if let Ok(number) = self.call(|device| device.qp_number(qp)) {
                self.set_up.withdraw(number);
            }
            self.close_stream(qp);
        }
        Ok(())
    }

    /// Changes a queue pair by these steps, none of them to RESET, under one lock: a failure of its
    /// connection cannot move it to ERROR between them.
    ///
    /// # Errors
    /// As [`Device::modify_qp`]; the steps before the failed one remain.
    pub(crate) fn modify_qp_by_steps(&self, qp: QpHandle, steps: &[QpChange]) -> Result<(), ModifyError> {
        let mut requests = Vec::new();
        let modified = self.call(|device| {
            steps.iter().try_for_each(|step| {
                requests.extend(self.set_up.modify_qp(device, qp, step)?);
                Ok(())
            })
        });
        requests.into_iter().for_each(|request| self.set_up.request(request));
        modified
    }

    /// Queue pairs whose connection is being set up.
    pub fn held_qps(&self) -> usize {
        self.set_up.open()
    }

    /// The configured transport.
    pub fn transport(&self) -> Transport {
        self.set_up.transport()
    }

    /// Options of iWARP; `None` on other transports.
    pub(crate) fn iwarp_options(&self) -> Option<IwarpOptions> {
        self.set_up.iwarp_options()
    }

    /// Connections of peers that iWARP has refused; zero on other transports.
    pub fn iwarp_counters(&self) -> IwarpCounters {
        self.set_up.iwarp_counters()
    }

    /// Attaches a connection that is set up to its queue pair.
    ///
    /// # Errors
    /// The queue pair does not accept the stream, or the kernel cannot watch the socket.
    pub(crate) fn attach(
        &self,
        qp: QpHandle,
        terms: &Terms,
        connected: ConnectedStream,
    ) -> Result<(), AttachError> {
        self.shared.attach(qp, terms, connected)
    }

    /// Attaches a queue pair to a multicast group. For the first one of a group, the adapter joins it on the
    /// interface of its address.
    ///
    /// # Errors
    /// As [`Device::attach_multicast`]; or the group cannot be joined.
    pub fn attach_multicast(&self, qp: QpHandle, group: IpAddr) -> Result<(), JoinError> {
        {
            let live = &mut *self.shared.live();
            if live.device.attach_multicast(qp, group)? != GroupChange::Joined {
                return Ok(());
            }
            match live.wire.join(group) {
                Ok(side_ports) => drop(self.shared.side_ports.set(side_ports)),
                Err(error) => {
                    live.device.detach_multicast(qp, group)?;
                    return Err(error.into());
                }
            }
        }
        // Wakes the thread: its wait may not include the side ports.
        self.shared.handover.wake_by(Some(Instant::ZERO));
        Ok(())
    }

    /// Detaches a queue pair from a multicast group. The adapter leaves a group without queue pairs.
    ///
    /// # Errors
    /// The queue pair is not attached to the group.
    pub fn detach_multicast(&self, qp: QpHandle, group: IpAddr) -> Result<(), MulticastError> {
        let live = &mut *self.shared.live();
        if live.device.detach_multicast(qp, group)? == GroupChange::Left {
            live.wire.leave(group);
        }
        Ok(())
    }

    /// Destroys a queue pair, after detaching it from multicast groups and retransmitting its last ACK.
    ///
    /// # Errors
    /// The queue pair does not exist, or is in use.
    pub fn destroy_qp(&self, qp: QpHandle) -> Result<(), ObjectError> {
        for group in self.call(|device| device.multicast_groups(qp)) {
            // Fails only if another thread has detached it.
            let _ = self.detach_multicast(qp, group);
        }
        self.repeat_last_ack(qp)?;
        // Before the destruction, after which a new queue pair may get the number.
        self.set_up.withdraw(self.call(|device| device.qp_number(qp))?);
        self.call(|device| device.destroy_qp(qp))?;
        self.close_stream(qp);
        Ok(())
    }

    /// Closes the stream of a queue pair. The driver's thread drops the stream if the peer does not close it.
    fn close_stream(&self, qp: QpHandle) {
        self.shared.with_live(|live| live.wire.close_stream(qp, clock::now()));
    }

    /// Retransmits the last ACK of a queue pair [`LAST_ACKS`] times, since the peer gets no answer from now
    /// on.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub(crate) fn repeat_last_ack(&self, qp: QpHandle) -> Result<(), ObjectError> {
        (0..LAST_ACKS).try_for_each(|_| self.call(|device| device.acknowledge_again(qp)))
    }

    /// Accesses the device's memory under the device's lock.
    pub fn touch<T>(&self, f: impl FnOnce(&mut M) -> T) -> T {
        f(self.shared.live().device.memory_mut())
    }

    /// Receives, sends, then calls verbs: for programs that poll. Yields the processor if `verbs` finds
    /// nothing and there was no traffic for 1 ms, or if the peer needs the processor: two ends of a
    /// connection that poll on one processor would otherwise block each other for a time slice. Then polls
    /// once more: a program that finds nothing may continue with a later event, such as the end of the
    /// connection, and destroy the queue pair before it has polled its completions.
    pub fn poll<T>(&self, mut verbs: impl FnMut(&mut Device<M>) -> Option<T>) -> Option<T> {
        let result = self.poll_once(&mut verbs);
        let PollResult::Idle = result else { return result.found() };
        thread::yield_now();
        self.poll_once(&mut verbs).found()
    }

    /// Receives, sends, then calls verbs.
    fn poll_once<T>(&self, verbs: &mut impl FnMut(&mut Device<M>) -> Option<T>) -> PollResult<T> {
        let SharedDevice { handover, events, .. } = &*self.shared;
        let live = &mut *self.shared.live();
        let before = live.wire.counters();
        let now = live.progress(events);
        handover.polled(now);
        if live.wire.counters() != before {
            handover.record_traffic(now);
        }
        if live.has_deferred_disconnects() {
            // Wakes the thread by their deadline, since this may be the program's last poll.
            handover.wake_by(live.poll_timeout());
        }
        if let Some(found) = verbs(&mut live.device) {
            return PollResult::Found(found);
        }
        let busy_at = handover.busy_at();
        let limit = self.spin.limit(busy_at, || live.wire.incoming_processor());
        if now - busy_at > limit { PollResult::Idle } else { PollResult::Nothing }
    }

    /// Drives the device before a wait for an event that the driver reports: for the time that `poll_time`
    /// gives, until `has_come` returns true. Events that follow each other closely then cost no wake-up,
    /// neither of the program nor of the driver's thread. If the event has not come, returns when the wait
    /// began. The caller then calls [`begin_descriptor_wait`](Self::begin_descriptor_wait), blocks, and calls
    /// [`end_descriptor_wait`](Self::end_descriptor_wait) and [`PollTime::waited`].
    pub fn poll_before_wait(&self, poll_time: &PollTime, has_come: impl Fn() -> bool) -> Option<Instant> {
        let start = clock::now();
        if !self.poll_until(start.plus_nanos(poll_time.nanos()), has_come) {
            return Some(start);
        }
        poll_time.waited(clock::now().nanos_since(start));
        None
    }

    /// Drives the device until `has_come` returns true or the time is `until`. Returns whether it came.
    fn poll_until(&self, until: Instant, has_come: impl Fn() -> bool) -> bool {
        while clock::now() < until {
            if self.poll(|_| has_come().then_some(())).is_some() {
                return true;
            }
        }
        false
    }

    /// Drives the device until `waker` is signalled or the time is `until`: for programs that wait. If enough
    /// other threads do so already, only waits.
    pub fn wait(&self, waker: &Waker, until: Option<Instant>) {
        let SharedDevice { handover, events, ports, .. } = &*self.shared;
        if !handover.begin_wait() {
            // A signal or an error ends the wait early; the caller checks for its event, and waits again.
            let _ = clock::wait([waker.as_fd()], until);
            return;
        }
        loop {
            let due = {
                let live = &mut *self.shared.live();
                live.progress(events);
                live.poll_timeout()
            };
            let deadline = [due, until].into_iter().flatten().min();
            let woken = clock::wait([waker.as_fd(), ports.as_fd()], deadline);
            if !matches!(woken, Ok([false, _])) || until.is_some_and(|until| until <= clock::now()) {
                break;
            }
        }
        handover.end_wait();
    }

    /// Announces that the program is about to wait for an event on a descriptor that the driver does not
    /// know. Until [`Driver::end_descriptor_wait`], the thread waits for the ports even if programs poll.
    pub fn begin_descriptor_wait(&self) {
        self.shared.handover.begin_descriptor_wait();
    }

    /// Ends one [`Driver::begin_descriptor_wait`]: the event has arrived, or the program no longer waits.
    pub fn end_descriptor_wait(&self) {
        self.shared.handover.end_descriptor_wait();
    }

    /// Locks the device for as long as the result lives: for a process that is about to fork, whose child
    /// would otherwise find the device locked or half changed.
    pub fn pause(&self) -> Paused<'_, M> {
        self.paused(self.shared.live())
    }

    fn paused<'a>(&'a self, live: MutexGuard<'a, LiveDevice<M>>) -> Paused<'a, M> {
        Paused { live, shared: &self.shared, set_up: &self.set_up }
    }

    /// As [`Driver::pause`], but returns `None` if the device stays locked for `time`. A signal handler may
    /// have interrupted this thread while it holds the lock.
    pub fn pause_within(&self, time: Duration) -> Option<Paused<'_, M>> {
        let until = clock::now() + time;
        loop {
            match self.shared.live.try_lock() {
                Ok(live) => return Some(self.paused(live)),
                Err(TryLockError::Poisoned(poisoned)) => return Some(self.paused(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) if until <= clock::now() => return None,
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
    }

    /// The device's address and RoCE's port.
    pub fn local(&self) -> SocketAddr {
        self.shared.local
    }

    /// Counters of datagrams.
    pub fn wire_counters(&self) -> WireCounters {
        self.shared.live().wire.counters()
    }

    /// Why the capture ended early, if it did: a write failed.
    pub fn capture_error(&self) -> Option<Arc<WriteError>> {
        self.shared.live().wire.capture_error()
    }
}

/// The result of a poll.
enum PollResult<T> {
    Found(T),
    /// Nothing yet.
    Nothing,
    /// Nothing for a time after which the program yields its processor.
    Idle,
}

impl<T> PollResult<T> {
    fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Nothing | Self::Idle => None,
        }
    }
}

/// A locked device.
pub struct Paused<'a, M> {
    live: MutexGuard<'a, LiveDevice<M>>,
    shared: &'a SharedDevice<M>,
    set_up: &'a SetUp,
}

impl<M> fmt::Debug for Paused<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paused").finish_non_exhaustive()
    }
}

impl<M> Paused<'_, M> {
    /// Disconnects the device from the network and from the channels of programs permanently, in a forked
    /// child: closes the sockets there, so that the address is free once the parent has ended, and leaves the
    /// channels' descriptors as they are.
    pub fn close_in_child(&mut self) {
        self.live.close_in_child();
        self.shared.close_in_child();
        self.set_up.close_in_child();
    }

    /// Disconnects the device from the network permanently and closes the capture, for a process that exits.
    pub fn close(&mut self) {
        self.live.wire.close();
    }
}

impl<M: Memory + Send + 'static> Drop for Driver<M> {
    fn drop(&mut self) {
        self.set_up = SetUp::None;
        self.await_disconnections();
        self.call(Device::acknowledge_all);
        self.shared.handover.end();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
        }
        let live = &mut *self.shared.live();
        live.wire.close_streams(clock::now());
        live.linger();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
