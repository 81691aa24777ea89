//! The world: the card in its host.

use nichrome_wire::Instant;

use super::bus::Bus;
use super::card::{Card, CardCounters};
use super::host::{Host, HostCounters, Next};
use crate::generator::{Generated, Generator};
use crate::observe::{Capture, PointId, Probes};
use crate::{EventQueue, Fingerprint, Packet, Timer, World};

/// The port of the generator.
const PORT: usize = 0;

/// All components between the generator and the stack.
pub(super) struct Machine {
    generator: Generator,
    /// The next frame to arrive.
    arriving: Option<Generated>,
    card: Card,
    bus: Bus,
    /// The packet on the bus.
    moving: Option<Moving>,
    host: Host,
    store_timer: Timer,
    points: Points,
}

/// Capture points.
struct Points {
    capture: Capture,
    wire: PointId,
    host: PointId,
}

impl Points {
    fn new(mut capture: Capture) -> Self {
        let [wire, host] = ["wire", "host"].map(|name| capture.add_point(name));
        Self { capture, wire, host }
    }
}

type Moving = nichrome_lro::Packet<Vec<u8>>;

/// Events of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The last bit of a frame arrives.
    Arrived,
    /// A frame has passed the data path.
    Passed,
    /// The store block's timer expires, unless it was restarted.
    StoreTimer,
    /// A packet has been transferred to the host's memory.
    Transferred,
    /// An interrupt of the core.
    Interrupt,
    /// The core has completed a poll.
    Done,
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        *self as u64
    }
}

/// Counters at a point in time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) card: CardCounters,
    pub(super) host: HostCounters,
    /// Busy time of the core, in nanoseconds.
    pub(super) busy: u64,
}

impl Machine {
    pub(super) fn new(generator: Generator, card: Card, bus: Bus, host: Host, capture: Capture) -> Self {
        Self {
            generator,
            arriving: None,
            card,
            bus,
            moving: None,
            host,
            store_timer: Timer::default(),
            points: Points::new(capture),
        }
    }

    /// Returns the sampled values.
    pub(super) fn probes() -> Probes<Self> {
        let mut probes = Probes::new();
        probes.register_rate("throughput", "Mb/s", 8000.0, |world: &Self, _| world.host.counters().payload);
        probes.register_rate("arrived", "frames/ms", 1e6, |world, _| world.card.counters().arrived);
        probes.register_rate("dropped", "frames/ms", 1e6, |world, _| world.card.counters().dropped());
        probes.register("receive-queue", "B", |world, _| world.card.receive_queue_bytes() as f64);
        probes.register("host-queue", "B", |world, _| world.card.host_queue_bytes() as f64);
        probes.register("ring", "packets", |world, _| world.host.ring_packets() as f64);
        probes
    }

    /// Returns the counters at `now`.
    pub(super) fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot { card: self.card.counters(), host: self.host.counters(), busy: self.host.busy_nanos(now) }
    }

    /// Schedules the generator's next frame.
    pub(super) fn generate(&mut self, queue: &mut EventQueue<Event>) {
        self.arriving = self.generator.next();
        if let Some(next) = &self.arriving {
            queue.schedule(next.at, Event::Arrived);
        }
    }

    fn arbitrate(&mut self, queue: &mut EventQueue<Event>) {
        if let Some(passed) = self.card.arbitrate(queue.now()) {
            queue.schedule(passed, Event::Passed);
        }
    }

    /// Starts the next transfer if the bus is free and the ring has room.
    fn transfer(&mut self, queue: &mut EventQueue<Event>) {
        if self.moving.is_some() || !self.host.has_room() {
            return;
        }
        self.moving = self.card.next_for_host();
        if let Some(packet) = &self.moving {
            let nanos = self.bus.nanos(self.card.padded(packet.len()) as u64);
            queue.schedule_in(nanos, Event::Transferred);
        }
    }
}

impl World for Machine {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        match event {
            Event::Arrived => {
                if let Some(Generated { packet: Packet::Frame(frame), .. }) = self.arriving.take() {
                    self.points.capture.record_frame(self.points.wire, now, &frame);
                    self.card.arrive(PORT, frame);
                }
                self.generate(queue);
                self.arbitrate(queue);
            }
            Event::Passed => {
                self.card.passed(now);
                self.store_timer.arm(self.card.timeout(), queue, Event::StoreTimer);
                self.arbitrate(queue);
                self.transfer(queue);
            }
            Event::StoreTimer => {
                self.store_timer.fired(now);
                self.card.handle_timeout(now);
                self.store_timer.arm(self.card.timeout(), queue, Event::StoreTimer);
                self.transfer(queue);
            }
            Event::Transferred => {
                if let Some(packet) = self.moving.take() {
                    self.points.capture.record_received(self.points.host, now, &packet);
                    if let Some(interrupt) = self.host.received(packet, now) {
                        queue.schedule(interrupt, Event::Interrupt);
                    }
                }
                self.transfer(queue);
            }
            Event::Interrupt => {
                let done = self.host.interrupted(now);
                queue.schedule(done, Event::Done);
            }
            Event::Done => {
                match self.host.done(now) {
                    Next::Done(done) => queue.schedule(done, Event::Done),
                    Next::Interrupt(interrupt) => queue.schedule(interrupt, Event::Interrupt),
                    Next::Sleep => {}
                }
                self.transfer(queue);
            }
        }
    }
}
