//! The world: nodes around a switch.
//!
//! Servers and clients that are different machines are separate [`Part`]s, unless the network loses packets
//! at random: one sequence of random numbers decides for all. The lookahead is the delay of a link to the
//! switch; a port of the switch belongs to the part of its receivers.

use std::sync::Arc;

use nichrome_wan::DelayHistogram;
use nichrome_wire::Instant;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::baselines::Outline;
use super::card::{Direction, Step};
use super::config::NetworkConfig;
use super::connection::Connection;
use super::engines::{Done, Engines};
use super::nodes::{Nodes, Task};
use super::operation::Operation;
use super::packet::{Kind, Packet};
use super::side::Side;
use crate::experiment::RunError;
use crate::{EventQueue, Fingerprint, Message, Part, Server, Timer, TraceHash, World};

/// Events of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    AtSwitch(Packet),
    AtCard(Packet),
    /// An engine is idle again.
    Free {
        node: u32,
        engine: u8,
    },
    /// A context has arrived from host memory.
    Fetched {
        node: u32,
        engine: u8,
        context: u32,
    },
    /// A posted operation has arrived at the card.
    Posted {
        connection: u32,
        side: Side,
    },
    /// A flight of an operation without an engine is sent.
    Flight {
        connection: u32,
        flight: u8,
    },
    /// The driver of StaR's server has processed an element that arrived.
    ElementTaken(Packet),
    /// The driver of StaR's server has built an element, which it sends.
    ElementMade(Packet),
    /// A timer of a side's device.
    Timer(Side),
    /// A Poisson arrival.
    Arrives,
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        let numbers = match self {
            Self::AtSwitch(packet) => [0, packet.fingerprint()],
            Self::AtCard(packet) => [1, packet.fingerprint()],
            Self::Free { node, engine } => [2, u64::from(*node) << 8 | u64::from(*engine)],
            Self::Fetched { node, engine, context } => {
                [3, u64::from(*node) << 40 | u64::from(*engine) << 32 | u64::from(*context)]
            }
            Self::Posted { connection, side } => [4, u64::from(*connection) << 1 | *side as u64],
            Self::Timer(side) => [5, *side as u64],
            Self::Arrives => [6, 0],
            Self::Flight { connection, flight } => [7, u64::from(*connection) << 8 | u64::from(*flight)],
            Self::ElementTaken(packet) => [8, packet.fingerprint()],
            Self::ElementMade(packet) => [9, packet.fingerprint()],
        };
        TraceHash::of(&numbers)
    }
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NetworkCounters {
    /// Completed operations.
    pub(super) operations: u64,
    /// Packets that entered the switch, and those of them that were lost or marked there.
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) marked: u64,
    /// Contexts on demand that a server's card refused.
    pub(super) refused: u64,
    /// Packets to servers, and their total queueing delay in the switch.
    pub(super) queued: u64,
    pub(super) queueing: u64,
}

impl NetworkCounters {
    /// Adds another part's counters.
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.packets += other.packets;
        self.lost += other.lost;
        self.marked += other.marked;
        self.refused += other.refused;
        self.queued += other.queued;
        self.queueing += other.queueing;
    }
}

/// The world, or a part of it.
pub(super) struct Network {
    pub(super) config: NetworkConfig,
    pub(super) nodes: Nodes,
    pub(super) connections: Vec<Connection>,
    /// Either the engines, or the outline of a transport without an engine.
    pub(super) engines: Option<Engines>,
    pub(super) outline: Option<Arc<Outline>>,
    pub(super) random: Pcg64Mcg,
    pub(super) counters: NetworkCounters,
    /// Durations of operations.
    pub(super) latencies: DelayHistogram,
    /// The error that invalidates the run.
    pub(super) failed: Option<RunError>,
    timers: [Timer; 2],
    /// The side whose nodes are here; `None` if both are.
    pub(super) only: Option<Side>,
    messages: Vec<Message<Event>>,
    /// Nodes whose cards have new tasks.
    woken: Vec<u32>,
    /// End of the last packet's transmission.
    sent_until: Instant,
    /// Time of the next Poisson arrival, in nanoseconds.
    pub(super) next_arrival: f64,
}

