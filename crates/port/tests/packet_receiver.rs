//! Datagrams received as packets (AF_PACKET), from interfaces of several kinds.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use nichrome_port::udp::{PacketReceiver, PacketReceiverError, UdpSocket};
use nichrome_port::{Device, Netlink, NetworkNamespace, Offloads, Tap, clock, gain_network_admin};
use nichrome_wire::VirtioNetHeader;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl, opcode};

const PORT: u16 = 14_791;
const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Joins a user namespace. The process must still have one thread.
#[ctor::ctor(unsafe)]
fn become_able_at_start() {
    // If this fails, the test that needs a namespace reports the reason.
    let _ = gain_network_admin();
}

/// Runs commands of ip(8) in the network namespace of this thread.
fn ip(commands: &[&str]) {
    for command in commands {
        assert!(Command::new("ip").args(command.split(' ')).status().unwrap().success(), "ip {command}");
    }
}

/// Creates the tun interface `tun0` with the link type `link_type` (an `ARPHRD_` number, linux/if_arp.h), an
/// address and no header.
fn tun(link_type: u16) -> OwnedFd {
    const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);
    const TUNSETLINK: Opcode = opcode::write::<libc::c_int>(b'T', 205);
    let fd = rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut request = [0u8; size_of::<libc::ifreq>()];
    request[..4].copy_from_slice(b"tun0");
    request[libc::IFNAMSIZ..][..2].copy_from_slice(&((libc::IFF_TUN | libc::IFF_NO_PI) as u16).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes an ifreq, which is as long as the array.
    unsafe { ioctl(&fd, Updater::<TUNSETIFF, _>::new(&mut request)) }.unwrap();
    // SAFETY: the argument of TUNSETLINK is the number.
    unsafe { ioctl(&fd, IntegerSetter::<TUNSETLINK>::new_usize(link_type.into())) }.unwrap();
    ip(&["address add 10.9.0.1/24 dev tun0", "link set tun0 up"]);
    fd
}

/// Opens a receiver at [`OURS`], an address of this namespace.
fn receiver() -> (UdpSocket, PacketReceiver) {
    let socket = UdpSocket::open(SocketAddr::from((OURS, PORT))).unwrap();
    let receiver = PacketReceiver::open(&socket).unwrap();
    (socket, receiver)
}

/// Returns identification and bytes of the datagrams that arrive up to a datagram that is `last`, and for a
/// moment after.
fn received(receiver: &mut PacketReceiver, last: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut datagrams = Vec::new();
    let mut until = clock::now() + Duration::from_secs(5);
    while clock::now() < until {
        while let Some(mut arrival) = receiver.receive().unwrap() {
            assert_eq!(arrival.peer, SocketAddr::from((THEIRS, PORT)));
            datagrams.extend(arrival.datagrams().map(|(ident, bytes)| (ident, bytes.to_vec())));
            if datagrams.last().is_some_and(|(_, bytes)| bytes == last) {
                until = clock::now() + Duration::from_millis(50);
            }
        }
        clock::wait([receiver.as_fd()], Some(until)).unwrap();
    }
    datagrams
}

/// Builds an IPv4 packet with a datagram from [`THEIRS`] to [`OURS`], without checksums.
fn packet(ident: u16, payload: &[u8]) -> Vec<u8> {
    let [total, len] = [28, 8].map(|headers| (headers + payload.len() as u16).to_be_bytes());
    let ident = ident.to_be_bytes();
    let start = [0x45, 0, total[0], total[1], ident[0], ident[1], 0, 0, 64, 17, 0, 0];
    let ports = [PORT.to_be_bytes(), PORT.to_be_bytes()];
    [&start[..], &THEIRS.octets(), &OURS.octets(), ports.as_flattened(), &len, &[0, 0], payload].concat()
}

