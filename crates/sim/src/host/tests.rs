//! Tests of two hosts connected by paths.

use std::num::NonZeroU32;

use nichrome_wan::{Impairments, Output, Path};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Network, TcpFrame};
use smoltcp::socket::tcp::State;

use super::*;
use crate::{EventQueue, Fingerprint, Packet, Simulation, Timer, TraceHash, World};

const SERVER: HostId = HostId(1);
const PORT: u16 = 5201;

/// Host 0 and host 1, with a path in each direction.
struct Pair {
    hosts: [Host; 2],
    paths: [Path<Packet>; 2],
    host_timers: [Timer; 2],
    path_timers: [Timer; 2],
}

enum Event {
    Arrives(usize, Packet),
    HostDue(usize),
    PathDue(usize),
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        match self {
            Self::Arrives(host, packet) => TraceHash::of(&[0, *host as u64, packet.fingerprint()]),
            Self::HostDue(host) => TraceHash::of(&[1, *host as u64]),
            Self::PathDue(host) => TraceHash::of(&[2, *host as u64]),
        }
    }
}

impl World for Pair {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        match event {
            Event::Arrives(host, Packet::Frame(frame)) => self.hosts[host].receive(frame, now),
            Event::Arrives(..) => {}
            Event::HostDue(host) => {
                self.host_timers[host].fired(now);
                self.hosts[host].handle_timeout(now);
            }
            Event::PathDue(host) => {
                self.path_timers[host].fired(now);
                advance(&mut self.paths[host], now, &mut arrive(host, queue));
            }
        }
        self.send(queue);
    }
}

/// Returns a sink for the path from `host`, which schedules the arrival of each packet at the other host.
fn arrive(host: usize, queue: &mut EventQueue<Event>) -> impl FnMut(Instant, Output<Packet>) {
    move |_, output| {
        if let Output::Released(departure) = output {
            queue.schedule(departure.due, Event::Arrives(1 - host, departure.packet));
        }
    }
}

impl Pair {
    fn send(&mut self, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        for host in 0..2 {
            while let Some(frame) = self.hosts[host].poll() {
                deliver(&mut self.paths[host], frame.into(), now, &mut arrive(host, queue));
            }
            self.host_timers[host].arm(self.hosts[host].poll_timeout(), queue, Event::HostDue(host));
            self.path_timers[host].arm(self.paths[host].poll_timeout(), queue, Event::PathDue(host));
        }
    }
}

fn pair(config: HostConfig, impairments: &Impairments) -> Simulation<Pair> {
    let hosts = [0, 1].map(|number| Host::new(HostId(number), config).unwrap());
    let paths = [0, 1].map(|number| Path::new(impairments, config.seed + number).unwrap());
    Simulation::new(Pair { hosts, paths, host_timers: Default::default(), path_timers: Default::default() })
}

fn delay(delay: &str) -> Impairments {
    Impairments {
        delay: delay.parse().unwrap(),
        rate: Some("100mbit".parse().unwrap()),
        ..Impairments::default()
    }
}

fn connect(simulation: &mut Simulation<Pair>, role: Role) -> ConnectionId {
    let now = simulation.now();
    let id = simulation.world.hosts[0].connect(SERVER, PORT, role, now).unwrap();
    simulation.world.send(&mut simulation.queue);
    id
}

fn run_for(simulation: &mut Simulation<Pair>, seconds: u64) {
    let limit = simulation.now().plus_nanos(seconds * 1_000_000_000);
    simulation.run_until(limit);
}

#[test]
fn a_transfer_fills_the_path_and_ends() {
    let mut simulation = pair(HostConfig::default(), &delay("2ms"));
    simulation.world.hosts[1].listen(PORT, Role::Receive);
    connect(&mut simulation, Role::Send { bytes: Some(10_000_000) });
    run_for(&mut simulation, 30);
    let [client, server] = &simulation.world.hosts;
    let counters = server.connections()[0].program_counters();
    assert_eq!((counters.received, counters.wrong_reads), (10_000_000, 0));
    assert_eq!((client.connections()[0].retransmitted(), server.counters().unmatched), (0, 0));
    // 10 MB at 100 Mb/s without headers, plus a few round trips of slow start.
    let took = server.connections()[0].times().last_read.unwrap().as_nanos();
    assert!((829_000_000..890_000_000).contains(&took), "{took}");
    assert_eq!([client, server].map(|host| host.connections()[0].state()), [State::Closed; 2]);
}

