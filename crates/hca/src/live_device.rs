//! A device on its wire: the work of a thread that holds the driver's lock.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nichrome_port::clock;
use nichrome_rdma::{Device, Event, Memory};
use nichrome_wire::Instant;

use crate::cm::{CmOptions, ConnectionManager, DetachedManager, Unavailable};
use crate::iwarp;
use crate::management::Management;
use crate::wire::Wire;

/// Batches received and sent before the lock is released.
const ROUNDS: usize = 8;

/// Wait before another attempt to send to a full socket.
const FULL_SOCKET_DELAY: Duration = Duration::from_micros(50);

/// How long datagrams on the outbound impaired path keep an adapter from closing.
const LINGER: Duration = Duration::from_secs(1);

/// How long streams keep an adapter from closing, if peers are slow to read the bytes of completed requests.
pub(crate) const STREAM_LINGER: Duration = Duration::from_secs(10);

/// Receives the device's events. It is called under the device's lock and must call no verb.
pub type EventSink = Box<dyn Fn(Event) + Send + Sync>;

/// A device and its wire.
pub(crate) struct LiveDevice<M> {
    pub(crate) device: Device<M>,
    pub(crate) wire: Wire,
    management: Management,
    /// The lock was released before all work was done.
    is_unfinished: bool,
}

impl<M> LiveDevice<M> {
    /// Gives up the network and the channels of programs in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&mut self) {
        self.wire.close_in_child();
        self.management.close_in_child();
    }
}

impl<M: Memory> LiveDevice<M> {
    /// Drives a device on its wire. `cm` are the options of the connection manager and the seed of its
    /// identifiers; `iwarp` is `None` on other transports.
    pub(crate) fn new(
        mut device: Device<M>,
        wire: Wire,
        cm: (CmOptions, u128),
        iwarp: Option<iwarp::Shared>,
    ) -> Self {
        let management = Management::new(cm, iwarp, &mut device, &wire);
        Self { device, wire, management, is_unfinished: false }
    }

    /// Receives, serves timers and sends, up to [`ROUNDS`] batches; returns the time of the last.
    ///
    /// Serves timers only after it has received all waiting datagrams: if the thread has not run for a while,
    /// the answer that a timer waits for may be among them.
    pub(crate) fn progress(&mut self, events: &EventSink) -> Instant {
        self.is_unfinished = true;
        let mut now = Instant::ZERO;
        for round in 1..=ROUNDS {
            now = clock::now();
            let more_to_receive = self.wire.receive(&mut self.device, now);
            let serves_timers = !more_to_receive || round == ROUNDS;
            if serves_timers && self.device.poll_timeout().is_some_and(|due| due <= now) {
                self.device.handle_timeout(now);
            }
            self.management.progress(&mut self.device, &mut self.wire, now);
            let more_to_send = self.wire.transmit(&mut self.device, now);
            if !more_to_receive && !more_to_send {
                self.is_unfinished = false;
                break;
            }
        }
        self.report(events);
        now
    }

    /// Calls the connection manager; starts it if necessary.
    ///
    /// # Errors
    /// The adapter has no connection manager.
    pub(crate) fn manage<T>(
        &mut self,
        commands: impl FnOnce(&mut ConnectionManager, &mut Device<M>, Instant) -> T,
    ) -> Result<T, Unavailable> {
        let Self { device, wire, management, .. } = self;
        management.manage(device, wire, commands)
    }

    /// Destroys the channels of programs.
    pub(crate) fn close_channels(&mut self) {
        self.management.close_channels(&mut self.device);
    }

    /// Returns true while a peer has not acknowledged the end of a connection.
    pub(crate) fn awaits_disconnection(&self) -> bool {
        self.management.awaits_disconnection()
    }

    /// Returns true while the end of a connection is deferred until the program polls.
    #[inline]
    pub(crate) fn has_deferred_disconnects(&self) -> bool {
        self.management.has_deferred_disconnects()
    }

    /// Retransmits the end of its connection to every peer that has not acknowledged it.
    pub(crate) fn repeat_disconnections(&mut self) {
        self.management.repeat_disconnections(&mut self.device);
    }

    /// Takes over a connection manager that programs use already.
    ///
    /// # Errors
    /// The adapter has no connection manager: `place` keeps its own.
    pub(crate) fn adopt(&mut self, place: &mut Option<DetachedManager>) -> Result<(), Unavailable> {
        let Self { device, wire, management, .. } = self;
        management.adopt(place, device, wire)
    }

    /// Takes a descriptor that is readable while a datagram waits at a side port, if side ports were opened
    /// since the last call.
    pub(crate) fn take_side_ports(&mut self) -> Option<OwnedFd> {
        self.management.take_side_ports()
    }

    /// Sends the packets that verbs have queued.
    pub(crate) fn transmit(&mut self, now: Instant) {
        let mut rounds = 0..ROUNDS;
        self.is_unfinished |= rounds.all(|_| self.wire.transmit(&mut self.device, now));
    }

    /// Passes the device's events to `events`.
    pub(crate) fn report(&mut self, events: &EventSink) {
        while let Some(event) = self.device.poll_event() {
            events(event);
        }
    }

    /// Sends the datagrams on the outbound impaired path, for [`LINGER`] at most, or the bytes of the
    /// streams, and waits for the peers to close these, for [`STREAM_LINGER`] at most.
    pub(crate) fn linger(&mut self) {
        let has_streams = self.wire.streams().is_some();
        let until = clock::now() + if has_streams { STREAM_LINGER } else { LINGER };
        // A datagram that is due later is lost, and not waited for.
        while let Some(due) = self.wire.outgoing_timeout().filter(|due| has_streams || *due < until)
            && clock::now() < until
        {
            let due = due.min(until);
            // If the wait fails, the loop continues early.
            let _ = match self.wire.streams() {
                None => clock::wait([], Some(due)).map(drop),
                Some(streams) => clock::wait([streams], Some(due)).map(drop),
            };
            let now = clock::now();
            if self.wire.streams().is_some() {
                self.wire.receive(&mut self.device, now);
            }
            self.wire.release_sent(&mut self.device, now);
        }
    }

    /// Deadline of the next work that needs no datagram.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_unfinished || self.wire.has_wanted_stream(&self.device) {
            return Some(Instant::ZERO);
        }
        let socket = self.wire.is_full().then(|| clock::now() + FULL_SOCKET_DELAY);
        let management = self.management.poll_timeout();
        let timeouts = [self.device.poll_timeout(), self.wire.poll_timeout(), management, socket];
        timeouts.into_iter().flatten().min()
    }
}
