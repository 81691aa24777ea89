//! A small but complete scenario: the same seed gives the same trace on every machine and every run.
//!
//!     senders ── links ── switch ── bottleneck ── wide-area path ── card with LRO ── receiver
//!
//! Acknowledgements go back over a path and a switch of their own.

use std::time::Duration;

use nichrome_lro::{Config, Frame, Gro, Hold, Output as Coalesced, Packet as ToHost};
use nichrome_sim::host::{CongestionControl, Host, HostConfig, Role, Segmentation};
use nichrome_sim::observe::{Observer, Probes};
use nichrome_sim::{
    EventQueue, Fingerprint, HostId, Link, LinkConfig, Packet, Rate, Simulation, Stop, Switch, Timer,
    TraceHash, World,
};
use nichrome_wan::{Impairments, Output, Path};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Engine, Instant};

/// The scenario's trace hash when it was written. It changes with every rule of a part, of an engine or of
/// smoltcp that affects the scenario, and must not change with anything else.
const TRACE: u64 = 7_233_634_894_941_536_800;

const SENDERS: usize = 3;
const RECEIVER: usize = SENDERS;
const BYTES: u64 = 400_000;
const LIMIT: Instant = Instant::from_nanos(60_000_000_000);

struct Scenario {
    /// The senders, and the receiver.
    hosts: Vec<Host>,
    timers: Vec<Timer>,
    uplinks: Vec<Link>,
    forward: Switch,
    back: Switch,
    /// The paths to the receiver and back.
    paths: [Path<Packet>; 2],
    path_timers: [Timer; 2],
    lro: Gro<Vec<u8>>,
    lro_timer: Timer,
    aggregates: u64,
}

enum Event {
    HostDue(usize),
    AtSwitch(Packet),
    BackAtSwitch(Packet),
    AtPath(usize, Packet),
    PathDue(usize),
    AtCard(Vec<u8>),
    CardDue,
    AtHost(usize, Packet),
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        let numbers = match self {
            Self::HostDue(host) => [0, *host as u64, 0],
            Self::AtSwitch(packet) => [1, 0, packet.fingerprint()],
            Self::AtPath(path, packet) => [2, *path as u64, packet.fingerprint()],
            Self::PathDue(path) => [3, *path as u64, 0],
            Self::AtCard(frame) => [4, 0, Packet::Frame(frame.clone()).fingerprint()],
            Self::CardDue => [5, 0, 0],
            Self::BackAtSwitch(packet) => [7, 0, packet.fingerprint()],
            Self::AtHost(host, packet) => [6, *host as u64, packet.fingerprint()],
        };
        TraceHash::of(&numbers)
    }
}

