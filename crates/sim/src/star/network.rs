//! Nodes around a switch, and what happens when.

use nichrome_wan::DelayHistogram;
use nichrome_wire::Instant;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::card::{Card, Direction, Step};
use super::config::NetworkConfig;
use super::connection::{Connection, State};
use super::lengths::packet_len;
use super::packet::{Kind, Packet, Side};
use crate::{EventQueue, Fingerprint, Link, Server, TraceHash, World};

/// A machine: its card, and its links to and from the switch.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) uplink: Link,
    pub(super) downlink: Link,
    pub(super) card: Card<Task>,
    /// Of a server of datagrams.
    pub(super) cores: Vec<Server>,
}

/// What a card does for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Takes a packet that it has received.
    Receive(Packet),
    /// Sends a packet of what was posted.
    Send { connection: u32, side: Side },
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    AtSwitch(Packet),
    AtCard(Packet),
    /// An engine is no longer busy.
    Free {
        node: u32,
        engine: u8,
    },
    /// A context is on chip.
    Fetched {
        node: u32,
        engine: u8,
        context: u32,
    },
    /// What a host has posted is at its card.
    Posted {
        connection: u32,
        side: Side,
    },
    TimedOut {
        connection: u32,
        side: Side,
    },
    /// An operation comes, for any connection.
    Arrives,
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        let numbers = match *self {
            Self::AtSwitch(packet) => [0, packet.fingerprint()],
            Self::AtCard(packet) => [1, packet.fingerprint()],
            Self::Free { node, engine } => [2, u64::from(node) << 8 | u64::from(engine)],
            Self::Fetched { node, engine, context } => {
                [3, u64::from(node) << 40 | u64::from(engine) << 32 | u64::from(context)]
            }
            Self::Posted { connection, side } => [4, u64::from(connection) << 1 | side as u64],
            Self::TimedOut { connection, side } => [5, u64::from(connection) << 1 | side as u64],
            Self::Arrives => [6, 0],
        };
        TraceHash::of(&numbers)
    }
}

/// What was counted; the delay in queues is of packets to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NetworkCounters {
    /// Operations completed.
    pub(super) operations: u64,
    /// Packets that entered the switch, those lost in it, and those that were marked.
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) marked: u64,
    /// Packets of data and elements that were sent again.
    pub(super) repeated: u64,
    /// Packets to servers, and how long they waited in the switch together.
    pub(super) queued: u64,
    pub(super) queueing: u64,
}

/// Everything.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: NetworkConfig,
    pub(super) nodes: Vec<Node>,
    pub(super) connections: Vec<Connection>,
    pub(super) random: Pcg64Mcg,
    pub(super) counters: NetworkCounters,
    /// From the beginning of operations to their end.
    pub(super) latencies: DelayHistogram,
    /// When the packet that was sent last is on the wire.
    sent_until: Instant,
}

impl Network {
    pub(super) fn new(config: NetworkConfig, nodes: Vec<Node>, connections: Vec<Connection>) -> Self {
        Self {
            config,
            nodes,
            connections,
            random: Pcg64Mcg::seed_from_u64(config.seed),
            counters: NetworkCounters::default(),
            latencies: DelayHistogram::new(),
            sent_until: Instant::ZERO,
        }
    }

    /// Sends a packet from the other side to `to`.
    pub(super) fn transmit(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let node = self.connections[packet.connection as usize].nodes[packet.to.other() as usize];
        // The queue before an uplink is memory of the host: it is never full.
        if let Ok(sent) = self.nodes[node as usize].uplink.send(packet.len as usize, now) {
            self.sent_until = sent.ends;
            queue.schedule(sent.arrives, Event::AtSwitch(packet));
        }
    }

    /// Sends a packet without payload.
    pub(super) fn tell(
        &mut self,
        (connection, to): (u32, Side),
        kind: Kind,
        sequence: u32,
        marked: bool,
        queue: &mut EventQueue<Event>,
    ) {
        let len = packet_len(kind, 0, false);
        self.transmit(Packet { connection, sequence, kind, to, marked, len }, queue);
    }

    fn forward(&mut self, mut packet: Packet, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        self.counters.packets += 1;
        if self.config.recovery.is_some_and(|recovery| self.random.next_u64() < recovery.loss) {
            self.counters.lost += 1;
            return;
        }
        let node = self.connections[packet.connection as usize].nodes[packet.to as usize];
        let Ok(sent) = self.nodes[node as usize].downlink.send(packet.len as usize, now) else {
            self.counters.lost += 1;
            return;
        };
        if packet.to == Side::Server {
            self.counters.queued += 1;
            self.counters.queueing += sent.begins.nanos_since(now);
        }
        if sent.marked && packet.kind.is_markable() {
            packet.marked = true;
            self.counters.marked += 1;
        }
        queue.schedule(sent.arrives, Event::AtCard(packet));
    }

