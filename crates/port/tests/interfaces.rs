//! TAP devices, packet sockets, netlink and namespaces with the kernel of this machine.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use nichrome_port::udp::{interface_address, local_addresses};
use nichrome_port::{
    Device, Interface, InterfaceName, MAX_RECEIVE, Netlink, NetlinkError, NetworkNamespace, Offloads,
    PacketSocket, Settings, Tap, clock, gain_network_admin, uninterrupted,
};
use nichrome_wire::{MacAddr, VirtioNetHeader};

const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const V4: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))];
const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xFD09, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xFD09, 0, 0, 0, 0, 0, 0, 2)),
];

/// Creates the user namespace of an unprivileged user. The process must still have one thread.
#[ctor::ctor(unsafe)]
fn become_able_at_start() {
    // If this fails, the test that needs a namespace reports the reason.
    let _ = gain_network_admin();
}

fn name(name: &str) -> InterfaceName {
    name.parse().unwrap()
}

fn namespace() -> NetworkNamespace {
    gain_network_admin().unwrap();
    NetworkNamespace::new().unwrap()
}

/// Sets up an interface in this thread's namespace, with addresses and a neighbour.
fn configured(called: &str) -> Interface {
    let netlink = Netlink::open().unwrap();
    let interface = netlink.interface(name(called)).unwrap();
    let settings = Settings { mac: Some(HERE), mtu: Some(1400), queue_len: Some(5000) };
    netlink.configure(&interface, settings).unwrap();
    netlink.silence(&interface).unwrap();
    netlink.set_up(&interface).unwrap();
    netlink.wait_until_running(&interface).unwrap();
    for (ours, theirs, prefix_len) in [(V4[0], V4[1], 24), (V6[0], V6[1], 64)] {
        netlink.add_address(&interface, ours, prefix_len).unwrap();
        netlink.add_neighbour(&interface, theirs, THERE).unwrap();
    }
    netlink.interface(name(called)).unwrap()
}

/// Returns the next frame of a device, behind its virtio_net_hdr; fails after a few seconds.
fn next_frame(device: &impl Device) -> Vec<u8> {
    let mut buffer = vec![0; MAX_RECEIVE];
    let until = clock::now() + Duration::from_secs(5);
    while clock::now() < until {
        clock::wait([device.as_fd()], Some(until)).unwrap();
        if let Some(received) = device.receive(&mut buffer).unwrap() {
            return [&received.virtio.to_bytes()[..], received.frame].concat();
        }
    }
    panic!("no frame");
}

#[test]
fn an_interface_becomes_what_it_is_configured_to_be() {
    namespace()
        .run(|| {
            let _tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            let interface = configured("tap0");
            assert_eq!((interface.mac, interface.mtu, interface.up), (Some(HERE), 1400, true));
        })
        .unwrap();
}

#[test]
fn an_interface_that_is_found_by_another_name_has_its_own() {
    namespace()
        .run(|| {
            let _tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            let words = ["link", "property", "add", "dev", "tap0", "altname", "other0"];
            assert!(Command::new("ip").args(words).status().unwrap().success());
            let netlink = Netlink::open().unwrap();
            assert_eq!(netlink.interface(name("other0")).unwrap(), netlink.interface(name("tap0")).unwrap());
        })
        .unwrap();
}

#[test]
fn an_alternative_name_is_of_one_interface_and_ends_with_it() {
    namespace()
        .run(|| {
            let [first, second] =
                ["tap0", "tap1"].map(|called| Tap::new(name(called), Offloads::None).unwrap());
            let netlink = Netlink::open().unwrap();
            let [one, other] = ["tap0", "tap1"].map(|called| netlink.interface(name(called)).unwrap());
            let alternative = "longer-than-names-of-interfaces-are";
            assert_eq!(netlink.name_of_alternative(alternative).unwrap(), None);
            assert!(netlink.add_alternative_name(&one, alternative).unwrap());
            assert!(!netlink.add_alternative_name(&other, alternative).unwrap());
            assert_eq!(netlink.name_of_alternative(alternative).unwrap(), Some(name("tap0")));
            drop(first);
            assert!(netlink.add_alternative_name(&other, alternative).unwrap());
            assert_eq!(netlink.name_of_alternative(alternative).unwrap(), Some(name("tap1")));
            drop(second);
        })
        .unwrap();
}

#[test]
fn an_interface_is_removed_with_its_device_and_a_missing_one_is_named() {
    namespace()
        .run(|| {
            let netlink = Netlink::open().unwrap();
            drop(Tap::new(name("tap0"), Offloads::All).unwrap());
            let error = netlink.interface(name("tap0")).unwrap_err();
            assert!(matches!(error, NetlinkError::NoInterface(_)), "{error}");
            assert!(error.to_string().starts_with("there is no interface called tap0"));
        })
        .unwrap();
}

