//! Packet rings: pending offloads of senders, groups of rings, and the interface's state afterwards.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use nichrome_port::{
    Device, Fanout, Interface, Netlink, PacketRing, PacketRingConfig, PacketSocket, WireQueue, clock,
};
use nichrome_wire::{EtherType, Network, TcpFlags, TcpFrame, VirtioNetHeader, VlanTag};

use crate::wire::{OTHER, PATIENCE, PEER, Wire, frame, is_ours, put, take};

/// Returns a TCP segment of `len` bytes of payload with the pseudo-header's checksum only.
fn unfinished(len: usize, tags: Vec<VlanTag>) -> Vec<u8> {
    let flags = TcpFlags::ACK;
    let segment =
        TcpFrame { src_mac: PEER, dst_mac: OTHER, tags, flags, payload: vec![7; len], ..TcpFrame::default() };
    segment.build()
}

fn unfinished_header(tags: usize, gso_size: u16) -> VirtioNetHeader {
    let network = (14 + 4 * tags + 20) as u16;
    let gso_type = if gso_size > 0 { VirtioNetHeader::GSO_TCPV4 } else { VirtioNetHeader::GSO_NONE };
    let hdr_len = if gso_size > 0 { network + 20 } else { 0 };
    let flags = VirtioNetHeader::NEEDS_CSUM;
    VirtioNetHeader { flags, gso_type, hdr_len, gso_size, csum_start: network, csum_offset: 16 }
}

#[test]
fn a_packet_ring_reports_the_offloads_left_by_senders() {
    let wire = Wire::new(1500);
    let mut ring = wire.on_card(|card| PacketRing::open(card, PacketRingConfig::default()).unwrap());
    let sender = wire.sender();
    let tag = VlanTag { tpid: EtherType::VLAN, tci: 5 };
    // The last two need segmentation.
    for (len, tags, gso_size) in
        [(100, vec![], 0), (100, vec![tag], 0), (60_000, vec![], 1448), (60_000, vec![tag], 1448)]
    {
        let header = unfinished_header(tags.len(), gso_size);
        let sent = unfinished(len, tags);
        sender.send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(&sent)]).unwrap();
        let received = take(&mut ring, 1).pop().unwrap();
        assert_eq!(received.buffer.as_ref(), sent);
        // hdr_len is a hint: the kernel sets it to the linear part of the packet.
        assert!(received.virtio.hdr_len >= header.hdr_len);
        assert_eq!(VirtioNetHeader { hdr_len: header.hdr_len, ..received.virtio }, header);
    }
    assert_eq!(ring.stats().unwrap(), Default::default());
}

#[test]
fn a_datagram_of_a_program_comes_with_its_checksum_unfinished() {
    let wire = Wire::new(1500);
    let mut ring = wire.on_card(|card| PacketRing::open(card, PacketRingConfig::default()).unwrap());
    wire.peer_side
        .run(|| {
            let netlink = Netlink::open().unwrap();
            let [ours, theirs] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 9, 0, host)));
            netlink.add_address(&wire.peer, ours, 24).unwrap();
            netlink.add_neighbour(&wire.peer, theirs, OTHER).unwrap();
            UdpSocket::bind((ours, 7000)).unwrap().send_to(b"hello", (theirs, 7000)).unwrap();
        })
        .unwrap();
    let received = take(&mut ring, 1).pop().unwrap();
    assert_eq!(received.buffer.as_ref()[42..], *b"hello");
    let VirtioNetHeader { flags, csum_start, csum_offset, .. } = received.virtio;
    assert_eq!((flags, csum_start, csum_offset), (VirtioNetHeader::NEEDS_CSUM, 34, 6));
}

