//! The test bed of lro-npu VII (Figure 12): a client with TCP senders, a wire, the card, and its server.

use nichrome_lro::{Config, ConfigError, Packet};
use nichrome_wan::{Impairments, Output as PathOutput, Path};
use nichrome_wire::Engine;
use nichrome_wire::engine::{advance, deliver};
use thiserror::Error;

use super::card::{Card, CardEvent, CardOutput, Effects};
use super::config::CardConfig;
use super::driver::{Driver, DriverConfig, PollResult};
use super::points::Points;
use crate::host::{Compact, ConnectError, ConnectionId, Host, HostConfig, HostConfigError, Role};
use crate::observe::Capture;
use crate::packet::in_one_piece;
use crate::{
    CpuCosts, EventQueue, Fingerprint, HostId, Link, LinkConfig, Server, Timer, TraceHash, Work, World,
};

/// The client and the server.
const CLIENT: HostId = HostId(0);
const SERVER: HostId = HostId(1);
/// The server's TCP port.
const PORT: u16 = 5201;

/// The configuration of the test bed.
#[derive(Clone, Debug)]
pub(super) struct TestbedConfig {
    /// The card.
    pub(super) card: CardConfig,
    /// The wire, equal in both directions.
    pub(super) wire: LinkConfig,
    /// Impairments from the client to the card.
    pub(super) path: Impairments,
    /// TCP on both hosts.
    pub(super) tcp: HostConfig,
    /// CPU costs of the server per delivered packet.
    pub(super) cpu: CpuCosts,
    /// The server's LRO in software, if it has one.
    pub(super) driver: Option<(DriverConfig, Config)>,
    /// The programs of each connection.
    pub(super) programs: Programs,
    /// Seed of random choices.
    pub(super) seed: u64,
}

/// The programs at a connection's ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs {
    /// The client's program.
    pub(super) client: Role,
    /// The server's program.
    pub(super) server: Role,
}

