//! UDP sockets with the kernel of this machine.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, BufRead, BufReader, IoSliceMut, Lines};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nichrome_port::udp::{
    Envelope, PacketReceiver, ReceiveBatch, SendBatch, SendReport, SharedPort, Steering, UdpError, UdpSocket,
};
use nichrome_port::{
    Device, MAX_RECEIVE, Netlink, NetworkNamespace, Offloads, Tap, clock, gain_network_admin,
};
use nichrome_wire::{IpProtocol, Ipv4Repr, LinkHeader, MacAddr, TrafficClass};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    socket_with,
};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_uid;

const PORT: u16 = 14_791;
const STEERING: Steering = Steering { byte: 5, bits: 5, others: None, management: None };

/// A received datagram: sender, traffic class, bytes.
type Seen = (SocketAddr, TrafficClass, Vec<u8>);

/// Time limit: longer than a datagram takes, or the start of a process by another test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Receives until there are `count` datagrams, or [`PATIENCE`] is over.
fn received(socket: &UdpSocket, count: usize) -> Vec<Seen> {
    let mut batch = ReceiveBatch::default();
    let mut seen = Vec::new();
    let until = clock::now() + PATIENCE;
    while seen.len() < count && clock::now() < until {
        batch.receive(socket).unwrap();
        for arrival in batch.arrivals() {
            let datagrams = arrival.datagrams();
            seen.extend(datagrams.map(|bytes| (arrival.peer, arrival.traffic_class, bytes.to_vec())));
        }
        if seen.len() < count {
            clock::wait([socket.as_fd()], Some(until)).unwrap();
        }
    }
    seen
}

fn envelope(peer: SocketAddr) -> Envelope {
    Envelope { peer, traffic_class: TrafficClass(0), hop_limit: None }
}

/// Sends `bytes` as datagrams of `size` bytes.
fn send(socket: &UdpSocket, envelope: Envelope, bytes: &[u8], size: usize) -> SendReport {
    let mut batch = SendBatch::default();
    batch.room().unwrap()[..bytes.len()].copy_from_slice(bytes);
    batch.stage(envelope, bytes.len(), size);
    batch.send(socket)
}

