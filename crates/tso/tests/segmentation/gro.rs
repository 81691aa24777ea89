//! Segmentation is the inverse of the lossless coalescing of `nichrome-lro`.

use std::collections::HashMap;
use std::path::Path;

use nichrome_lro::{Aggregate, Config, Frame, Gro, Hold, Identification, Output, Packet};
use nichrome_port::capture;
use nichrome_wire::{Engine, Instant, IpProtocol, Ipv4Header, Network, TcpFrame, VirtioNetRepr};

use crate::common::*;

const CAPTURES: [&str; 7] = [
    "tcp-clean.pcap",
    "tcp-duplicate-corrupt.pcap",
    "tcp-ecn.pcap",
    "tcp-ipv6-reorder-loss.pcap",
    "tcp-loss.pcap",
    "tcp-no-timestamps.pcap",
    "tcp-reorder.pcap",
];

/// Returns the output of `gro` for one batch of frames.
fn coalesce(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Packet<Vec<u8>>> {
    let mut gro = Gro::new(&Config::default(), Hold::Batch).unwrap();
    let mut packets = Vec::new();
    for frame in frames {
        gro.receive(Frame::new(frame), Instant::ZERO);
    }
    gro.end_of_batch(Instant::ZERO);
    while let Some(output) = gro.poll() {
        match output {
            Output::ToHost(packet) => packets.push(packet),
            _ => panic!("gro hands everything to the host"),
        }
    }
    packets
}

/// Segments an aggregate by the virtio header that a kernel would receive with it.
fn recut(aggregate: &Aggregate<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    aggregate.copy_to(&mut bytes);
    let header = aggregate.virtio_net_header();
    cut(&bytes, &VirtioNetRepr::parse(&header, bytes.len()).unwrap()).unwrap()
}

fn frames_of(capture: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(capture);
    let mut reader = capture::open(&path).unwrap();
    let (mut data, mut frames) = (Vec::new(), Vec::new());
    while reader.next(&mut data).unwrap().is_some() {
        frames.push(data.clone());
    }
    frames
}

#[test]
fn aggregates_of_the_captures_are_cut_into_the_segments_they_were_made_of() {
    for capture in CAPTURES {
        let frames = frames_of(capture);
        let mut aggregates = 0;
        for batch in frames.chunks(64) {
            let mut expected: HashMap<&[u8], usize> = HashMap::new();
            batch.iter().for_each(|frame| *expected.entry(frame).or_default() += 1);
            let mut came_out = |frame: &[u8]| {
                let left = expected.get_mut(frame).expect("a frame that was not received");
                *left = left.checked_sub(1).expect("a frame more often than received");
            };
            for packet in coalesce(batch.iter().cloned()) {
                match packet {
                    Packet::Frame(frame) => came_out(frame.bytes()),
                    Packet::Aggregate(aggregate) => {
                        assert_ne!(aggregate.identification(), Identification::Fixed, "{capture}");
                        recut(&aggregate).iter().for_each(|segment| came_out(segment));
                        aggregates += 1;
                    }
                }
            }
            assert!(expected.values().all(|&left| left == 0), "{capture}: frames are missing");
        }
        assert!(aggregates > 10, "{capture}: {aggregates} aggregates");
    }
}

#[test]
fn a_fixed_identification_comes_out_incrementing() {
    let mut whole = data(3000);
    if let Network::Ipv4 { ident, .. } = &mut whole.network {
        *ident = 77;
    }
    let mut segments = tcp_segments(&whole, 1000);
    for (nth, segment) in segments.iter_mut().enumerate() {
        let start = nth * 1000;
        let payload = whole.payload[start..start + 1000].to_vec();
        let flags = if nth == 2 { whole.flags } else { nichrome_wire::TcpFlags::ACK };
        *segment = TcpFrame { seq: whole.seq + start as u32, payload, flags, ..whole.clone() }.build();
    }
    let mut packets = coalesce(segments);
    let Some(Packet::Aggregate(aggregate)) = packets.pop() else { panic!("not coalesced") };
    assert_eq!((packets.len(), aggregate.identification()), (0, Identification::Fixed));
    let cut = recut(&aggregate);
    assert_eq!(cut, tcp_segments(&whole, 1000));
    let idents: Vec<_> = cut.iter().map(|packet| Ipv4Header::new(&packet[14..]).unwrap().ident()).collect();
    assert_eq!(idents, [77, 78, 79]);
}

#[test]
fn segments_of_one_frame_coalesce_into_it_again() {
    let networks = [
        Network::default(),
        ipv6(&[], IpProtocol::TCP),
        ipv6(&[(IpProtocol::HOP_BY_HOP, 0), (IpProtocol::DESTINATION_OPTIONS, 1)], IpProtocol::TCP),
    ];
    for network in networks {
        for (len, size) in [(2896, 1448), (2897, 1448), (65_000, 1448), (64_000, 8948), (128, 1)] {
            let frame = TcpFrame { network: network.clone(), ..data(len) };
            let (bytes, virtio) = tcp(&frame, size);
            let packets = coalesce(cut(&bytes, &virtio).unwrap());
            let [Packet::Aggregate(aggregate)] = &packets[..] else { panic!("{} packets", packets.len()) };
            let mut again = Vec::new();
            aggregate.copy_to(&mut again);
            assert_eq!((again, aggregate.mss()), (frame.build(), size));
        }
    }
}