#[test]
fn a_name_that_is_taken_is_refused() {
    namespace()
        .run(|| {
            let _tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            let error = Tap::new(name("tap0"), Offloads::All).unwrap_err().to_string();
            assert!(error.starts_with("cannot create the TAP interface tap0"), "{error}");
        })
        .unwrap();
}

/// The kernel lets a program attach to an interface with several queues, and to one that outlives its
/// program.
#[test]
fn no_queue_is_one_of_another_programs_interface() {
    namespace()
        .run(|| {
            let taps = Tap::with_queues(name("tap0"), Offloads::All, 2).unwrap();
            assert_eq!(taps.len(), 2);
            let error = Tap::with_queues(name("tap0"), Offloads::All, 2).unwrap_err().to_string();
            assert!(error.starts_with("cannot create the TAP interface tap0"), "{error}");
            let words = ["tuntap", "add", "dev", "tap1", "mode", "tap", "vnet_hdr"];
            assert!(Command::new("ip").args(words).status().unwrap().success());
            assert!(Tap::new(name("tap1"), Offloads::All).is_err());
        })
        .unwrap();
}

/// The kernel takes a percent sign for a template (`tap%d`), and bytes for characters of Latin-1, one of
/// which is a space.
#[test]
fn an_interface_of_every_valid_name_has_that_name() {
    let names = (1..256).filter_map(char::from_u32).map(|c| format!("a{c}b"));
    let others = ["tap%d", "Рейс", "ж", "eth0.7", "...", "abcdefghijklmno"].map(String::from);
    namespace()
        .run(|| {
            let netlink = Netlink::open().unwrap();
            for name in names.chain(others).filter_map(|name| name.parse::<InterfaceName>().ok()) {
                let tap = Tap::new(name, Offloads::None);
                let _tap = tap.unwrap_or_else(|error| panic!("{:?}: {error}", name.as_str()));
                assert_eq!(netlink.interface(name).unwrap().name, name);
            }
        })
        .unwrap();
}

#[test]
fn work_in_a_namespace_leaves_the_thread_where_it_was() {
    let namespace = namespace();
    let here = || Netlink::open().unwrap().interface(name("tap0")).is_ok();
    let tap = namespace.run(|| Tap::new(name("tap0"), Offloads::All).unwrap()).unwrap();
    assert!(namespace.run(here).unwrap());
    assert!(!here());
    drop(tap);
}

#[test]
fn a_tap_device_receives_only_packets_of_programs() {
    namespace()
        .run(|| {
            let tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            configured("tap0");
            let until = clock::now() + Duration::from_millis(1500);
            assert_eq!(clock::wait([tap.as_fd()], Some(until)), Ok([false]), "the kernel talks by itself");
        })
        .unwrap();
}

