//! The device that the program and the driver's thread share: calls by either, and the loop of the thread,
//! which drives the device while no program polls.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use nichrome_cm::ChannelName;
use nichrome_cm::ucma::{Answer, Caller};
use nichrome_port::{Waker, clock, close_in_child};
use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::{Device, Memory, QpHandle};
use nichrome_wire::Instant;

use crate::cm::{ChannelError, ChannelHost, ConnectionManager, Unavailable};
use crate::connect;
use crate::connected_stream::ConnectedStream;
use crate::handover::Handover;
use crate::iwarp::{AttachError, StreamHost};
use crate::live_device::{EventSink, LiveDevice};
use crate::poll_time::PollTime;
use crate::star::Host;

/// How long the thread leaves the ports to a program that polls: the first nap, and the longest.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(640));

/// A live device behind a lock, and the hand-over between the threads that drive it.
pub(crate) struct SharedDevice<M> {
    pub(crate) live: Mutex<LiveDevice<M>>,
    /// Readable while a datagram waits at any port.
    pub(crate) ports: OwnedFd,
    /// Readable while a datagram waits at a side port: the socket of a multicast group, or of requests to
    /// connection managers. Set when the first side port is opened.
    pub(crate) side_ports: OnceLock<OwnedFd>,
    pub(crate) local: SocketAddr,
    pub(crate) handover: Handover,
    pub(crate) events: EventSink,
}

impl<M> SharedDevice<M> {
    /// Gives up the duplicates of the ports' descriptors in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&self) {
        close_in_child([&self.ports].into_iter().chain(self.side_ports.get()).map(AsFd::as_fd));
    }
}

impl<M: Memory> SharedDevice<M> {
    /// Locks the device. A panic under the lock leaves the device in some state of its state machine, which
    /// is usable.
    pub(crate) fn live(&self) -> MutexGuard<'_, LiveDevice<M>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls verbs, then sends the packets that they have queued.
    pub(crate) fn call<T>(&self, verbs: impl FnOnce(&mut Device<M>) -> T) -> T {
        self.with_live(|live| verbs(&mut live.device))
    }

    /// Calls the connection manager, which the first call starts, then sends the messages that it has queued.
    pub(crate) fn manage<T>(
        &self,
        commands: impl FnOnce(&mut ConnectionManager, &mut Device<M>, Instant) -> T,
    ) -> Result<T, Unavailable> {
        self.with_management(|live| live.manage(commands))
    }

    /// Calls the connection manager, which may open side ports.
    pub(crate) fn with_management<T>(&self, calls: impl FnOnce(&mut LiveDevice<M>) -> T) -> T {
        let (result, has_opened) = self.with_live(|live| {
            let result = calls(live);
            (result, live.take_side_ports().map(|ports| drop(self.side_ports.set(ports))).is_some())
        });
        if has_opened {
            // Wakes the thread: its wait may not include the side ports.
            self.handover.wake_by(Some(Instant::ZERO));
        }
        result
    }

    /// Calls the device or the connection manager, then sends the packets that they have queued.
    pub(crate) fn with_live<T>(&self, calls: impl FnOnce(&mut LiveDevice<M>) -> T) -> T {
        let live = &mut *self.live();
        let result = calls(live);
        let (now, before) = (clock::now(), live.wire.counters().sent);
        live.transmit(now);
        if live.wire.counters().sent != before {
            self.handover.record_traffic(now);
        }
        live.report(&self.events);
        // The calls may have set a timer that the thread has not seen.
        self.handover.wake_by(live.poll_timeout());
        result
    }