impl Network {
    pub(super) fn new(
        config: NetworkConfig,
        nodes: Nodes,
        connections: Vec<Connection>,
        engines: Option<Engines>,
        outline: Option<Outline>,
    ) -> Self {
        Self {
            config,
            nodes,
            connections,
            engines,
            outline: outline.map(Arc::new),
            random: Pcg64Mcg::seed_from_u64(config.seed),
            counters: NetworkCounters::default(),
            latencies: DelayHistogram::new(),
            failed: None,
            timers: [Timer::default(); 2],
            only: None,
            messages: Vec::new(),
            woken: Vec::new(),
            sent_until: Instant::ZERO,
            next_arrival: 0.0,
        }
    }

    /// Separates clients from servers, if they affect each other by packets only.
    pub(super) fn split(self) -> Vec<Self> {
        let loses = self.config.recovery.is_some_and(|recovery| recovery.loss > 0);
        if loses || !self.config.pattern.has_separate_servers() || self.config.uplink.delay == 0 {
            return vec![self];
        }
        let Self { config, nodes, connections, engines, outline, .. } = self;
        let [servers, clients] = nodes.split(config.pattern.servers() as u32);
        let [client, server] = engines.map_or([None, None], |engines| engines.split().map(Some));
        let part = |side, nodes, connections, engines| Self {
            only: Some(side),
            outline: outline.clone(),
            ..Self::new(config, nodes, connections, engines, None)
        };
        vec![
            part(Side::Client, clients, connections.clone(), client),
            part(Side::Server, servers, connections, server),
        ]
    }

    /// Sends a packet from the other side to `to`.
    pub(super) fn transmit(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let node = self.connections[packet.connection as usize].nodes[packet.to.other() as usize];
        let node = &mut self.nodes[node];
        let nanos = self.config.packet_time;
        let processed = through(&mut node.pipelines[Direction::Send as usize], nanos, now);
        // The uplink's queue is host memory: it is never full.
        if let Ok(sent) = node.uplink.send(packet.len as usize, processed) {
            // The pipeline takes the next packet while it passes this one on.
            self.sent_until = Instant::from_nanos(sent.ends.as_nanos().saturating_sub(nanos));
            self.pass_on(sent.arrives, packet, queue);
        }
    }

    /// Passes a packet to the port of the switch that leads to its destination.
    fn pass_on(&mut self, time: Instant, packet: Packet, queue: &mut EventQueue<Event>) {
        match self.only {
            // Parts have the numbers of their sides.
            Some(side) if side != packet.to => {
                let to = packet.to as usize;
                self.messages.push(Message { to, time, event: Event::AtSwitch(packet) });
            }
            _ => queue.schedule(time, Event::AtSwitch(packet)),
        }
    }

    /// Occupies a core of a connection's server for `nanos`; returns when that ends.
    pub(super) fn work_on_core(&mut self, connection: u32, nanos: u64, now: Instant) -> Instant {
        let server = self.connections[connection as usize].nodes[Side::Server as usize];
        let cores = &mut self.nodes[server].cores;
        let core = connection as usize % cores.len().max(1);
        cores.get_mut(core).map_or(now, |core| through(core, nanos, now))
    }

    /// Returns when the driver of StaR's server will have processed an element; `None` if that takes no time.
    fn driven(&mut self, packet: &Packet, at: Side, now: Instant) -> Option<Instant> {
        let nanos = self.config.element_time;
        let costs = nanos > 0 && packet.kind == Kind::Element && at == Side::Server;
        costs.then(|| self.work_on_core(packet.connection, nanos, now))
    }

