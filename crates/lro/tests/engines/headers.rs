//! The header bits in which the segments of one aggregate may differ: tries every bit of every kind of
//! header.

use std::ops::Range;

use nichrome_lro::{Config, Medium, Profile};
use nichrome_wire::checksum::{Sum, checksum};
use nichrome_wire::{EtherType, IpProtocol, Network, TcpFrame, VlanTag};

use crate::common::{Card, Change, Sent, data, each_profile, ms, tcp};

/// A kind of header, and the positions of its parts.
struct Shape {
    first: TcpFrame,
    network: usize,
    transport: usize,
    payload: usize,
}

impl Shape {
    fn new(first: TcpFrame) -> Self {
        let network = 14 + 4 * first.tags.len();
        let ip = match &first.network {
            Network::Ipv4 { options, .. } => 20 + options.len(),
            Network::Ipv6 { extensions, .. } => 40 + extensions.len(),
        };
        let transport = network + ip;
        let payload = transport + 20 + first.options.len();
        Self { first, network, transport, payload }
    }

    fn is_ipv4(&self) -> bool {
        matches!(self.first.network, Network::Ipv4 { .. })
    }

    /// The frames of three consecutive segments, whose IPv4 identifications are `step` apart. In the second
    /// frame, bit `flipped` of the header is flipped.
    fn frames(&self, step: u16, flipped: usize) -> [Vec<u8>; 3] {
        [0, 1, 2].map(|nth: u16| {
            let mut segment = self.first.clone().at(u32::from(nth) * 100, 100);
            if let Network::Ipv4 { ident, .. } = &mut segment.network {
                *ident = nth * step;
            }
            let mut frame = segment.build();
            if nth == 1 {
                frame[flipped / 8] ^= 0x80 >> (flipped % 8);
                self.complete(&mut frame);
            }
            frame
        })
    }

    /// Recomputes the checksums.
    fn complete(&self, frame: &mut [u8]) {
        let (ip, tcp) = frame[self.network..].split_at_mut(self.transport - self.network);
        let sum = if self.is_ipv4() {
            ip[10..12].fill(0);
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            Sum::new().add_bytes(&ip[12..20])
        } else {
            Sum::new().add_bytes(&ip[8..40])
        };
        tcp[16..18].fill(0);
        let sum = sum.add_u32(6).add_u32(tcp.len() as u32).add_bytes(tcp).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    }

    /// The bytes that the segments of an aggregate may differ in, by the tables of the profiles.
    fn free(&self, profile: Profile) -> Vec<Range<usize>> {
        let Self { network, transport, payload, .. } = *self;
        let (ttl, ident) = if self.is_ipv4() { (8, 4..6) } else { (7, 0..0) };
        // PSH, which ends an aggregate, and in `gro` FIN: other tests try the flags.
        let flags = transport + 13..transport + 14;
        // Checksums are recomputed.
        let sum = transport + 16..transport + 18;
        let mut free = vec![network + ident.start..network + ident.end, flags, sum];
        if self.is_ipv4() {
            free.push(network + 10..network + 12);
        }
        if profile != Profile::Gro {
            free.extend([0..12, transport + 8..transport + 12, transport + 14..transport + 16]);
            if self.first.options.len() >= 12 {
                free.push(payload - 8..payload);
            }
        }
        if profile == Profile::Npu {
            free.push(network + ttl..network + ttl + 1);
        }
        free
    }
}

fn shapes() -> Vec<Shape> {
    let tags = vec![VlanTag { tpid: EtherType::QINQ, tci: 5 }, VlanTag { tpid: EtherType::VLAN, tci: 6 }];
    let stamped = data(0, 100).timestamps(7, 9);
    let padded = |padding: usize| {
        let mut frame = stamped.clone();
        frame.options = [vec![1; padding], frame.options].concat();
        frame
    };
    let extended = padded(28).over_ipv6().with(|frame| {
        if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
            *next_header = IpProtocol::DESTINATION_OPTIONS;
            *extensions = [&[IpProtocol::TCP.0, 2, 1, 20][..], &[0; 20]].concat();
        }
    });
    let frames = [
        data(0, 100),
        stamped.clone(),
        padded(4),
        padded(28),
        stamped.clone().over_ipv6(),
        TcpFrame { tags: tags[1..].to_vec(), ..stamped.clone() },
        TcpFrame { tags: tags.clone(), ..padded(28) },
        // Headers of more than 96 bytes.
        padded(28).over_ipv6(),
        TcpFrame { tags, ..padded(28).over_ipv6() },
        extended,
    ];
    frames.into_iter().map(Shape::new).collect()
}

/// Returns true if the second of `frames` left in one packet with the first or the last.
fn merges_the_second(card: &mut Card, frames: &[Vec<u8>; 3], payload: usize) -> bool {
    let second = &frames[1][payload..];
    card.drain().take().iter().any(|sent| match sent {
        Sent::Merged(merged) => merged.payloads.iter().any(|payload| payload == second),
        _ => false,
    })
}