    /// The loop of the driver's thread.
    pub(crate) fn drive(&self) {
        // If it fails, the kernel's default timer slack of 50 µs applies.
        let _ = clock::sleep_precisely();
        let (shortest, longest) = NAPS;
        let (mut nap, poll_time) = (shortest, PollTime::default());
        while !self.handover.is_ended() {
            if self.is_polled() {
                self.handover.nap(nap);
                nap = longest.min(2 * nap);
                continue;
            }
            match self.progress_and_wait(&poll_time) {
                Ok(true) => nap = shortest,
                Ok(false) => {}
                // The kernel cannot wait for the ports: nothing can be received any more.
                Err(_) => return,
            }
        }
    }

    /// Returns true if a program has polled recently, or is likely to poll soon because it holds the lock: it
    /// calls verbs in a row. Returns false if a program waits for an event, however often others poll.
    fn is_polled(&self) -> bool {
        !self.handover.has_descriptor_waits()
            && (self.handover.was_polled() || matches!(self.live.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Makes progress, then waits for the next datagram or timer; returns true if a datagram was received or
    /// sent.
    fn progress_and_wait(&self, poll_time: &PollTime) -> rustix::io::Result<bool> {
        self.handover.arm();
        let (due, has_traffic) = {
            let live = &mut *self.live();
            let before = live.wire.counters();
            live.progress(&self.events);
            (live.poll_timeout(), live.wire.counters() != before)
        };
        let before = clock::now();
        let until = before.plus_nanos(poll_time.nanos());
        if has_traffic && self.poll_ports(due.map_or(until, |due| due.min(until)))? {
            return Ok(true);
        }
        self.handover.sleep(due, self.ports.as_fd(), self.side_ports.get().map(AsFd::as_fd))?;
        poll_time.waited(clock::now().nanos_since(before));
        Ok(has_traffic)
    }

    /// Polls the ports without sleeping, until a time or until a program wakes the thread, waits for the
    /// ports or polls itself. Returns true if a datagram waits.
    fn poll_ports(&self, until: Instant) -> rustix::io::Result<bool> {
        while clock::now() < until && !self.handover.must_stop_polling() && !self.is_polled() {
            if let [true] = clock::wait([self.ports.as_fd()], Some(Instant::ZERO))? {
                return Ok(true);
            }
            thread::yield_now();
        }
        Ok(false)
    }
}

impl<M: Memory + Send> ChannelHost for SharedDevice<M> {
    fn open_channel(&self, ready: &Arc<Waker>) -> Result<ChannelName, ChannelError> {
        Ok(self.manage(|manager, _, _| manager.open_channel(ready))??)
    }

    fn execute(
        &self,
        channel: ChannelName,
        caller: &mut dyn Caller,
        written: &[u8],
    ) -> Result<Option<Answer>, nichrome_cm::Errno> {
        let execute = |manager: &mut ConnectionManager, device: &mut Device<M>, now| {
            manager.execute(channel, caller, written, device, now)
        };
        // An adapter that has channels has a connection manager.
        self.manage(execute).unwrap_or(Err(nichrome_cm::Errno::ENODEV))
    }

    fn close_channel(&self, channel: ChannelName) {
        // An adapter that has channels has a connection manager.
        let _ = self.manage(|manager, device, now| manager.close_channel(channel, device, now));
    }
}

impl<M: Memory + Send> Host<M> for SharedDevice<M> {
    fn with(&self, verbs: &mut dyn FnMut(&mut Device<M>)) {
        self.call(verbs);
    }
}

impl<M: Memory + Send> StreamHost for SharedDevice<M> {
    fn attach(&self, qp: QpHandle, terms: &Terms, connected: ConnectedStream) -> Result<(), AttachError> {
        {
            let live = &mut *self.live();
            live.device.connect(qp, terms)?;
            live.wire.attach_stream(qp, connected, clock::now())?;
        }
        // Sends the requests that were posted during the set-up, and wakes the thread to receive the data
        // that the peer has already sent.
        self.call(|_| ());
        self.handover.wake_by(Some(Instant::ZERO));
        Ok(())
    }

    fn fail(&self, qp: QpHandle) {
        self.call(|device| connect::fail(device, qp));
    }
}
