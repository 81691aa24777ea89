//! Two real kernels, a card each, and a wire between them that may be bad.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nichrome_lro::{ActiveAck, Config, Hold, NpuConfig, ProfileConfig};
use nichrome_nic::{Card, CardConfig, CardError, MemoryWire, Queue, QueueStats, memory_wire};
use nichrome_port::{
    Device, InterfaceName, Netlink, NetworkNamespace, Offloads, Reception, Settings, Tap, become_able,
};
use nichrome_wan::Impairments;
use nichrome_wire::MacAddr;

const FRAME_LEN: usize = 1514;
const PORT: u16 = 5001;

/// A host: a kernel's network stack behind a TAP device with so many queues.
struct Host {
    namespace: NetworkNamespace,
    taps: Vec<Arc<dyn Device + Send + Sync>>,
}

fn interface() -> InterfaceName {
    "host0".parse().unwrap()
}

fn v4(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 7, 0, number).into()
}

fn v6(number: u8) -> IpAddr {
    Ipv6Addr::new(0xFD07, 0, 0, 0, 0, 0, 0, u16::from(number)).into()
}

fn host(number: u8, queues: usize) -> Host {
    become_able().unwrap();
    let namespace = NetworkNamespace::new().unwrap();
    let taps = namespace
        .run(|| {
            let taps = Tap::with_queues(interface(), Offloads::All, Reception::Direct, queues).unwrap();
            let netlink = Netlink::open().unwrap();
            let interface = netlink.interface(interface()).unwrap();
            let mac = |number| MacAddr([2, 0, 0, 0, 7, number]);
            netlink
                .configure(&interface, Settings { mac: Some(mac(number)), ..Settings::default() })
                .unwrap();
            netlink.silence(&interface).unwrap();
            netlink.set_up(&interface).unwrap();
            netlink.wait_until_running(&interface).unwrap();
            let peer = 3 - number;
            for (ours, theirs, prefix_len) in [(v4(number), v4(peer), 24), (v6(number), v6(peer), 64)] {
                netlink.add_address(&interface, ours, prefix_len).unwrap();
                netlink.add_neighbour(&interface, theirs, mac(peer)).unwrap();
            }
            taps
        })
        .unwrap();
    Host {
        namespace,
        taps: taps.into_iter().map(|tap| Arc::new(tap) as Arc<dyn Device + Send + Sync>).collect(),
    }
}

fn config(profile: Option<ProfileConfig>) -> CardConfig {
    CardConfig { name: "card", engine: Config::default(), profile, busy_poll: false, frame_len: FRAME_LEN }
}

fn card(wires: Vec<MemoryWire>, host: &Host, profile: Option<ProfileConfig>) -> Card {
    let queues = wires.into_iter().map(|wire| Queue { wire, observer: None }).collect();
    Card::start(queues, &host.taps, &config(profile), || {}).unwrap()
}

fn impaired(settings: &[(&str, &str)]) -> [Impairments; 2] {
    let mut impairments = Impairments::default();
    for (name, value) in settings {
        match *name {
            "delay" => impairments.delay = value.parse().unwrap(),
            "loss" => impairments.loss = Some(value.parse().unwrap()),
            "duplicate" => impairments.duplicate = value.parse().unwrap(),
            "corrupt" => impairments.corrupt = value.parse().unwrap(),
            "reorder" => impairments.reorder = Some(value.parse().unwrap()),
            _ => panic!("{name}"),
        }
    }
    [impairments.clone(), impairments]
}

fn profiles() -> [(&'static str, Option<ProfileConfig>); 5] {
    let npu = |active_ack| Some(ProfileConfig::Npu(NpuConfig { active_ack, ..NpuConfig::default() }));
    [
        ("none", None),
        ("gro", Some(ProfileConfig::Gro(Hold::Batch))),
        ("netfpga", Some(ProfileConfig::Netfpga(Duration::from_micros(50)))),
        ("npu", npu(ActiveAck::Off)),
        ("npu, active ACK", npu(ActiveAck::Safe)),
    ]
}

/// Bytes that say where they are.
fn pattern(connection: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) ^ (at >> 9) ^ (connection * 7)) as u8).collect()
}

