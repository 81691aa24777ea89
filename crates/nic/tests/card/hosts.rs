//! The hosts of the tests: kernels behind cards, with a wire between them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nichrome_lro::{ActiveAck, Config, Hold, NetfpgaConfig, NpuConfig, ProfileConfig};
use nichrome_nic::{
    Card, CardConfig, CardError, MemoryWire, Queue, QueueStats, memory_directions, memory_wire,
};
use nichrome_port::{
    Device, InterfaceName, Netlink, NetworkNamespace, Offloads, Settings, Tap, gain_network_admin,
};
use nichrome_wan::Impairments;
use nichrome_wire::MacAddr;

use crate::ledger::Ledger;

pub(crate) const FRAME_LEN: usize = 1514;
pub(crate) const PORT: u16 = 5001;

/// Creates the user namespace of an unprivileged user. The process must still have one thread.
#[ctor::ctor(unsafe)]
fn become_able_at_start() {
    // If this fails, the test that needs a namespace reports the reason.
    let _ = gain_network_admin();
}

type HostQueue = Arc<dyn Device + Send + Sync>;

/// A host: a kernel's network stack behind a TAP device with several queues.
pub(crate) struct Host {
    pub(crate) namespace: NetworkNamespace,
    pub(crate) taps: Vec<HostQueue>,
}

pub(crate) fn interface() -> InterfaceName {
    "host0".parse().unwrap()
}

pub(crate) fn v4(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 7, 0, number).into()
}

pub(crate) fn v6(number: u8) -> IpAddr {
    Ipv6Addr::new(0xFD07, 0, 0, 0, 0, 0, 0, u16::from(number)).into()
}

pub(crate) fn host(number: u8, queues: usize) -> Host {
    gain_network_admin().unwrap();
    let namespace = NetworkNamespace::new().unwrap();
    let taps = namespace
        .run(|| {
            let taps = Tap::with_queues(interface(), Offloads::All, queues).unwrap();
            let netlink = Netlink::open().unwrap();
            let interface = netlink.interface(interface()).unwrap();
            netlink
                .configure(&interface, Settings { mac: Some(mac(number)), ..Settings::default() })
                .unwrap();
            netlink.silence(&interface).unwrap();
            netlink.set_up(&interface).unwrap();
            netlink.wait_until_running(&interface).unwrap();
            for (address, prefix_len) in [(v4(number), 24), (v6(number), 64)] {
                netlink.add_address(&interface, address, prefix_len).unwrap();
            }
            add_neighbours(&netlink, number);
            taps
        })
        .unwrap();
    Host { namespace, taps: taps.into_iter().map(|tap| Arc::new(tap) as HostQueue).collect() }
}

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 7, number])
}

/// Adds the other host's MAC address to the host with this number. The kernel forgets it when the interface
/// goes down.
pub(crate) fn add_neighbours(netlink: &Netlink, number: u8) {
    let interface = netlink.interface(interface()).unwrap();
    let peer = 3 - number;
    for address in [v4(peer), v6(peer)] {
        netlink.add_neighbour(&interface, address, mac(peer)).unwrap();
    }
}

pub(crate) fn config(profile: Option<ProfileConfig>) -> CardConfig {
    CardConfig { name: "card", engine: Config::default(), profile, busy_poll: false }
}

pub(crate) fn card(wires: Vec<MemoryWire>, host: &Host, profile: Option<ProfileConfig>) -> Card {
    let queues = wires.into_iter().map(|wire| Queue { wire, observer: None }).collect();
    Card::start(queues, &host.taps, &config(profile), || {}).unwrap()
}

pub(crate) fn impaired(settings: &[(&str, &str)]) -> [Impairments; 2] {
    let mut impairments = Impairments::default();
    for (name, value) in settings {
        match *name {
            "mtu" => impairments.mtu = Some(value.parse().unwrap()),
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

pub(crate) fn profiles() -> [(&'static str, Option<ProfileConfig>); 5] {
    let npu = |active_ack| Some(ProfileConfig::Npu(NpuConfig { active_ack, ..NpuConfig::default() }));
    [
        ("none", None),
        ("gro", Some(ProfileConfig::Gro(Hold::Batch))),
        ("netfpga", Some(ProfileConfig::Netfpga(NetfpgaConfig::with_timer(Duration::from_micros(50))))),
        ("npu", npu(ActiveAck::Off)),
        ("npu, active ACK", npu(ActiveAck::Safe)),
    ]
}

/// Returns bytes that depend on connection and position.
pub(crate) fn pattern(connection: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) ^ (at >> 9) ^ (connection * 7)) as u8).collect()
}

/// Sends `len` bytes over each of `connections` connections at once, from `sender` to `receiver`, and checks
/// them.
pub(crate) fn transfer(receiver: &Host, sender: &Host, address: IpAddr, connections: usize, len: usize) {
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

/// Creates two hosts with a card each of the same profile, and records the second host's connections to the
/// first in a ledger.
pub(crate) fn observed_pair(
    profile: Option<ProfileConfig>,
    impairments: &[Impairments; 2],
    ledger: &Ledger,
) -> ([Host; 2], [Card; 2]) {
    let hosts = [host(1, 1), host(2, 1)];
    let [left, right] = memory_wire(impairments, 1, FRAME_LEN).unwrap();
    let card = |wire, observer, host: &Host| {
        let queue = Queue { wire, observer: Some(observer) };
        Card::start(vec![queue], &host.taps, &config(profile), || {}).unwrap()
    };
    let cards = [card(left, ledger.of_receiver(), &hosts[0]), card(right, ledger.of_sender(), &hosts[1])];
    (hosts, cards)
}

/// Creates two hosts with a card each of the same profile.
pub(crate) fn pair(profile: Option<ProfileConfig>, impairments: &[Impairments; 2]) -> ([Host; 2], [Card; 2]) {
    let hosts = [host(1, 1), host(2, 1)];
    let [left, right] = memory_wire(impairments, 1, FRAME_LEN).unwrap();
    let cards = [card(vec![left], &hosts[0], profile), card(vec![right], &hosts[1], profile)];
    (hosts, cards)
}

/// As [`pair`], with a worker for each direction instead of each host.
pub(crate) fn directions(
    profile: Option<ProfileConfig>,
    impairments: &[Impairments; 2],
) -> Result<([Host; 2], [Card; 2]), CardError> {
    let hosts = [host(1, 1), host(2, 1)];
    let [to_left, to_right] = memory_directions(impairments, 1, FRAME_LEN).unwrap();
    let [left, right] = hosts.each_ref().map(|host| &host.taps[0]);
    let card = |from: &HostQueue, to: &HostQueue, wire| {
        let queue = Queue { wire, observer: None };
        Card::between([Arc::clone(from), Arc::clone(to)], queue, &config(profile), || {})
    };
    let cards = [card(right, left, to_left)?, card(left, right, to_right)?];
    Ok((hosts, cards))
}

pub(crate) fn stop(cards: [Card; 2]) -> [Vec<QueueStats>; 2] {
    cards.map(|card| card.stop().unwrap())
}