fn numbered(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

fn carries_datagrams_of_all_sizes(a: &UdpSocket, b: &UdpSocket) {
    let bytes = numbered(40_000);
    for (len, size) in [(1, 1), (4160, 4160), (40_000, 4160), (640, 10)] {
        let envelope = Envelope { traffic_class: TrafficClass(0b1010_0010), ..envelope(b.local()) };
        let report = send(a, envelope, &bytes[..len], size);
        let expected: Vec<Seen> = bytes[..len]
            .chunks(size)
            .map(|bytes| (a.local(), TrafficClass(0b1010_0010), bytes.to_vec()))
            .collect();
        assert_eq!(report, SendReport { sent: expected.len() as u64, ..SendReport::default() });
        assert_eq!(received(b, expected.len()), expected);
    }
}

#[test]
fn datagrams_arrive_as_they_were_sent_over_ipv4() {
    let [a, b] = [(); 2].map(|()| UdpSocket::open_loopback(PORT).unwrap());
    carries_datagrams_of_all_sizes(&a, &b);
    assert!(a.max_segments(4160) > 1 && a.max_segments(65_000) == 1 && a.max_segments(1) == 64);
}

#[test]
fn datagrams_arrive_as_they_were_sent_over_ipv6() {
    gain_network_admin().unwrap();
    let over_ipv6 = || {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.interface("lo".parse().unwrap()).unwrap();
        netlink.set_up(&lo).unwrap();
        let addresses = [1, 2].map(|last| IpAddr::V6(Ipv6Addr::new(0xFD09, 0, 0, 0, 0, 0, 0, last)));
        let [a, b] = addresses.map(|ip| {
            netlink.add_address(&lo, ip, 128).unwrap();
            UdpSocket::open(SocketAddr::new(ip, PORT)).unwrap()
        });
        carries_datagrams_of_all_sizes(&a, &b);
    };
    NetworkNamespace::new().unwrap().run(over_ipv6).unwrap();
}

#[test]
fn a_batch_goes_to_several_receivers_and_stops_at_its_size() {
    let a = UdpSocket::open_loopback(PORT).unwrap();
    let others = [(); 3].map(|()| UdpSocket::open_loopback(PORT).unwrap());
    let mut batch = SendBatch::default();
    let mut staged = 0;
    while let Some(room) = batch.room() {
        room[..3].copy_from_slice(&[staged as u8; 3]);
        batch.stage(envelope(others[staged % 3].local()), 3, 3);
        staged += 1;
    }
    assert_eq!(batch.staged().count(), staged);
    batch.stage(envelope(a.local()), 3, 3);
    assert_eq!(batch.staged().count(), staged, "there is no room");
    assert_eq!(batch.send(&a).sent, staged as u64);
    assert!(batch.is_empty());
    for (nth, other) in others.iter().enumerate() {
        let expected =
            (nth..staged).step_by(3).map(|number| (a.local(), TrafficClass(0), vec![number as u8; 3]));
        let expected: Vec<Seen> = expected.collect();
        assert_eq!(received(other, expected.len()), expected);
    }
}

#[test]
fn refused_datagrams_are_counted_and_the_others_are_sent() {
    let [a, b] = [(); 2].map(|()| UdpSocket::open_loopback(PORT).unwrap());
    let mut batch = SendBatch::default();
    for peer in [b.local(), "0.0.0.1:9".parse().unwrap(), b.local()] {
        batch.room().unwrap()[..2].copy_from_slice(&[1, 2]);
        batch.stage(envelope(peer), 2, 1);
    }
    let report = batch.send(&a);
    assert_eq!((report.sent, report.refused, report.error.is_some(), report.is_full), (4, 2, true, false));
    assert_eq!(received(&b, 4).len(), 4);
}

#[test]
fn used_and_foreign_addresses_are_refused() {
    let held = UdpSocket::open_loopback(PORT).unwrap();
    assert!(matches!(UdpSocket::open(held.local()), Err(UdpError::Taken(_))));
    let foreign = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), PORT));
    assert!(matches!(UdpSocket::open(foreign), Err(UdpError::NotLocal(_))));
}

/// Creates a TAP interface, whose frames are those on the wire, with an address and a neighbour in its
/// network.
fn wire() -> (Tap, [IpAddr; 2]) {
    let addresses = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 9, 0, last)));
    let tap = Tap::new("tap0".parse().unwrap(), Offloads::None).unwrap();
    let netlink = Netlink::open().unwrap();
    let interface = netlink.interface("tap0".parse().unwrap()).unwrap();
    netlink.silence(&interface).unwrap();
    netlink.set_up(&interface).unwrap();
    netlink.wait_until_running(&interface).unwrap();
    netlink.add_address(&interface, addresses[0], 24).unwrap();
    netlink.add_neighbour(&interface, addresses[1], MacAddr([2, 0, 0, 0, 0, 2])).unwrap();
    (tap, addresses)
}

/// Returns identification, DF, time to live and traffic class of the next `count` UDP packets on the
/// interface.
fn packets_on(tap: &Tap, count: usize) -> Vec<(u16, bool, u8, TrafficClass)> {
    let mut buffer = vec![0; MAX_RECEIVE];
    let mut seen = Vec::new();
    let until = clock::now() + PATIENCE;
    while seen.len() < count && clock::now() < until {
        clock::wait([tap.as_fd()], Some(until)).unwrap();
        while let Some(received) = tap.receive(&mut buffer).unwrap() {
            let link = LinkHeader::new(received.frame).unwrap();
            if let Ok((ip, _)) = Ipv4Repr::parse(link.payload())
                && ip.protocol == IpProtocol::UDP
            {
                seen.push((ip.ident, ip.dont_fragment, ip.ttl, ip.tos));
            }
        }
    }
    seen
}