/// Sends so many bytes over each of several connections at once, from `sender` to `receiver`, which checks them.
fn transfer(receiver: &Host, sender: &Host, address: IpAddr, connections: usize, len: usize) {
    let listener = receiver.namespace.run(|| TcpListener::bind((address, PORT)).unwrap()).unwrap();
    let mut threads = Vec::new();
    for nth in 0..connections {
        let mut stream = sender.namespace.run(|| TcpStream::connect((address, PORT)).unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        threads.push(thread::spawn(move || stream.write_all(&pattern(nth, len)).unwrap()));
        threads.push(thread::spawn(move || {
            let mut received = Vec::with_capacity(len);
            accepted.read_to_end(&mut received).unwrap();
            assert!(
                received == pattern(nth, len),
                "connection {nth}: {} bytes or other ones",
                received.len()
            );
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two hosts with a card each of the same profile.
fn pair(profile: Option<ProfileConfig>, impairments: &[Impairments; 2]) -> ([Host; 2], [Card; 2]) {
    let hosts = [host(1, 1), host(2, 1)];
    let [left, right] = memory_wire(impairments, 1, FRAME_LEN).unwrap();
    let cards = [card(vec![left], &hosts[0], profile), card(vec![right], &hosts[1], profile)];
    (hosts, cards)
}

fn stop(cards: [Card; 2]) -> [Vec<QueueStats>; 2] {
    cards.map(|card| card.stop().unwrap())
}

#[test]
fn every_profile_brings_what_was_sent() {
    for (name, profile) in profiles() {
        let (hosts, cards) = pair(profile, &impaired(&[]));
        transfer(&hosts[0], &hosts[1], v4(1), 3, 3_000_000);
        transfer(&hosts[1], &hosts[0], v6(2), 3, 3_000_000);
        let [left, _] = stop(cards);
        let stats = &left[0];
        assert_eq!((stats.host_refused, stats.taken_apart, stats.receive_malformed), (0, 0, 0), "{name}");
        if profile.is_some() {
            let engine = &stats.engine;
            assert_eq!(engine.packets_in, stats.received, "{name}");
            assert!(engine.packets_out * 3 < engine.packets_in, "{name}: {engine:?}");
        } else {
            assert_eq!(stats.to_host, stats.received);
        }
    }
}

#[test]
fn every_profile_brings_what_was_sent_over_a_bad_wire() {
    let bad = impaired(&[
        ("delay", "300us"),
        ("loss", "0.5%"),
        ("duplicate", "0.5%"),
        ("corrupt", "0.2%"),
        ("reorder", "1%:300us"),
    ]);
    for (_, profile) in profiles() {
        let (hosts, cards) = pair(profile, &bad);
        transfer(&hosts[0], &hosts[1], v4(1), 4, 400_000);
        transfer(&hosts[0], &hosts[1], v6(1), 4, 400_000);
        stop(cards);
    }
}

/// A host with so many queues, and a card of two workers with a wire each.
fn two_workers(number: u8, queues: usize, wires: Vec<MemoryWire>) -> (Host, Card) {
    let host = host(number, queues);
    let card = card(wires, &host, Some(ProfileConfig::Gro(Hold::Batch)));
    (host, card)
}

/// All but those that were on their way to another worker when the card was stopped: the last acknowledgements.
fn assert_all_but_few(some: u64, all: u64) {
    assert!((all.saturating_sub(32)..=all).contains(&some), "{some} of {all}");
}

#[test]
fn connections_spread_over_workers_that_share_the_hosts_queue() {
    // Nothing comes over the second worker's wire: all its frames are those that the first hands on.
    let [left, right] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let [idle, _unconnected] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let (receiver, spread) = two_workers(1, 1, vec![left, idle]);
    let sender = host(2, 1);
    let plain = card(vec![right], &sender, None);
    transfer(&receiver, &sender, v4(1), 16, 500_000);
    let [spread, _] = stop([spread, plain]);
    assert_eq!(spread[1].received, 0);
    assert!(spread[0].distributed > 0 && spread[0].distribution_dropped == 0, "{:?}", spread[0]);
    assert_all_but_few(spread[1].engine.packets_in, spread[0].distributed);
    assert!(spread.iter().all(|worker| worker.engine.packets_in > 0 && worker.delivery_dropped == 0));
}

#[test]
fn connections_spread_over_workers_with_a_host_queue_each() {
    let ends = [1, 2].map(|seed| memory_wire(&impaired(&[]), seed, FRAME_LEN).unwrap());
    let [[left, right], [other_left, other_right]] = ends;
    let (receiver, left) = two_workers(1, 2, vec![left, other_left]);
    let (sender, right) = two_workers(2, 2, vec![right, other_right]);
    transfer(&receiver, &sender, v4(1), 16, 500_000);
    transfer(&sender, &receiver, v6(2), 16, 500_000);
    for stats in stop([left, right]) {
        assert!(
            stats.iter().all(|worker| worker.to_host > 0 && worker.distribution_dropped == 0),
            "{stats:?}"
        );
        let received: u64 = stats.iter().map(|worker| worker.received).sum();
        let coalesced: u64 = stats.iter().map(|worker| worker.engine.packets_in).sum();
        assert_all_but_few(coalesced, received);
    }
}

#[test]
fn a_receiver_that_stops_reading_gets_every_byte_in_the_end() {
    let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    let (hosts, cards) = pair(Some(ProfileConfig::Npu(npu)), &impaired(&[]));
    let listener = hosts[0].namespace.run(|| TcpListener::bind((v4(1), PORT)).unwrap()).unwrap();
    let mut stream = hosts[1].namespace.run(|| TcpStream::connect((v4(1), PORT)).unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let sent = pattern(0, 20_000_000);
    let sender = thread::spawn(move || stream.write_all(&sent).unwrap());
    // The window closes, and opens a little now and then.
    let mut received = Vec::new();
    let mut piece = vec![0; 1_000_000];
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(150));
        let read = accepted.read(&mut piece).unwrap();
        received.extend_from_slice(&piece[..read]);
    }
    accepted.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    accepted.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == pattern(0, 20_000_000), "{} bytes", received.len());
    stop(cards);
}

#[test]
fn a_sender_learns_that_its_receiver_was_closed() {
    let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    let (hosts, cards) = pair(Some(ProfileConfig::Npu(npu)), &impaired(&[]));
    let listener = hosts[0].namespace.run(|| TcpListener::bind((v4(1), PORT)).unwrap()).unwrap();
    let mut stream = hosts[1].namespace.run(|| TcpStream::connect((v4(1), PORT)).unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let sender = thread::spawn(move || {
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        let bytes = vec![1; 100_000];
        loop {
            if let Err(error) = stream.write_all(&bytes) {
                return error.kind();
            }
        }
    });
    accepted.read_exact(&mut vec![0; 1_000_000]).unwrap();
    drop(accepted);
    let error = sender.join().unwrap();
    assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    // The card is as good as new.
    drop(listener);
    transfer(&hosts[0], &hosts[1], v4(1), 2, 1_000_000);
    stop(cards);
}

#[test]
fn datagrams_that_the_kernel_leaves_to_be_cut_arrive() {
    let (hosts, cards) = pair(Some(ProfileConfig::Gro(Hold::Batch)), &impaired(&[]));
    for address in [v4(1), v6(1)] {
        let bind = |address: IpAddr| std::net::UdpSocket::bind(SocketAddr::new(address, PORT)).unwrap();
        let receiver = hosts[0].namespace.run(|| bind(address)).unwrap();
        let peer = if address.is_ipv4() { v4(2) } else { v6(2) };
        let sender = hosts[1].namespace.run(|| bind(peer)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // Longer than a packet: the kernel sends IP fragments.
        for len in [1, 1000, 8000] {
            let sent = pattern(1, len);
            sender.send_to(&sent, (address, PORT)).unwrap();
            let mut received = vec![0; 10_000];
            let read = receiver.recv(&mut received).unwrap();
            assert!(received[..read] == sent, "{len} bytes to {address}");
        }
    }
    stop(cards);
}

#[test]
fn a_card_whose_host_interface_is_deleted_says_so_and_ends() {
    let host = host(1, 1);
    let [wire, _peer] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let (ended, end) = mpsc::channel();
    let queues = vec![Queue { wire, observer: None }];
    let card = Card::start(queues, &host.taps, &config(None), move || ended.send(()).unwrap()).unwrap();
    host.namespace
        .run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.delete(&netlink.interface(interface()).unwrap()).unwrap();
        })
        .unwrap();
    end.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(card.remote().stats().is_none());
    let error = card.stop().unwrap_err();
    assert!(matches!(error, CardError::Host(_)), "{error}");
    assert!(error.to_string().starts_with("the host's interface is gone"), "{error}");
}

#[test]
fn what_cannot_work_is_refused() {
    let one = host(1, 1);
    let wires = || {
        memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap().map(|wire| Queue { wire, observer: None }).into()
    };
    let start = |queues, profile| Card::start::<MemoryWire>(queues, &one.taps, &config(profile), || {});
    assert!(matches!(start(vec![], None), Err(CardError::Queues)));
    let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    assert!(matches!(start(wires(), Some(ProfileConfig::Npu(npu))), Err(CardError::ActiveAck)));
    let three = host(2, 3);
    let started = Card::start(wires(), &three.taps, &config(None), || {});
    assert!(matches!(started, Err(CardError::Queues)));
}