#[test]
fn a_card_that_cuts_sends_what_tcp_would() {
    let run = |segmentation, loss: &str| {
        let impairments = Impairments { loss: Some(loss.parse().unwrap()), ..delay("1ms") };
        let config = HostConfig { segmentation, seed: 3, ..HostConfig::default() };
        let mut simulation = pair(config, &impairments);
        simulation.world.hosts[1].listen(PORT, Role::Receive);
        connect(&mut simulation, Role::Send { bytes: Some(1_000_000) });
        run_for(&mut simulation, 100);
        let [client, server] = &simulation.world.hosts;
        let counters = server.connections()[0].program_counters();
        assert_eq!((counters.received, counters.wrong_reads), (1_000_000, 0));
        client.counters().sent
    };
    // The card segments packets of up to 64 KB into about as many frames as TCP sends itself.
    let (by_host, by_card) = (run(Segmentation::Host, "0%"), run(Segmentation::Card, "0%"));
    assert!(
        (1_000_000 / 1460..750).contains(&by_host) && by_card.abs_diff(by_host) < 60,
        "{by_host} {by_card}"
    );
    assert!(run(Segmentation::Card, "2%") > by_card);
}

#[test]
fn a_lossy_path_delivers_exactly_the_bytes() {
    for congestion_control in [CongestionControl::None, CongestionControl::Reno, CongestionControl::Cubic] {
        let impairments = Impairments {
            loss: Some("2%".parse().unwrap()),
            duplicate: "1%".parse().unwrap(),
            corrupt: "0.5%".parse().unwrap(),
            reorder: Some("1%:3ms".parse().unwrap()),
            ..delay("5ms")
        };
        let config = HostConfig { congestion_control, seed: 7, ..HostConfig::default() };
        let mut simulation = pair(config, &impairments);
        simulation.world.hosts[1].listen(PORT, Role::Receive);
        let id = connect(&mut simulation, Role::Send { bytes: Some(2_000_000) });
        run_for(&mut simulation, 600);
        let [client, server] = &simulation.world.hosts;
        let counters = server.connections()[0].program_counters();
        assert_eq!((counters.received, counters.wrong_reads), (2_000_000, 0), "{congestion_control:?}");
        let sender = &client.connections()[id.0];
        assert!(sender.retransmitted() > 10 && sender.times().complete.is_some());
        assert_eq!(sender.unacknowledged(), 0);
    }
}

#[test]
fn a_reader_that_stops_and_comes_back_loses_nothing() {
    let mut simulation = pair(HostConfig::default(), &delay("1ms"));
    simulation.world.hosts[1].listen(PORT, Role::Receive);
    let id = connect(&mut simulation, Role::Send { bytes: Some(3_000_000) });
    simulation.run_until(Instant::from_nanos(50_000_000));
    simulation.world.hosts[1].stop_reading(ConnectionId(0));
    run_for(&mut simulation, 20);
    let stopped = &simulation.world.hosts[1].connections()[0];
    let (unread, received) = (stopped.unread(), stopped.program_counters().received);
    let buffer = HostConfig::default().receive_buffer;
    assert!((buffer - 1460..=buffer).contains(&unread), "the window is full: {unread}");
    assert!(received < 3_000_000);
    let now = simulation.now();
    simulation.world.hosts[1].resume_reading(ConnectionId(0), now);
    simulation.world.send(&mut simulation.queue);
    run_for(&mut simulation, 20);
    let [client, server] = &simulation.world.hosts;
    assert_eq!((server.bytes_read(), server.connections()[0].program_counters().wrong_reads), (3_000_000, 0));
    assert!(client.connections()[id.0].times().complete.is_some());
}

#[test]
fn requests_are_answered_a_round_trip_later() {
    let mut simulation = pair(HostConfig::default(), &delay("10ms"));
    let bytes = |bytes| NonZeroU32::new(bytes).unwrap();
    let exchange = Exchange { request: bytes(100), response: bytes(1000) };
    simulation.world.hosts[1].listen(PORT, Role::Respond { exchange });
    connect(&mut simulation, Role::Request { exchange, count: Some(20), pause: 1_000_000 });
    run_for(&mut simulation, 10);
    let [client, server] = &simulation.world.hosts;
    assert_eq!([client, server].map(|host| host.connections()[0].program_counters().exchanges), [20; 2]);
    assert_eq!(server.connections()[0].program_counters().sent, 20_000);
    let latencies = client.latencies();
    let (mean, max) = (latencies.mean().as_micros(), latencies.max().as_micros());
    assert!(latencies.count() == 20 && (20_080..20_200).contains(&mean) && max < 20_200, "{mean} {max}");
    assert!(server.connections()[0].times().complete.is_some());
}

