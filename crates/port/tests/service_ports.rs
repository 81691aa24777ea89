//! Service ports of processes that share an address.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Sender};
use std::time::Duration;

use nichrome_port::clock;
use nichrome_port::udp::{
    ManagementSteering, ReceiveBatch, ServicePort, ServicePorts, ServiceUse, SharedPort, Steering, UdpSocket,
};
use std::os::fd::AsFd;

/// A UDP port that is free at every loopback address of these tests.
const PORT: u16 = 4797;

const REQUEST: u16 = 0x10;
const OTHER_REQUEST: u16 = 0x17;
const REPLY: u16 = 0x18;
const OTHER: u16 = 0x14;

const STEERING: Steering = Steering {
    byte: 5,
    bits: 5,
    others: None,
    management: Some(ManagementSteering {
        receiver: 4,
        queue_pair: 1,
        attribute: 36,
        requests: [REQUEST, OTHER_REQUEST],
        service: 56,
        spaces: [0x0002, 0x013F, 0x0106, 0x0111],
        reply: (REPLY, 44),
        others: 48,
    }),
};

const TCP: usize = 2;
const UDP: usize = 3;

fn address(last: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 78, last), PORT))
}

fn port(port: u16) -> ServicePort {
    ServicePort { space: TCP, port }
}

/// Returns a management datagram.
fn management(attribute: u16) -> [u8; 64] {
    let mut bytes = [0xFF; 64];
    bytes[4..8].copy_from_slice(&[0xFF, 0, 0, 1]);
    bytes[36..38].copy_from_slice(&attribute.to_be_bytes());
    bytes
}

