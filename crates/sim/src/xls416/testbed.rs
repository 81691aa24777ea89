//! The test bed of lro-npu VII (Figure 12): a client with TCP senders, a wire, the card, and the server that it is in.

use nichrome_lro::{ConfigError, Packet};
use nichrome_wan::{Impairments, Output as PathOutput, Path};
use nichrome_wire::Engine;
use nichrome_wire::engine::{advance, deliver};
use thiserror::Error;

use super::card::{Card, CardEvent, CardOutput, Effects};
use super::config::CardConfig;
use super::points::Points;
use crate::host::{ConnectError, ConnectionId, Host, HostConfig, HostConfigError, Role};
use crate::observe::Capture;
use crate::packet::in_one_piece;
use crate::{
    CpuCosts, EventQueue, Fingerprint, HostId, Link, LinkConfig, Server, Timer, TraceHash, Work, World,
};

/// The client and the server.
const CLIENT: HostId = HostId(0);
const SERVER: HostId = HostId(1);
/// Where the server listens.
const PORT: u16 = 5201;

/// What the test bed is.
#[derive(Clone, Debug)]
pub(super) struct TestbedConfig {
    /// The card.
    pub(super) card: CardConfig,
    /// The wire, the same in both directions.
    pub(super) wire: LinkConfig,
    /// What happens to packets on their way from the client to the card.
    pub(super) path: Impairments,
    /// TCP on both hosts.
    pub(super) tcp: HostConfig,
    /// What the server's CPU pays for what the card hands it.
    pub(super) cpu: CpuCosts,
    /// What each connection of the client does.
    pub(super) role: Role,
    /// What random choices follow from.
    pub(super) seed: u64,
}

/// Why there is no test bed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum TestbedError {
    /// An engine cannot be configured so.
    #[error(transparent)]
    Engine(#[from] ConfigError),
    /// The path cannot.
    #[error(transparent)]
    Path(#[from] nichrome_wan::ConfigError),
    /// A host cannot.
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
    path: Path<Vec<u8>>,
    path_timer: Timer,
    card: Card,
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

/// What happens in the test bed.
pub(super) enum Event {
    /// The client opens a connection.
    Connect,
    /// The server's programs stop reading.
    StopReading,
    /// A frame has crossed the wire to the card's end.
    AtPath(Vec<u8>),
    /// Something is due on the path.
    PathTimer,
    /// A frame has crossed the wire to the client.
    AtClient(Vec<u8>),
    /// Something happens in the card.
    Card(CardEvent),
    /// The server's CPU has done with a packet of the receiving thread of this place.
    Taken(usize, Packet<Vec<u8>>),
    /// A timer of a host's TCP is due.
    Timer(Side),
}

impl Testbed {
    /// A test bed in which nothing happens yet, and whose packets go to `capture`.
    ///
    /// # Errors
    /// A part cannot be configured so.
    pub(super) fn new(config: &TestbedConfig, capture: Capture) -> Result<Self, TestbedError> {
        // The client's programs receive nothing and the server's send nothing: a packet's room is enough.
        let client = HostConfig { seed: config.seed, receive_buffer: config.tcp.mtu, ..config.tcp };
        let server = HostConfig { seed: config.seed, send_buffer: config.tcp.mtu, ..config.tcp };
        let mut server = Host::new(SERVER, server)?;
        server.listen(PORT, Role::Receive);
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
            // What waits for it is bounded by the card's descriptors.
            cpu: Server::new(usize::MAX),
            costs: config.cpu,
            role: config.role,
            effects: Effects::default(),
            refused: None,
            points: Points::new(capture),
        })
    }

    /// The client.
    pub(super) fn client(&self) -> &Host {
        &self.client
    }

    /// The server.
    pub(super) fn server(&self) -> &Host {
        &self.server
    }

    /// The card.
    pub(super) fn card(&self) -> &Card {
        &self.card
    }

    /// The server's CPU.
    pub(super) fn cpu(&self) -> &Server {
        &self.cpu
    }

    /// Why a connection could not be opened, if one could not.
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

    /// The server's kernel takes a packet, and the driver gives its descriptor back.
    fn take(&mut self, place: usize, packet: &Packet<Vec<u8>>, queue: &mut EventQueue<Event>) {
        self.server.receive(in_one_piece(packet).into_owned(), queue.now());
        self.after(Side::Server, queue);
        self.card.refill(place, queue.now(), &mut self.effects);
        self.apply(queue);
    }

    /// Carries away what a host sends, and sets its timer.
    fn after(&mut self, side: Side, queue: &mut EventQueue<Event>) {
        match side {
            Side::Client => {
                while let Some(frame) = self.client.poll() {
                    send(&mut self.to_card, frame, Event::AtPath, queue);
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

    /// A frame, or nothing but time, comes to the path before the card.
    fn cross_path(&mut self, frame: Option<Vec<u8>>, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let (card, effects, points) = (&mut self.card, &mut self.effects, &mut self.points);
        let mut sink = |_, output: PathOutput<Vec<u8>>| {
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

    /// Schedules and carries away what follows from what the card did.
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
                    let work = Work { interrupts: 1, packets: 1, bytes: packet.len() as u64 };
                    let done = self.cpu.serve(self.costs.of(work), now).unwrap_or(now);
                    queue.schedule(done, Event::Taken(place, packet));
                }
            }
        }
    }
}

/// Sends a frame over a link; one for which there is no room is lost.
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
        }
    }
}