#[test]
fn identification_is_zero_and_counts_the_segments_of_a_send() {
    gain_network_admin().unwrap();
    let watch = || {
        let (tap, [ours, theirs]) = wire();
        let socket = UdpSocket::open(SocketAddr::new(ours, PORT)).unwrap();
        let envelope = Envelope {
            traffic_class: TrafficClass(0b10),
            hop_limit: Some(3),
            ..envelope(SocketAddr::new(theirs, PORT))
        };
        for (len, expected) in [(1000, 1), (3500, 4), (1000, 1)] {
            assert_eq!(send(&socket, envelope, &numbered(len), 1000).sent, expected);
            let idents = 0..expected as u16;
            let expected: Vec<_> = idents.map(|ident| (ident, true, 3, TrafficClass(0b10))).collect();
            assert_eq!(packets_on(&tap, expected.len()), expected);
        }
    };
    NetworkNamespace::new().unwrap().run(watch).unwrap();
}

/// Checks that an address becomes free. While another test starts a process, that process holds the
/// descriptors of this one until it executes its program.
fn assert_gets_free(address: SocketAddr) {
    let until = clock::now() + PATIENCE;
    while let Err(error) = UdpSocket::open(address) {
        assert!(matches!(error, UdpError::Taken(_)) && clock::now() < until, "{error}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a datagram for the process of a slot.
fn for_slot(slot: usize) -> [u8; 8] {
    [0, 0, 0, 0, 0, (slot as u8) << 3, 0, slot as u8]
}

#[test]
fn datagrams_reach_the_slot_that_they_name_while_processes_start_and_end() {
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 77, 1), PORT));
    let sender = UdpSocket::open_loopback(PORT).unwrap();
    let join = || SharedPort::join(address, STEERING).unwrap();
    let reaches = |port: &SharedPort| {
        let datagram = for_slot(port.slot());
        send(&sender, envelope(address), &datagram, 8);
        assert_eq!(received(port.socket(), 1)[0].2, datagram);
    };
    let mut ports = [(); 4].map(|()| Some(join()));
    assert_eq!(ports.each_ref().map(|port| port.as_ref().unwrap().slot()), [0, 1, 2, 3]);
    ports.iter().flatten().for_each(reaches);
    // Ends the first process, which opened the sockets, and one in the middle.
    ports[0] = None;
    ports[2] = None;
    ports.iter().flatten().for_each(reaches);
    // A slot's new owner must not receive datagrams for its previous owner.
    send(&sender, envelope(address), &for_slot(0), 8);
    ports[0] = Some(join());
    assert_eq!(ports[0].as_ref().unwrap().slot(), 0);
    ports.iter().flatten().for_each(reaches);
    ports = [(); 4].map(|()| None);
    assert!(ports.iter().all(Option::is_none));
    assert_gets_free(address);
}

#[test]
fn the_next_process_of_a_slot_receives_after_one_that_received_packets() {
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 77, 6), PORT));
    let sender = UdpSocket::open_loopback(PORT).unwrap();
    let keeps = SharedPort::join(address, STEERING).unwrap();
    let packets = SharedPort::join(address, STEERING).unwrap();
    let slot = packets.slot();
    drop(PacketReceiver::open(packets.socket()).unwrap());
    drop(packets);
    let next = SharedPort::join(address, STEERING).unwrap();
    assert_eq!(next.slot(), slot);
    send(&sender, envelope(address), &[for_slot(slot); 3].concat(), 8);
    clock::wait([next.socket().as_fd()], Some(clock::now() + PATIENCE)).unwrap();
    let mut batch = ReceiveBatch::default();
    batch.receive(next.socket()).unwrap();
    let counts: Vec<_> = batch.arrivals().map(|arrival| arrival.datagrams().count()).collect();
    assert_eq!(counts, [3], "datagrams of each received message");
    drop(keeps);
}

const SHARED: &str = "NICHROME_SHARED_ADDRESS";