fn request(attribute: u16, space: u16, port: u16) -> [u8; 64] {
    let mut bytes = management(attribute);
    bytes[56..58].copy_from_slice(&space.to_be_bytes());
    bytes[58..60].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// A process's service ports, and its socket for requests to ports without a listener.
struct End {
    port: SharedPort,
    services: ServicePorts,
    unclaimed: UdpSocket,
}

impl End {
    fn join(address: SocketAddr) -> Self {
        let port = SharedPort::join(address, STEERING).unwrap();
        let (services, unclaimed) = port.open_services().unwrap();
        Self { port, services, unclaimed }
    }
}

/// Returns the number of datagrams at a socket; waits for the first.
fn received(socket: &UdpSocket) -> usize {
    let until = clock::now() + Duration::from_secs(10);
    assert_eq!(clock::wait([socket.as_fd()], Some(until)), Ok([true]));
    let mut batch = ReceiveBatch::default();
    batch.receive(socket).unwrap();
    batch.arrivals().map(|arrival| arrival.datagrams().count()).sum()
}

/// Sends a datagram and checks that only `socket` receives it.
fn reaches(to: SocketAddr, bytes: &[u8], socket: &UdpSocket) {
    Sender::bind("127.0.0.1:0").unwrap().send_to(bytes, to).unwrap();
    assert_eq!(received(socket), 1, "{bytes:?}");
}

#[test]
fn a_port_is_reserved_by_one_process_until_it_gives_it_back_or_ends() {
    let [first, second] = [(); 2].map(|()| End::join(address(1)));
    assert!(first.services.reserve(port(7)));
    assert!(!second.services.reserve(port(7)));
    assert!(second.services.reserve(ServicePort { space: UDP, port: 7 }));
    assert!(second.services.reserve(port(8)));
    first.services.release(port(7));
    assert!(second.services.reserve(port(7)));
    drop(second);
    assert!(first.services.reserve(port(7)) && first.services.reserve(port(8)));
    // Other addresses have separate ports.
    assert!(End::join(address(2)).services.reserve(port(7)));
}

#[test]
fn requests_reach_the_process_that_listens() {
    let to = address(3);
    let ends = [(); 3].map(|()| End::join(to));
    for (nth, end) in ends.iter().enumerate() {
        let port = port(100 + nth as u16);
        assert!(end.services.reserve(port));
        end.services.listen(port).unwrap();
    }
    for (nth, end) in ends.iter().enumerate() {
        for attribute in [REQUEST, OTHER_REQUEST] {
            reaches(to, &request(attribute, 0x0106, 100 + nth as u16), end.port.socket());
        }
    }
    // A port of another port space, and one without a listener.
    reaches(to, &request(REQUEST, 0x0111, 100), &ends[0].unclaimed);
    reaches(to, &request(REQUEST, 0x0106, 103), &ends[2].unclaimed);
    // A released port.
    ends[1].services.release(port(101));
    reaches(to, &request(REQUEST, 0x0106, 101), ends[1].port.socket());
    ends[1].services.stop_listening(port(101));
    reaches(to, &request(REQUEST, 0x0106, 101), &ends[0].unclaimed);
    reaches(to, &request(REQUEST, 0x0106, 102), ends[2].port.socket());
}

#[test]
fn a_process_that_stops_late_leaves_the_port_to_the_next_one() {
    let to = address(7);
    let [first, second] = [(); 2].map(|()| End::join(to));
    assert!(first.services.reserve(port(7)));
    first.services.listen(port(7)).unwrap();
    first.services.release(port(7));
    assert_eq!(first.services.use_by_others(port(7)), ServiceUse::Free);
    assert!(second.services.reserve(port(7)));
    assert_eq!(first.services.use_by_others(port(7)), ServiceUse::Reserved);
    second.services.listen(port(7)).unwrap();
    assert_eq!(first.services.use_by_others(port(7)), ServiceUse::Listening);
    first.services.stop_listening(port(7));
    reaches(to, &request(REQUEST, 0x0106, 7), second.port.socket());
}

#[test]
fn other_messages_reach_the_slot_in_their_identifier() {
    let to = address(4);
    let ends = [(); 3].map(|()| End::join(to));
    for (slot, end) in ends.iter().enumerate() {
        assert_eq!(end.port.slot(), slot);
        for (attribute, byte) in [(REPLY, 44), (OTHER, 48)] {
            let mut bytes = management(attribute);
            bytes[byte] = (slot as u8) << 3 | 5;
            reaches(to, &bytes, end.port.socket());
        }
        // Datagrams for other queue pairs.
        let mut bytes = management(REQUEST);
        bytes[5..8].copy_from_slice(&[(slot as u8) << 3, 0, 1]);
        bytes[7] += u8::from(slot == 0);
        reaches(to, &bytes, end.port.socket());
    }
}

#[test]
fn the_ports_of_a_process_that_ends_are_free_and_lead_nowhere() {
    let to = address(5);
    let [first, second] = [(); 2].map(|()| End::join(to));
    assert!(second.services.reserve(port(9)));
    second.services.listen(port(9)).unwrap();
    reaches(to, &request(REQUEST, 0x0106, 9), second.port.socket());
    drop(second);
    reaches(to, &request(REQUEST, 0x0106, 9), &first.unclaimed);
    assert!(first.services.reserve(port(9)));
    first.services.listen(port(9)).unwrap();
    reaches(to, &request(REQUEST, 0x0106, 9), first.port.socket());
}

#[test]
fn two_thousand_ports_are_listened_at() {
    let to = address(6);
    let ends = [(); 2].map(|()| End::join(to));
    for number in 1..=2000 {
        let end = &ends[usize::from(number % 2)];
        assert!(end.services.reserve(port(number)));
        end.services.listen(port(number)).unwrap();
    }
    for number in [1, 2, 255, 256, 509, 510, 511, 512, 1999, 2000] {
        reaches(to, &request(REQUEST, 0x0106, number), ends[usize::from(number % 2)].port.socket());
    }
    for number in [0, 2001] {
        reaches(to, &request(REQUEST, 0x0106, number), &ends[0].unclaimed);
    }
}