    /// Passes an engine's packet to its card, which sends it when it has the connection's context.
    fn dispatch(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Connection { nodes, contexts, .. } = &self.connections[packet.connection as usize];
        let from = packet.to.other() as usize;
        match contexts[from].filter(|_| packet.kind == Kind::Work) {
            Some(context) => {
                let node = nodes[from];
                self.nodes[node].card.submit(Direction::Send, context, Task::Send(packet));
                self.woken.push(node);
            }
            None => match self.driven(&packet, packet.to.other(), queue.now()) {
                Some(done) => queue.schedule(done, Event::ElementMade(packet)),
                None => self.transmit(packet, queue),
            },
        }
    }

    /// Processes all outputs of a side's engine.
    fn drain(&mut self, side: Side, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        while let Some(packet) = self.engines.as_mut().and_then(|engines| engines.poll(side, now)) {
            self.dispatch(packet, queue);
        }
        while let Some((connection, done)) =
            self.engines.as_mut().and_then(|engines| engines.completion(side))
        {
            self.done(connection, side, done, queue);
        }
        if let Some(engines) = &self.engines {
            self.timers[side as usize].arm(engines.poll_timeout(side), queue, Event::Timer(side));
        }
    }

    /// Processes a completion of a side.
    fn done(&mut self, connection: u32, side: Side, done: Done, queue: &mut EventQueue<Event>) {
        match (done, side) {
            (Done::Failed(status), _) => {
                self.failed =
                    Some(RunError::Impossible(format!("connection {connection} failed with {status:?}")));
            }
            (Done::Sent, Side::Client) if self.config.operation == Operation::Write => {
                self.complete(connection, queue);
            }
            (Done::Sent, _) => {}
            (Done::Received, Side::Client) => {
                self.post_receive(connection, side);
                self.complete(connection, queue);
            }
            (Done::Received, Side::Server) => {
                queue.schedule_in(self.config.post, Event::Posted { connection, side });
            }
        }
    }

    /// Posts a RECV in place of the one that the server consumed, or counts one less if the server does not
    /// repost.
    fn replace_receive(&mut self, connection: u32) {
        match &mut self.connections[connection as usize].receives {
            None => self.post_receive(connection, Side::Server),
            Some(0) => {
                let message =
                    format!("connection {connection} has used up the RECVs that were posted before the run");
                self.failed = Some(RunError::Impossible(message));
            }
            Some(receives) => *receives -= 1,
        }
    }

    fn post_receive(&mut self, connection: u32, side: Side) {
        let posted = self.engines.as_mut().map(|engines| engines.post_receive(connection, side));
        self.failed = self.failed.take().or(posted.and_then(Result::err));
    }

    fn forward(&mut self, mut packet: Packet, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        self.counters.packets += 1;
        if self.config.recovery.is_some_and(|recovery| self.random.next_u64() < recovery.loss) {
            self.counters.lost += 1;
            return;
        }
        let node = self.connections[packet.connection as usize].nodes[packet.to as usize];
        let node = &mut self.nodes[node];
        let Ok(sent) = node.downlink.send(packet.len as usize, now) else {
            self.counters.lost += 1;
            return;
        };
        let pipeline = &mut node.pipelines[Direction::Receive as usize];
        let processed = through(pipeline, self.config.packet_time, sent.arrives);
        if packet.to == Side::Server {
            self.counters.queued += 1;
            self.counters.queueing += sent.begins.nanos_since(now);
        }
        if sent.marked && packet.is_markable() {
            packet.marked = true;
            self.counters.marked += 1;
        }
        queue.schedule(processed, Event::AtCard(packet));
    }

    fn arrive(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Connection { nodes, contexts, .. } = &self.connections[packet.connection as usize];
        match contexts[packet.to as usize] {
            Some(context) => {
                let node = nodes[packet.to as usize];
                self.nodes[node].card.submit(Direction::Receive, context, Task::Receive(packet));
                self.woken.push(node);
            }
            None => match self.driven(&packet, packet.to, queue.now()) {
                Some(done) => queue.schedule(done, Event::ElementTaken(packet)),
                None => self.receive(packet, queue),
            },
        }
    }