    fn arrive(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Connection { nodes, contexts, .. } = self.connections[packet.connection as usize];
        match contexts[packet.to as usize] {
            Some(context) => {
                let node = nodes[packet.to as usize];
                let card = &mut self.nodes[node as usize].card;
                card.submit(Direction::Receive, context, Task::Receive(packet));
                self.run_card(node, queue);
            }
            None => self.receive(packet, queue),
        }
    }

    fn receive(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        match packet.kind {
            Kind::Data | Kind::Ack | Kind::Nak => self.receive_reliable(packet, queue),
            Kind::Request | Kind::Response => self.receive_datagram(packet, queue),
            _ if packet.to == Side::Server => self.answer_statelessly(packet, queue),
            _ => self.receive_stateful(packet, queue),
        }
    }

    /// Tells the card of a side that the connection has something to send, if it has.
    pub(super) fn wants_to_send(&mut self, connection: u32, side: Side) {
        let this = &mut self.connections[connection as usize];
        if this.is_queued[side as usize] || !this.can_send(side) {
            return;
        }
        let Some(context) = this.contexts[side as usize] else { return };
        this.is_queued[side as usize] = true;
        let card = &mut self.nodes[this.nodes[side as usize] as usize].card;
        card.submit(Direction::Send, context, Task::Send { connection, side });
    }

    /// Sends one packet of a connection, which then waits for its next turn.
    fn send(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        self.connections[connection as usize].is_queued[side as usize] = false;
        match self.connections[connection as usize].state {
            State::Reliable(_) => self.send_reliable(connection, side, queue),
            State::Stateless { .. } => self.send_stateful(connection, queue),
            State::Datagram => {}
        }
        self.set_timer(connection, side, queue);
        self.wants_to_send(connection, side);
    }

    /// The card does what it can do now.
    pub(super) fn run_card(&mut self, node: u32, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let engines = self.nodes[node as usize].card.engines();
        let (mut engine, mut idle) = (0, 0);
        while idle < engines {
            match self.nodes[node as usize].card.next(engine, now) {
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
            Task::Send { connection, side } => {
                self.send(connection, side, queue);
                false
            }
        };
        let card = &mut self.nodes[node as usize].card;
        // Where one engine only receives, what it answers with does not keep it.
        if !receives || card.engines() == 1 {
            card.occupy(engine, self.sent_until);
        }
    }

    /// A side has sent something that must be answered.
    pub(super) fn set_timer(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let Some(recovery) = self.config.recovery else { return };
        let this = &mut self.connections[connection as usize];
        this.active[side as usize] = queue.now();
        if !std::mem::replace(&mut this.has_timer[side as usize], true) {
            queue.schedule_in(recovery.timeout, Event::TimedOut { connection, side });
        }
    }

    fn time_out(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let Some(recovery) = self.config.recovery else { return };
        let this = &mut self.connections[connection as usize];
        this.has_timer[side as usize] = false;
        if !this.is_under_way(side) {
            return;
        }
        let due = this.active[side as usize].plus_nanos(recovery.timeout);
        if due > queue.now() {
            this.has_timer[side as usize] = true;
            queue.schedule(due, Event::TimedOut { connection, side });
            return;
        }
        if let State::Reliable(streams) = &mut this.state {
            streams[side as usize].time_out();
        } else {
            self.repeat_stateless(connection, side, queue);
        }
        self.set_timer(connection, side, queue);
        self.wants_to_send(connection, side);
        let node = self.connections[connection as usize].nodes[side as usize];
        self.run_card(node, queue);
    }

    fn posted(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        match self.connections[connection as usize].state {
            State::Reliable(_) => self.post_reliable(connection, side),
            State::Stateless { .. } => self.post_stateless(connection, side, queue),
            State::Datagram => self.post_datagram(connection, side, queue),
        }
        self.wants_to_send(connection, side);
        let node = self.connections[connection as usize].nodes[side as usize];
        self.run_card(node, queue);
    }
}

impl World for Network {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        match event {
            Event::AtSwitch(packet) => self.forward(packet, queue),
            Event::AtCard(packet) => self.arrive(packet, queue),
            Event::Free { node, engine } => {
                self.nodes[node as usize].card.asked(usize::from(engine));
                self.run_card(node, queue);
            }
            Event::Fetched { node, engine, context } => {
                self.nodes[node as usize].card.fetched(usize::from(engine), context, queue.now());
                self.run_card(node, queue);
            }
            Event::Posted { connection, side } => self.posted(connection, side, queue),
            Event::TimedOut { connection, side } => self.time_out(connection, side, queue),
            Event::Arrives => self.operation_arrives(queue),
        }
    }
}