#[test]
fn link_local_addresses_are_none_of_an_adapter() {
    namespace()
        .run(|| {
            let tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            let netlink = Netlink::open().unwrap();
            let interface = netlink.interface(name("tap0")).unwrap();
            netlink.set_up(&interface).unwrap();
            netlink.add_address(&interface, V6[0], 64).unwrap();
            let until = clock::now() + Duration::from_secs(5);
            let link_local = || std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
            while !link_local().contains("fe80") {
                assert!(clock::now() < until, "{}", link_local());
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(local_addresses(), Ok(vec![(tap.name(), V6[0])]));
            assert_eq!(interface_address(tap.name()), Ok(Some(V6[0])));
        })
        .unwrap();
}

/// Address labels (ip-address(8)), as ifconfig(8) and keepalived give them.
#[test]
fn an_address_with_a_label_is_that_of_its_interface() {
    namespace()
        .run(|| {
            let tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            let words = ["address", "add", "10.9.0.1/24", "dev", "tap0", "label", "tap0:vip"];
            assert!(Command::new("ip").args(words).status().unwrap().success());
            assert_eq!(local_addresses(), Ok(vec![(tap.name(), V4[0])]));
            assert_eq!(interface_address(tap.name()), Ok(Some(V4[0])));
        })
        .unwrap();
}

/// Point-to-point addresses (ip-address(8), `peer`).
#[test]
fn an_address_with_a_peer_is_the_local_one() {
    namespace()
        .run(|| {
            let _tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            for (ours, theirs) in [(V4[0], V4[1]), (V6[0], V6[1])] {
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                let words = ["address", "add", &ours, "peer", &theirs, "dev", "tap0"];
                assert!(Command::new("ip").args(words).status().unwrap().success());
            }
            let netlink = Netlink::open().unwrap();
            let addresses = netlink.addresses(&netlink.interface(name("tap0")).unwrap()).unwrap();
            assert_eq!(addresses, [V4[0], V6[0]]);
        })
        .unwrap();
}

/// Sends a datagram through the kernel, returns it with exchanged addresses, and checks that the kernel
/// accepts it.
fn echo(device: &impl Device, ours: IpAddr, theirs: IpAddr) {
    let socket = UdpSocket::bind((ours, 7000)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.send_to(b"hello", (theirs, 7000)).unwrap();
    let mut packet = next_frame(device);
    assert_eq!(packet[10..22], [THERE.0, HERE.0].concat());
    let (header, frame) = packet.split_at_mut(VirtioNetHeader::LEN);
    assert_eq!(header[0], VirtioNetHeader::NEEDS_CSUM, "the checksum is left to us");
    let addresses = if ours.is_ipv4() { (14 + 12, 4) } else { (14 + 8, 16) };
    let (a, b) = frame[addresses.0..][..2 * addresses.1].split_at_mut(addresses.1);
    a.swap_with_slice(b);
    let (a, b) = frame[..12].split_at_mut(6);
    a.swap_with_slice(b);
    let (first, second) = packet.split_at(20);
    device.send(&[IoSlice::new(first), IoSlice::new(second)]).unwrap();
    let mut received = [0; 100];
    let (len, from) = uninterrupted(|| socket.recv_from(&mut received)).unwrap();
    assert_eq!((&received[..len], from.ip()), (&b"hello"[..], theirs));
    device.send_bytes(&packet).unwrap();
    assert_eq!(uninterrupted(|| socket.recv(&mut received)).unwrap(), 5);
}

#[test]
fn frames_come_from_and_go_to_the_kernel_through_a_tap_device() {
    namespace()
        .run(|| {
            let tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            configured("tap0");
            echo(&tap, V4[0], V4[1]);
            echo(&tap, V6[0], V6[1]);
            assert!(tap.receive(&mut vec![0; MAX_RECEIVE]).unwrap().is_none());
        })
        .unwrap();
}

#[test]
fn frames_come_from_and_go_to_the_kernel_through_a_packet_socket() {
    let (near, far) = (namespace(), namespace());
    let socket = far
        .run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.add_veth(name("far0"), name("near0"), &near).unwrap();
            let interface = netlink.interface(name("far0")).unwrap();
            netlink.silence(&interface).unwrap();
            netlink.set_up(&interface).unwrap();
            PacketSocket::open(&interface).unwrap()
        })
        .unwrap();
    near.run(|| configured("near0")).unwrap();
    far.run(|| {
        let netlink = Netlink::open().unwrap();
        netlink.wait_until_running(&netlink.interface(name("far0")).unwrap()).unwrap();
    })
    .unwrap();
    near.run(|| {
        echo(&socket, V4[0], V4[1]);
        echo(&socket, V6[0], V6[1]);
    })
    .unwrap();
    assert!(socket.receive(&mut vec![0; MAX_RECEIVE]).unwrap().is_none(), "what was sent is received");
}

#[test]
fn a_frame_whose_offloads_cannot_be_described_is_counted_and_the_next_one_read() {
    namespace()
        .run(|| {
            let tap = Tap::new(name("tap0"), Offloads::All).unwrap();
            let socket = PacketSocket::open(&configured("tap0")).unwrap();
            // A UDP datagram that leaves fragmentation to the card, as drivers of virtual machines send it.
            let fragmented = VirtioNetHeader {
                flags: VirtioNetHeader::NEEDS_CSUM,
                gso_type: VirtioNetHeader::GSO_UDP,
                hdr_len: 42,
                gso_size: 1472,
                csum_start: 34,
                csum_offset: 6,
            };
            let headers =
                [&[0xFF; 6], &THERE.0, &[8, 0, 0x45, 0, 0x0F, 0xBC, 0, 1, 0, 0, 64, 17, 0, 0][..]].concat();
            let datagram =
                [&headers[..], &[10, 9, 0, 7, 10, 9, 0, 8, 0, 1, 0, 2, 0x0F, 0xA8, 0, 0], &[7; 4000]]
                    .concat();
            let ordinary = [&[0xFF; 6][..], &THERE.0, &[0x88, 0xB5], &[7; 50][..]].concat();
            for (header, frame) in [(fragmented, &datagram), (VirtioNetHeader::default(), &ordinary)] {
                tap.send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(frame)]).unwrap();
            }
            assert_eq!(next_frame(&socket)[VirtioNetHeader::LEN..], ordinary);
            assert_eq!(socket.dropped(), Ok(1));
        })
        .unwrap();
}