#[test]
fn a_connection_that_is_reset_during_a_pause_has_nothing_left_to_do() {
    let [mut client, mut server] =
        [0, 1].map(|number| Host::new(HostId(number), HostConfig::default()).unwrap());
    let bytes = |bytes| NonZeroU32::new(bytes).unwrap();
    let exchange = Exchange { request: bytes(100), response: bytes(100) };
    server.listen(PORT, Role::Respond { exchange });
    let role = Role::Request { exchange, count: None, pause: 1_000_000 };
    client.connect(SERVER, PORT, role, Instant::ZERO).unwrap();
    let mut response = Vec::new();
    while let Some(frame) = client.poll() {
        server.receive(frame, Instant::ZERO);
        while let Some(frame) = server.poll() {
            response.clone_from(&frame);
            client.receive(frame, Instant::ZERO);
        }
    }
    assert_eq!(client.connections()[0].program_counters().exchanges, 1);
    client.receive(reset_after(&response), Instant::ZERO);
    assert_eq!(client.connections()[0].state(), State::Closed);
    client.handle_timeout(Instant::from_nanos(1_000_000));
    assert_eq!((client.poll_timeout(), client.poll()), (None, None));
}

/// Builds the RST that follows a segment of the server.
fn reset_after(segment: &[u8]) -> Vec<u8> {
    let packet = LinkHeader::new(segment).unwrap().payload();
    let ip = Ipv4Header::new(packet).unwrap();
    let tcp = TcpHeader::new(ip.payload().unwrap()).unwrap();
    let reset = TcpFrame {
        network: Network::ipv4(ip.src(), ip.dst()),
        src_port: tcp.src_port(),
        dst_port: tcp.dst_port(),
        seq: tcp.seq() + tcp.payload().unwrap().len() as u32,
        flags: TcpFlags::RST,
        ..TcpFrame::default()
    };
    reset.build()
}

#[test]
fn many_connections_share_the_path() {
    let config = HostConfig { receive_buffer: 32_768, send_buffer: 32_768, ..HostConfig::default() };
    let mut simulation = pair(config, &delay("1ms"));
    simulation.world.hosts[1].listen(PORT, Role::Receive);
    for _ in 0..200 {
        connect(&mut simulation, Role::Send { bytes: Some(50_000) });
    }
    run_for(&mut simulation, 60);
    let server = &simulation.world.hosts[1];
    assert_eq!(server.connections().len(), 200);
    for connection in server.connections() {
        assert_eq!(
            (connection.program_counters().received, connection.program_counters().wrong_reads),
            (50_000, 0)
        );
    }
}

#[test]
fn ports_and_sequence_numbers_follow_from_the_seed() {
    let first_frames = |seed| {
        let mut host = Host::new(HostId(0), HostConfig { seed, ..HostConfig::default() }).unwrap();
        let mut frames = Vec::new();
        for _ in 0..3 {
            host.connect(SERVER, PORT, Role::Receive, Instant::ZERO).unwrap();
            frames.extend(host.poll());
        }
        frames
    };
    assert_eq!(first_frames(1), first_frames(1));
    assert!(first_frames(1).iter().zip(first_frames(2)).all(|(one, other)| *one != other));
}

#[test]
fn frames_for_other_hosts_are_counted() {
    let config = HostConfig { max_connections: 1, ..HostConfig::default() };
    let mut server = Host::new(SERVER, config).unwrap();
    let syn_to = |port| {
        let mut client = Host::new(HostId(0), HostConfig::default()).unwrap();
        client.connect(SERVER, port, Role::Receive, Instant::ZERO).unwrap();
        client.poll().unwrap()
    };
    server.listen(PORT, Role::Receive);
    server.listen(PORT + 1, Role::Receive);
    for frame in [vec![0; 3], syn_to(PORT), syn_to(PORT + 1), syn_to(PORT + 2)] {
        server.receive(frame, Instant::ZERO);
    }
    let counters = server.counters();
    assert_eq!((counters.not_tcp_for_host, counters.refused, counters.unmatched), (1, 1, 1));
    assert_eq!(server.connect(HostId(0), 1, Role::Receive, Instant::ZERO), Err(ConnectError::TooMany(1)));
    let error = Host::new(SERVER, HostConfig { mtu: 0, ..config }).err().unwrap().to_string();
    assert_eq!(error, "mtu is 0: it must be from 576 to 9000");
}