/// A process that shares an address: prints its slot, and each datagram that it receives.
struct Sharer {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Sharer {
    fn start(address: SocketAddr) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "a_process_that_shares_an_address"])
            .env(SHARED, address.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, output }
    }

    /// Returns the next number that it prints after `word`.
    fn next_number(&mut self, word: &str) -> usize {
        let number = |line: io::Result<String>| line.unwrap().strip_prefix(word)?.parse().ok();
        self.output.find_map(number).unwrap()
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The program that a [`Sharer`] runs.
#[test]
#[ignore = "run by killed_processes_leave_the_others_and_their_slots_alone"]
fn a_process_that_shares_an_address() {
    let address = std::env::var(SHARED).unwrap().parse().unwrap();
    let port = SharedPort::join(address, STEERING).unwrap();
    println!("\nslot {}", port.slot());
    loop {
        let [(_, _, bytes)] = &received(port.socket(), 1)[..] else { return };
        println!("got {}", bytes[7]);
    }
}

#[test]
fn killed_processes_leave_the_others_and_their_slots_alone() {
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 77, 3), PORT));
    let sender = UdpSocket::open_loopback(PORT).unwrap();
    let mut processes = Vec::new();
    for slot in 0..3 {
        processes.push(Sharer::start(address));
        assert_eq!(processes[slot].next_number("slot "), slot);
    }
    let reaches = |slot: usize, process: &mut Sharer| {
        send(&sender, envelope(address), &for_slot(slot), 8);
        assert_eq!(process.next_number("got "), slot);
    };
    // The first process opened the sockets.
    processes.remove(0).kill();
    reaches(1, &mut processes[0]);
    reaches(2, &mut processes[1]);
    let mut successor = Sharer::start(address);
    assert_eq!(successor.next_number("slot "), 0);
    reaches(0, &mut successor);
    reaches(2, &mut processes[1]);
    processes.into_iter().chain([successor]).for_each(Sharer::kill);
    assert_gets_free(address);
}

#[test]
fn an_address_has_so_many_slots_and_is_not_shared_with_others() {
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 77, 2), PORT));
    let steering = Steering { bits: 1, ..STEERING };
    let alone = UdpSocket::open(address).unwrap();
    assert!(matches!(SharedPort::join(address, steering), Err(UdpError::Taken(_))));
    drop(alone);
    assert_gets_free(address);
    let both = [(); 2].map(|()| SharedPort::join(address, steering).unwrap());
    assert!(matches!(SharedPort::join(address, steering), Err(UdpError::NoSlot { slots: 2, .. })));
    assert!(matches!(UdpSocket::open(address), Err(UdpError::Taken(_))));
    drop(both);
    assert_gets_free(address);
    assert_eq!(SharedPort::join(address, steering).unwrap().slot(), 0);
}

/// A single thread can change its user: its sockets then belong to that user.
#[test]
fn a_shared_address_is_not_given_to_another_user() {
    let nobody = Uid::from_raw(65_534);
    assert!(geteuid().is_root(), "only root can become another user: run the tests as root");
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 77, 5), PORT));
    let ours = SharedPort::join(address, STEERING).unwrap();
    let as_nobody = || {
        set_thread_uid(nobody).unwrap();
        let refused = SharedPort::join(address, STEERING).unwrap_err();
        assert!(matches!(refused, UdpError::Taken(_)), "{refused}");
        // A process of another user is passed no descriptors.
        let name = SocketAddrUnix::new_abstract_name(format!("nichrome-udp/{address}").as_bytes()).unwrap();
        let connection =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&connection, &name).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(67))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&connection, &mut [IoSliceMut::new(&mut [0; 8])], &mut control, RecvFlags::empty());
        assert_eq!((received.unwrap().bytes, control.drain().count()), (0, 0));
    };
    thread::scope(|scope| scope.spawn(as_nobody).join()).unwrap();
    assert_eq!(SharedPort::join(address, STEERING).unwrap().slot(), 1);
    drop(ours);
}