#[test]
fn a_frame_that_a_filter_drops_on_its_way_out_is_counted_and_keeps_no_others() {
    let wire = Wire::new(1500);
    let mut ring = wire.on_card(|card| PacketRing::open(card, PacketRingConfig::default()).unwrap());
    let mut receiver = wire.receiver();
    // Drops (2) the frame with the number 9, whose last byte is at 17; keeps (-1) others.
    let refuse_9 = "4,48 0 0 17,21 0 1 9,6 0 0 2,6 0 0 4294967295";
    let add_filter = ["filter", "add", "dev", "card0", "egress", "bpf", "da", "bytecode", refuse_9];
    for command in [&["qdisc", "add", "dev", "card0", "clsact"][..], &add_filter] {
        // Users who are not root often lack the folder of tc.
        let mut tc = Command::new("tc");
        tc.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").args(command);
        let output = wire.on_card(|_| tc.output().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for number in [1, 9, 2, 9, 9, 3] {
        ring.transmit(&[IoSlice::new(&frame(number, 100, &[]))]).unwrap();
    }
    let until = clock::now() + PATIENCE;
    while ring.unsent() > 0 && clock::now() < until {
        ring.flush().unwrap();
    }
    let received: Vec<_> = take(&mut receiver, 3).iter().map(|frame| frame.buffer.as_ref()[17]).collect();
    assert_eq!(received, [1, 2, 3]);
    let stats = ring.stats().unwrap();
    assert_eq!((ring.unsent(), stats.transmit_dropped, stats.transmit_invalid), (0, 3, 0));
}

#[test]
fn a_group_of_rings_shares_the_frames_by_connection() {
    let wire = Wire::new(1500);
    let two = NonZeroUsize::new(2).unwrap();
    let sender = wire.sender();
    for fanout in [Fanout::Hash, Fanout::Cpu, Fanout::Queue] {
        let mut rings = wire
            .on_card(|card| PacketRing::open_group(card, two, fanout, PacketRingConfig::default()).unwrap());
        for round in 0..5 {
            for port in 0..40 {
                let segment =
                    TcpFrame { src_mac: PEER, dst_mac: OTHER, src_port: 1000 + port, ..TcpFrame::default() };
                let back = TcpFrame {
                    src_mac: PEER,
                    dst_mac: OTHER,
                    network: Network::ipv4(Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1)),
                    src_port: segment.dst_port,
                    dst_port: segment.src_port,
                    ..TcpFrame::default()
                };
                put(&sender, &segment.build());
                put(&sender, &back.build());
            }
            let mut ports: Vec<Vec<u16>> = vec![Vec::new(); 2];
            let until = clock::now() + PATIENCE;
            while ports.iter().map(Vec::len).sum::<usize>() < 80 {
                assert!(clock::now() < until, "{fanout:?} {round}: {ports:?}");
                for (ring, ports) in rings.iter_mut().zip(&mut ports) {
                    let mut batch = Vec::new();
                    ring.receive(&mut batch, 1000).unwrap();
                    ports.extend(batch.iter().map(|frame| {
                        let port = |at| u16::from_be_bytes([frame.buffer[at], frame.buffer[at + 1]]);
                        port(34).min(port(36))
                    }));
                }
            }
            assert_eq!(ports.iter().map(Vec::len).sum::<usize>(), 80, "{fanout:?}");
            if fanout == Fanout::Hash {
                let [first, second] = &ports[..] else { panic!() };
                assert!(!first.is_empty() && !second.is_empty(), "{ports:?}");
                assert!(first.iter().all(|port| !second.contains(port)), "a connection is split: {ports:?}");
            }
        }
        put(&wire.on_card(|card| PacketSocket::open(card).unwrap()), &frame(0, 100, &[]));
        let until = clock::now() + Duration::from_millis(5);
        for ring in &mut rings {
            let mut batch = Vec::new();
            while clock::wait([ring.as_fd()], Some(until)) == Ok([true]) {
                ring.receive(&mut batch, 1000).unwrap();
            }
            assert!(!batch.iter().any(|frame| is_ours(&frame.buffer)), "what was sent is received");
        }
    }
}

#[test]
fn interfaces_without_program_or_ring_are_as_before() {
    let wire = Wire::new(1500);
    drop(wire.on_card(|card| PacketRing::open(card, PacketRingConfig::default()).unwrap()));
    let after = wire.card_now();
    assert_eq!(Interface { counters: wire.card.counters, ..after }, wire.card);
}