impl World for Scenario {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        match event {
            Event::HostDue(host) => {
                self.timers[host].fired(now);
                self.hosts[host].handle_timeout(now);
                self.send(host, queue);
            }
            Event::AtSwitch(mut packet) => {
                if let Ok(forwarded) = self.forward.forward(&mut packet, now) {
                    queue.schedule(forwarded.sent.arrives, Event::AtPath(0, packet));
                }
            }
            Event::BackAtSwitch(mut packet) => {
                if let (Some(sender), Ok(forwarded)) =
                    (packet.destination(), self.back.forward(&mut packet, now))
                {
                    queue.schedule(forwarded.sent.arrives, Event::AtHost(usize::from(sender.0), packet));
                }
            }
            Event::AtPath(path, packet) => {
                deliver(&mut self.paths[path], packet, now, &mut |_, output| {
                    Self::leave(path, output, queue);
                });
                self.arm_path(path, queue);
            }
            Event::PathDue(path) => {
                self.path_timers[path].fired(now);
                advance(&mut self.paths[path], now, &mut |_, output| Self::leave(path, output, queue));
                self.arm_path(path, queue);
            }
            Event::AtCard(frame) => {
                let mut received = Vec::new();
                deliver(&mut self.lro, Frame::new(frame), now, &mut |_, output| received.push(output));
                self.hand_on(received, queue);
            }
            Event::CardDue => {
                self.lro_timer.fired(now);
                let mut received = Vec::new();
                advance(&mut self.lro, now, &mut |_, output| received.push(output));
                self.hand_on(received, queue);
            }
            Event::AtHost(host, packet) => {
                if let Packet::Frame(frame) = packet {
                    self.hosts[host].receive(frame, now);
                    self.send(host, queue);
                }
            }
        }
    }
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let congestion_control = CongestionControl::Reno;
        let config =
            HostConfig { seed, congestion_control, receive_buffer: 1 << 17, ..HostConfig::default() };
        // The first sender's card segments its packets.
        let segmentation = |number| if number == 0 { Segmentation::Card } else { Segmentation::Host };
        let host = |number| {
            Host::new(HostId(number as u16), HostConfig { segmentation: segmentation(number), ..config })
                .unwrap()
        };
        let mut hosts: Vec<_> = (0..=SENDERS).map(host).collect();
        hosts[RECEIVER].listen(80, Role::Receive);
        for sender in &mut hosts[..SENDERS] {
            let role = Role::Send { bytes: Some(BYTES) };
            sender.connect(HostId(RECEIVER as u16), 80, role, Instant::ZERO).unwrap();
        }
        let impairments = Impairments {
            delay: "3ms".parse().unwrap(),
            jitter: Some("200us".parse().unwrap()),
            loss: Some("1.5%".parse().unwrap()),
            ..Impairments::default()
        };
        let bottleneck = LinkConfig {
            queue: "60p".parse().unwrap(),
            ecn_threshold: Some("20p".parse().unwrap()),
            ..LinkConfig::ethernet(Rate::new(200_000_000).unwrap(), 10_000)
        };
        let mut forward = Switch::new(500);
        let port = forward.add_port(bottleneck);
        forward.set_route(HostId(RECEIVER as u16), port);
        let mut back = Switch::new(500);
        for sender in 0..SENDERS {
            let port = back.add_port(LinkConfig::ethernet(Rate::GIGABIT, 1000));
            back.set_route(HostId(sender as u16), port);
        }
        let uplink = Link::new(LinkConfig::ethernet(Rate::GIGABIT, 1000));
        let hold = Hold::For(Duration::from_micros(300));
        Self {
            timers: vec![Timer::default(); hosts.len()],
            uplinks: vec![uplink; hosts.len()],
            hosts,
            forward,
            back,
            paths: [0, 1].map(|direction| Path::new(&impairments, seed + direction).unwrap()),
            path_timers: [Timer::default(); 2],
            lro: Gro::new(&Config::default(), hold).unwrap(),
            lro_timer: Timer::default(),
            aggregates: 0,
        }
    }

    fn send(&mut self, host: usize, queue: &mut EventQueue<Event>) {
        while let Some(frame) = self.hosts[host].poll() {
            if let Ok(sent) = self.uplinks[host].send(frame.len(), queue.now()) {
                let packet = Packet::Frame(frame);
                let event = if host == RECEIVER { Event::AtPath(1, packet) } else { Event::AtSwitch(packet) };
                queue.schedule(sent.arrives, event);
            }
        }
        self.timers[host].arm(self.hosts[host].poll_timeout(), queue, Event::HostDue(host));
    }

    fn leave(path: usize, output: Output<Packet>, queue: &mut EventQueue<Event>) {
        let Output::Released(departure) = output else { return };
        match (path, departure.packet) {
            (0, Packet::Frame(frame)) => queue.schedule(departure.due, Event::AtCard(frame)),
            (_, packet) => queue.schedule(departure.due, Event::BackAtSwitch(packet)),
        }
    }

    fn arm_path(&mut self, path: usize, queue: &mut EventQueue<Event>) {
        self.path_timers[path].arm(self.paths[path].poll_timeout(), queue, Event::PathDue(path));
    }

    fn hand_on(&mut self, received: Vec<Coalesced<Vec<u8>>>, queue: &mut EventQueue<Event>) {
        for output in received {
            let Coalesced::ToHost(packet) = output else { continue };
            let frame = match packet {
                ToHost::Frame(frame) => frame.buffer,
                ToHost::Aggregate(aggregate) => {
                    self.aggregates += 1;
                    let mut packet = Vec::new();
                    aggregate.copy_to(&mut packet);
                    packet
                }
            };
            queue.schedule_in(2000, Event::AtHost(RECEIVER, Packet::Frame(frame)));
        }
        self.lro_timer.arm(self.lro.poll_timeout(), queue, Event::CardDue);
    }
}

fn simulation(seed: u64) -> Simulation<Scenario> {
    let mut simulation = Simulation::new(Scenario::new(seed));
    for sender in 0..SENDERS {
        simulation.queue.schedule(Instant::ZERO, Event::HostDue(sender));
    }
    simulation
}

#[test]
fn the_same_seed_gives_the_same_trace_everywhere() {
    let run = |seed| {
        let mut simulation = simulation(seed);
        simulation.run_until(LIMIT);
        simulation
    };
    let first = run(1);
    let world = &first.world;
    assert_eq!(world.hosts[RECEIVER].bytes_read(), SENDERS as u64 * BYTES);
    assert!(
        world.hosts[RECEIVER]
            .connections()
            .iter()
            .all(|connection| connection.program_counters().wrong_reads == 0)
    );
    assert!(world.aggregates > 50, "{}", world.aggregates);
    let retransmitted: u64 =
        world.hosts[..SENDERS].iter().map(|sender| sender.connections()[0].retransmitted()).sum();
    assert!(retransmitted > 5, "{retransmitted}");
    assert_eq!(first.trace_hash(), run(1).trace_hash());
    assert_ne!(first.trace_hash(), run(2).trace_hash());
    assert_eq!(first.trace_hash(), TRACE);
}

#[test]
fn a_run_that_is_observed_has_the_same_trace() {
    let mut observed = simulation(1);
    let mut observer = Observer::default();
    observer.sample_every(1_000_000);
    let mut probes = Probes::new();
    probes.register("read", "B", |world: &Scenario, _| world.hosts[RECEIVER].bytes_read() as f64);
    assert_ne!(observer.run(&mut observed, LIMIT, &mut probes), Stop::Interrupted);
    observer.keep(probes);
    let samples = &observer.series[0].samples;
    assert!(samples.is_sorted_by_key(|sample| sample.value));
    assert_eq!(samples.last().map(|sample| sample.value), Some((SENDERS as u64 * BYTES) as f64));
    assert_eq!(observed.trace_hash(), TRACE);
}
