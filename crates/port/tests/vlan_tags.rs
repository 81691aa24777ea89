//! VLAN tags through a packet socket with the kernel of this machine, which strips the outermost tag of each
//! frame.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Duration;

use nichrome_port::{
    Device, InterfaceName, MAX_RECEIVE, Netlink, NetworkNamespace, PacketSocket, clock, gain_network_admin,
};
use nichrome_wire::{EtherType, TcpFrame, VirtioNetHeader, VlanTag};

/// Creates the user namespace of an unprivileged user. The process must still have one thread.
#[ctor::ctor(unsafe)]
fn become_able_at_start() {
    // If this fails, the test that needs a namespace reports the reason.
    let _ = gain_network_admin();
}

const OUTER: VlanTag = VlanTag { tpid: EtherType::QINQ, tci: 0x6123 };
const INNER: VlanTag = VlanTag { tpid: EtherType::VLAN, tci: 0x2007 };

fn name(name: &str) -> InterfaceName {
    name.parse().unwrap()
}

/// Creates the two ends of a wire, in a namespace of their own.
fn wire() -> [PacketSocket; 2] {
    gain_network_admin().unwrap();
    let namespace = NetworkNamespace::new().unwrap();
    namespace
        .run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.add_veth(name("one"), name("two"), &namespace).unwrap();
            let [one, two] = ["one", "two"].map(|called| netlink.interface(name(called)).unwrap());
            for interface in [&one, &two] {
                netlink.silence(interface).unwrap();
                netlink.set_up(interface).unwrap();
            }
            [one, two].map(|interface| {
                netlink.wait_until_running(&interface).unwrap();
                PacketSocket::open(&interface).unwrap()
            })
        })
        .unwrap()
}

/// Returns the frame received after `frame` was sent with `header`.
fn carried(
    [from, to]: &[PacketSocket; 2],
    header: VirtioNetHeader,
    frame: &[u8],
) -> (VirtioNetHeader, Vec<u8>) {
    from.send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(frame)]).unwrap();
    let until = clock::now() + Duration::from_secs(5);
    clock::wait([to.as_fd()], Some(until)).unwrap();
    let mut buffer = vec![0; MAX_RECEIVE];
    let received = to.receive(&mut buffer).unwrap().unwrap_or_else(|| panic!("no frame"));
    (received.virtio, received.frame.to_vec())
}

fn tagged(tags: &[VlanTag], len: usize) -> Vec<u8> {
    TcpFrame { tags: tags.to_vec(), payload: vec![7; len], ..TcpFrame::default() }.build()
}

#[test]
fn frames_arrive_with_the_tags_that_they_were_sent_with() {
    let wire = wire();
    for tags in [&[][..], &[INNER], &[OUTER], &[OUTER, INNER], &[INNER, INNER]] {
        for len in [0, 1, 1400] {
            let frame = tagged(tags, len);
            let (_, received) = carried(&wire, VirtioNetHeader::default(), &frame);
            assert_eq!(received, frame, "{tags:?}, {len} bytes");
        }
    }
}

#[test]
fn offload_offsets_account_for_the_tag() {
    let wire = wire();
    for tags in [&[][..], &[INNER], &[OUTER], &[OUTER, INNER]] {
        let network = 14 + 4 * tags.len() as u16;
        let header = VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: VirtioNetHeader::GSO_TCPV4,
            hdr_len: network + 40,
            gso_size: 1448,
            csum_start: network + 20,
            csum_offset: 16,
        };
        let frame = tagged(tags, 40_000);
        let (received, bytes) = carried(&wire, header, &frame);
        assert_eq!((received.csum_start, received.gso_size), (header.csum_start, 1448), "{tags:?}");
        assert!(received.hdr_len >= header.hdr_len, "{tags:?}");
        assert_eq!(bytes, frame, "{tags:?}");
    }
}