    fn receive(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let (connection, to) = (packet.connection, packet.to);
        match packet.kind {
            Kind::Outline { flight, context, is_last } => {
                self.receive_outline(connection, to, (flight, context, is_last), queue);
            }
            Kind::Refused => self.refused(connection, queue),
            Kind::Work | Kind::Answer | Kind::Element => {
                if let Some(engines) = &mut self.engines {
                    engines.receive(packet, queue.now());
                }
                self.drain(to, queue);
            }
        }
    }

    /// Runs a card's engines as far as possible at this time.
    pub(super) fn run_card(&mut self, node: u32, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let engines = self.nodes[node].card.engines();
        let (mut engine, mut idle) = (0, 0);
        while idle < engines {
            match self.nodes[node].card.next(engine, now) {
                Step::Do(task) => {
                    idle = 0;
                    self.perform(node, engine, task, queue);
                }
                Step::Fetch { context, here } => {
                    queue.schedule(here, Event::Fetched { node, engine: engine as u8, context });
                }
                Step::Wait(until) => queue.schedule(until, Event::Free { node, engine: engine as u8 }),
                Step::Idle => {
                    idle += 1;
                    engine = (engine + 1) % engines;
                }
            }
        }
    }

    fn perform(&mut self, node: u32, engine: usize, task: Task, queue: &mut EventQueue<Event>) {
        self.sent_until = Instant::ZERO;
        let receives = match task {
            Task::Receive(packet) => {
                self.receive(packet, queue);
                true
            }
            Task::Send(packet) => {
                self.transmit(packet, queue);
                false
            }
        };
        let card = &mut self.nodes[node].card;
        // The transmission of a response does not occupy an engine that only receives.
        if !receives || card.engines() == 1 {
            card.occupy(engine, self.sent_until);
        }
    }

    fn posted(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let Some(engines) = &mut self.engines else { return self.send_flight(connection, 0, queue) };
        let posted = engines.post(connection, side);
        self.failed = self.failed.take().or(posted.err());
        if side == Side::Server {
            self.replace_receive(connection);
        }
        self.drain(side, queue);
    }

    fn timer(&mut self, side: Side, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        self.timers[side as usize].fired(now);
        if let Some(engines) = &mut self.engines {
            engines.handle_timeout(side, now);
        }
        self.drain(side, queue);
    }
}

/// Passes a job that takes `nanos` through a server; returns when it is done, `now` for 0 ns.
fn through(server: &mut Server, nanos: u64, now: Instant) -> Instant {
    if nanos == 0 { now } else { server.serve(nanos, now).unwrap_or(now) }
}

impl Part for Network {
    fn take_messages(&mut self) -> Vec<Message<Event>> {
        std::mem::take(&mut self.messages)
    }
}

impl World for Network {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        match event {
            Event::AtSwitch(packet) => self.forward(packet, queue),
            Event::AtCard(packet) => self.arrive(packet, queue),
            Event::Free { node, engine } => {
                self.nodes[node].card.wake_up_fired(usize::from(engine));
                self.run_card(node, queue);
            }
            Event::Fetched { node, engine, context } => {
                self.nodes[node].card.fetched(usize::from(engine), context, queue.now());
                self.run_card(node, queue);
            }
            Event::Posted { connection, side } => self.posted(connection, side, queue),
            Event::Flight { connection, flight } => self.send_flight(connection, flight, queue),
            Event::ElementTaken(packet) => self.receive(packet, queue),
            Event::ElementMade(packet) => self.transmit(packet, queue),
            Event::Timer(side) => self.timer(side, queue),
            Event::Arrives => self.operation_arrives(queue),
        }
        while let Some(node) = self.woken.pop() {
            self.run_card(node, queue);
        }
    }
}