/// A peer in another namespace, which is connected by a veth pair, sends three datagrams. `here` and `there`
/// are commands of ip(8) that set up the interfaces over `near0` and `far0`, to which the addresses belong.
fn each_datagram_arrives_once(here: &[&str], there: &[&str]) {
    gain_network_admin().unwrap();
    let [near, far] = [(); 2].map(|()| NetworkNamespace::new().unwrap());
    far.run(|| {
        Netlink::open().unwrap().add_veth("far0".parse().unwrap(), "near0".parse().unwrap(), &near).unwrap();
        ip(&["link set far0 up"]);
        ip(there);
    })
    .unwrap();
    near.run(|| {
        ip(&["link set near0 up"]);
        ip(here);
        let (_socket, mut receiver) = receiver();
        far.run(|| {
            let sender = std::net::UdpSocket::bind((THEIRS, PORT)).unwrap();
            for payload in [b"1", b"2", b"3"] {
                sender.send_to(payload, (OURS, PORT)).unwrap();
            }
        })
        .unwrap();
        let datagrams: Vec<_> = received(&mut receiver, b"3").into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(datagrams, [b"1", b"2", b"3"]);
        assert_eq!(receiver.dropped_offloads(), 0);
    })
    .unwrap();
}

#[test]
fn a_datagram_arrives_once_through_a_bridge() {
    each_datagram_arrives_once(
        &[
            "link add br0 type bridge",
            "link set near0 master br0",
            "address add 10.9.0.1/24 dev br0",
            "link set br0 up",
        ],
        &["address add 10.9.0.2/24 dev far0"],
    );
}

#[test]
fn a_datagram_arrives_at_an_address_of_another_interface_than_it_comes_from() {
    each_datagram_arrives_once(
        &["address add 10.9.0.3/24 dev near0", "address add 10.9.0.1/32 dev lo", "link set lo up"],
        &["address add 10.9.0.2/24 dev far0"],
    );
}

/// A tun interface, as WireGuard's, has packets without a link-layer header.
#[test]
fn datagrams_arrive_from_an_interface_without_a_link_layer_header() {
    gain_network_admin().unwrap();
    let on_it = || {
        let tun = tun(libc::ARPHRD_NONE);
        let (_socket, mut receiver) = receiver();
        for (ident, payload) in [(7, b"one"), (8, b"two")] {
            rustix::io::write(&tun, &packet(ident, payload)).unwrap();
        }
        assert_eq!(received(&mut receiver, b"two"), [(7, b"one".to_vec()), (8, b"two".to_vec())]);
    };
    NetworkNamespace::new().unwrap().run(on_it).unwrap();
}

#[test]
fn an_interface_with_an_unknown_link_layer_header_is_refused() {
    gain_network_admin().unwrap();
    let refused = || {
        let _tun = tun(libc::ARPHRD_INFINIBAND);
        let socket = UdpSocket::open(SocketAddr::from((OURS, PORT))).unwrap();
        PacketReceiver::open(&socket).unwrap_err()
    };
    let refused = NetworkNamespace::new().unwrap().run(refused).unwrap();
    assert!(
        matches!(refused, PacketReceiverError::LinkType { link_type: libc::ARPHRD_INFINIBAND, .. }),
        "{refused}"
    );
}

/// Linux 6.2 and later describe UDP_SEGMENT, but not fragmentation of UDP by the card, which drivers of
/// virtual machines request.
#[test]
fn packets_whose_offloads_cannot_be_described_are_counted() {
    gain_network_admin().unwrap();
    let on_it = || {
        let tap = Tap::new("tap0".parse().unwrap(), Offloads::All).unwrap();
        ip(&["address add 10.9.0.1/24 dev tap0", "link set tap0 up"]);
        let (_socket, mut receiver) = receiver();
        let mac = Netlink::open().unwrap().interface("tap0".parse().unwrap()).unwrap().mac.unwrap();
        let ethernet = [&mac.0[..], &[2, 0, 0, 0, 0, 2], &[8, 0]].concat();
        let fragmented = VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: VirtioNetHeader::GSO_UDP,
            hdr_len: 42,
            gso_size: 1472,
            csum_start: 34,
            csum_offset: 6,
        };
        for (virtio, payload) in [(fragmented, &[7; 4000][..]), (VirtioNetHeader::default(), b"last")] {
            let parts = [&virtio.to_bytes()[..], &ethernet, &packet(9, payload)].map(<[u8]>::to_vec);
            tap.send(&parts.each_ref().map(|part| IoSlice::new(part))).unwrap();
        }
        assert_eq!(received(&mut receiver, b"last"), [(9, b"last".to_vec())]);
        assert_eq!(receiver.dropped_offloads(), 1);
    };
    NetworkNamespace::new().unwrap().run(on_it).unwrap();
}