#[test]
fn segments_that_differ_in_a_header_bit_are_merged_only_where_the_profile_says_so() {
    let config = Config { max_connections: 64, max_aggregates: 8, ..Config::default() };
    let mut merged = 0;
    for shape in shapes() {
        for profile in each_profile(ms(1)) {
            let free = shape.free(profile.profile());
            let bits = (0..shape.payload * 8).flat_map(|bit| [(0, bit), (1, bit)]);
            for (step, bit) in bits.filter(|(step, _)| *step == 0 || shape.is_ipv4()) {
                let frames = shape.frames(step, bit);
                for is_batch in [false, true] {
                    let mut card = Card::new(&config, &profile);
                    if is_batch {
                        card.receive_batch(&frames);
                    } else {
                        frames.iter().for_each(|frame| _ = card.receive_bytes(frame.clone()));
                    }
                    if merges_the_second(&mut card, &frames, shape.payload) {
                        let (byte, profile) = (bit / 8, profile.profile());
                        assert!(
                            free.iter().any(|free| free.contains(&byte)),
                            "{profile}: byte {byte} of {:02x?}",
                            frames[1]
                        );
                        merged += 1;
                    }
                }
            }
        }
    }
    assert!(merged > 1000, "{merged}");
}

/// The engines keep headers of up to 192 bytes, whatever these consist of.
#[test]
fn headers_of_192_bytes_are_merged_and_longer_ones_passed() {
    let config = Config { medium: Medium::Ip, ..Config::default() };
    for (padding, headers) in [(0, 192), (4, 196)] {
        let segment = data(0, 100).timestamps(7, 9).over_ipv6().with(|frame| {
            frame.options.splice(0..0, vec![1; padding]);
            if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
                *next_header = IpProtocol::DESTINATION_OPTIONS;
                *extensions = [&[IpProtocol::TCP.0, 14, 1, 116][..], &[0; 116]].concat();
            }
        });
        // `netfpga` passes extension headers.
        for profile in each_profile(ms(1)).into_iter().filter(|profile| profile.profile() != Profile::Netfpga)
        {
            let mut card = Card::new(&config, &profile);
            for nth in 0..2 {
                card.receive_bytes(segment.clone().at(nth * 100, 100).build_ip());
            }
            let lens: Vec<usize> =
                card.drain().take().iter().map(|sent| sent.bytes().len() - headers).collect();
            let expected = if headers == 192 { vec![200] } else { vec![100, 100] };
            assert_eq!(lens, expected, "{headers}, {}", profile.profile());
        }
    }
}

/// These addresses and ports look like an Ethernet header and the first half of another IPv4 header.
#[test]
fn a_packet_without_a_link_header_is_not_taken_for_a_frame() {
    let segment = data(0, 0).with(|frame| {
        frame.network = Network::ipv4([8, 0, 69, 1].into(), [1, 0, 0, 2].into());
        (frame.src_port, frame.dst_port, frame.payload) = (0x4000, 6, vec![0x50; 300]);
    });
    let config = Config { medium: Medium::Ip, ..Config::default() };
    for profile in each_profile(ms(1)) {
        let mut card = Card::new(&config, &profile);
        for nth in 0..2 {
            card.receive_bytes(segment.clone().with(|frame| frame.seq += 300 * nth).build_ip());
        }
        assert_eq!(card.drain().take_one().bytes().len(), 640, "{}", profile.profile());
    }
}

#[test]
fn a_packet_is_as_long_as_the_limit_and_no_longer() {
    for (max_bytes, expected) in [(600, vec![560]), (599, vec![420, 140])] {
        let config = Config { max_bytes, ..Config::default() };
        for (profile, is_batch) in
            each_profile(ms(1)).into_iter().flat_map(|profile| [(profile, false), (profile, true)])
        {
            let mut card = Card::new(&config, &profile);
            let frames: Vec<_> = (0..4).map(|nth| data(nth * 140, 140).build()).collect();
            if is_batch {
                card.receive_batch(&frames);
            } else {
                frames.into_iter().for_each(|frame| _ = card.receive_bytes(frame));
            }
            assert_eq!(card.drain().take_lens(), expected, "{max_bytes}, {}, {is_batch}", profile.profile());
        }
    }
}

#[test]
fn a_stream_s_packet_has_the_window_of_its_latest_ack_number() {
    for shape in shapes() {
        for profile in each_profile(ms(1)).into_iter().filter(|profile| profile.profile() != Profile::Gro) {
            let mut card = Card::new(&Config::default(), &profile);
            let later = shape.first.clone().at(100, 100).with(|frame| (frame.ack.0, frame.window) = (9, 77));
            card.receive(&shape.first).receive(&later).drain();
            // `netfpga` passes extension headers.
            if profile.profile() == Profile::Netfpga && shape.transport - shape.network > 40 {
                assert_eq!(card.take_lens(), [100, 100]);
                continue;
            }
            let packet = tcp(&card.take_one().merged().packet);
            assert_eq!((packet.ack, packet.window), (9, 77), "{}", profile.profile());
        }
    }
}