/// An invalid test bed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum TestbedError {
    /// An engine's configuration is invalid.
    #[error(transparent)]
    Engine(#[from] ConfigError),
    /// The path's configuration is invalid.
    #[error(transparent)]
    Path(#[from] nichrome_wan::ConfigError),
    /// A host's configuration is invalid.
    #[error(transparent)]
    Host(#[from] HostConfigError),
}

/// The test bed.
pub(super) struct Testbed {
    client: Host,
    server: Host,
    client_timer: Timer,
    server_timer: Timer,
    to_card: Link,
    to_client: Link,
    path: Path<Compact>,
    path_timer: Timer,
    card: Card,
    driver: Option<Driver>,
    cpu: Server,
    costs: CpuCosts,
    role: Role,
    effects: Effects,
    refused: Option<ConnectError>,
    points: Points,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The sender.
    Client,
    /// The receiver, behind the card.
    Server,
}

/// Events of the test bed.
pub(super) enum Event {
    /// The client opens a connection.
    Connect,
    /// The server's programs stop reading.
    StopReading,
    /// A frame has arrived at the card's end of the wire.
    AtPath(Compact),
    /// A timer of the path.
    PathTimer,
    /// A frame has crossed the wire to the client.
    AtClient(Vec<u8>),
    /// Something happens in the card.
    Card(CardEvent),
    /// The server's CPU has processed a packet of this receiving thread.
    Taken(usize, Packet<Vec<u8>>),
    /// The server's driver is interrupted.
    Interrupt,
    /// The server's CPU has processed the packets of a poll.
    Polled(PollResult),
    /// A TCP timer of a host.
    Timer(Side),
}

impl Testbed {
    /// Creates a test bed without events, capturing to `capture`.
    ///
    /// # Errors
    /// A component's configuration is invalid.
    pub(super) fn new(config: &TestbedConfig, capture: Capture) -> Result<Self, TestbedError> {
        // The responses from server to client are one packet long, so that one packet of buffer is enough.
        let client = HostConfig { seed: config.seed, receive_buffer: config.tcp.mtu, ..config.tcp };
        let server = HostConfig { seed: config.seed, send_buffer: config.tcp.mtu, ..config.tcp };
        let mut server = Host::new(SERVER, server)?;
        server.listen(PORT, config.programs.server);
        Ok(Self {
            client: Host::new(CLIENT, client)?,
            server,
            client_timer: Timer::default(),
            server_timer: Timer::default(),
            to_card: Link::new(config.wire),
            to_client: Link::new(config.wire),
            path: Path::new(&config.path, config.seed)?,
            path_timer: Timer::default(),
            card: Card::new(&config.card)?,
            driver: config.driver.map(|(driver, lro)| Driver::new(driver, &lro)).transpose()?,
            // The card's descriptors bound the number of waiting packets.
            cpu: Server::new(usize::MAX),
            costs: config.cpu,
            role: config.programs.client,
            effects: Effects::default(),
            refused: None,
            points: Points::new(capture),
        })
    }

    /// Returns the client.
    pub(super) fn client(&self) -> &Host {
        &self.client
    }

    /// Returns the server.
    pub(super) fn server(&self) -> &Host {
        &self.server
    }

    /// Returns the card.
    pub(super) fn card(&self) -> &Card {
        &self.card
    }

    /// Returns the server's CPU.
    pub(super) fn cpu(&self) -> &Server {
        &self.cpu
    }

    /// Returns the error of a connection that could not be opened, if any.
    pub(super) fn refused(&self) -> Option<ConnectError> {
        self.refused
    }

    fn connect(&mut self, queue: &mut EventQueue<Event>) {
        if let Err(error) = self.client.connect(SERVER, PORT, self.role, queue.now()) {
            self.refused = Some(error);
        }
        self.after(Side::Client, queue);
    }

    fn stop_reading(&mut self) {
        for id in 0..self.server.connections().len() {
            self.server.stop_reading(ConnectionId(id));
        }
    }

    /// Passes a packet to the server's kernel; the driver refills its descriptor.
    fn take(&mut self, place: usize, packet: &Packet<Vec<u8>>, queue: &mut EventQueue<Event>) {
        self.server.receive(in_one_piece(packet).into_owned(), queue.now());
        self.after(Side::Server, queue);
        self.card.refill(place, queue.now(), &mut self.effects);
        self.apply(queue);
    }

    /// Processes an interrupt: the driver polls the packets that have arrived, which takes CPU time.
    fn interrupt(&mut self, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let Some(driver) = &mut self.driver else { return };
        let polled = driver.interrupt(&self.costs, now);
        let done = self.cpu.serve(polled.nanos, now).unwrap_or(now);
        queue.schedule(done, Event::Polled(polled));
    }

    /// Passes the packets of a poll to the server's kernel; the driver refills their descriptors.
    fn polled(&mut self, polled: &PollResult, queue: &mut EventQueue<Event>) {
        for packet in &polled.packets {
            self.server.receive(in_one_piece(packet).into_owned(), queue.now());
            self.after(Side::Server, queue);
        }
        for place in &polled.places {
            self.card.refill(*place, queue.now(), &mut self.effects);
        }
        self.apply(queue);
    }

    /// Forwards a host's frames and arms its timer.
    fn after(&mut self, side: Side, queue: &mut EventQueue<Event>) {
        match side {
            Side::Client => {
                while let Some(frame) = self.client.poll() {
                    send(&mut self.to_card, frame, |frame| Event::AtPath(frame.into()), queue);
                }
                self.client_timer.arm(self.client.poll_timeout(), queue, Event::Timer(side));
            }
            Side::Server => {
                while let Some(frame) = self.server.poll() {
                    self.points.host_out(&frame, queue.now());
                    self.card.transmit(frame, queue.now(), &mut self.effects);
                }
                self.server_timer.arm(self.server.poll_timeout(), queue, Event::Timer(side));
            }
        }
        self.apply(queue);
    }

    fn timer(&mut self, side: Side, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        match side {
            Side::Client => {
                self.client_timer.fired(now);
                self.client.handle_timeout(now);
            }
            Side::Server => {
                self.server_timer.fired(now);
                self.server.handle_timeout(now);
            }
        }
        self.after(side, queue);
    }

    /// Passes a frame, or an expired timer, to the path before the card.
    fn cross_path(&mut self, frame: Option<Compact>, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let (card, effects, points) = (&mut self.card, &mut self.effects, &mut self.points);
        let mut sink = |_, output: PathOutput<Compact>| {
            if let PathOutput::Released(departure) = output {
                points.wire_in(&departure.packet, now);
                card.receive(departure.packet, now, effects);
            }
        };
        match frame {
            Some(frame) => deliver(&mut self.path, frame, now, &mut sink),
            None => {
                self.path_timer.fired(now);
                advance(&mut self.path, now, &mut sink);
            }
        }
        self.path_timer.arm(self.path.poll_timeout(), queue, Event::PathTimer);
        self.apply(queue);
    }

    /// Applies the consequences of the card's last event.
    fn apply(&mut self, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        for (time, event) in self.effects.events.drain(..) {
            queue.schedule(time, Event::Card(event));
        }
        for output in self.effects.outputs.drain(..) {
            match output {
                CardOutput::ToWire(frame) => {
                    self.points.wire_out(&frame, now);
                    send(&mut self.to_client, frame, Event::AtClient, queue);
                }
                CardOutput::ToHost(place, packet) => {
                    self.points.host_in(&packet, now);
                    if let Some(driver) = &mut self.driver {
                        let interrupt = driver.receive(place, packet, now, self.cpu.idle_from());
                        if let Some(at) = interrupt {
                            queue.schedule(at, Event::Interrupt);
                        }
                        continue;
                    }
                    let work = Work { interrupts: 1, packets: 1, bytes: packet.len() as u64 };
                    let done = self.cpu.serve(self.costs.of(work), now).unwrap_or(now);
                    queue.schedule(done, Event::Taken(place, packet));
                }
            }
        }
    }
}

/// Sends a frame over a link; drops it if the queue is full.
fn send(
    link: &mut Link,
    frame: Vec<u8>,
    arrives: impl FnOnce(Vec<u8>) -> Event,
    queue: &mut EventQueue<Event>,
) {
    if let Ok(sent) = link.send(frame.len(), queue.now()) {
        queue.schedule(sent.arrives, arrives(frame));
    }
}

impl World for Testbed {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        match event {
            Event::Connect => self.connect(queue),
            Event::StopReading => self.stop_reading(),
            Event::AtPath(frame) => self.cross_path(Some(frame), queue),
            Event::PathTimer => self.cross_path(None, queue),
            Event::AtClient(frame) => {
                self.client.receive(frame, queue.now());
                self.after(Side::Client, queue);
            }
            Event::Card(event) => {
                self.card.handle(event, queue.now(), &mut self.effects);
                self.apply(queue);
            }
            Event::Taken(place, packet) => self.take(place, &packet, queue),
            Event::Interrupt => self.interrupt(queue),
            Event::Polled(polled) => self.polled(&polled, queue),
            Event::Timer(side) => self.timer(side, queue),
        }
    }
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        match self {
            Self::Connect => 1,
            Self::StopReading => 2,
            Self::AtPath(frame) => TraceHash::of(&[3, frame.len() as u64]),
            Self::PathTimer => 4,
            Self::AtClient(frame) => TraceHash::of(&[5, frame.len() as u64]),
            Self::Card(event) => TraceHash::of(&[6, event.fingerprint()]),
            Self::Taken(place, packet) => TraceHash::of(&[7, *place as u64, packet.len() as u64]),
            Self::Timer(side) => TraceHash::of(&[8, *side as u64]),
            Self::Interrupt => 9,
            Self::Polled(polled) => TraceHash::of(&[10, polled.packets.len() as u64, polled.nanos]),
        }
    }
}
