//! Frames that generated traffic rarely contains: each limit, and a step on either side.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use nichrome_lro::{BadChecksum, Config};
use nichrome_lro_cosim::compare::{Input, compare};
use nichrome_lro_cosim::{Model, RtlConfig};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{EtherType, Instant, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, VlanTag};

/// Compares these frames, each a microsecond after the one before.
fn same(case: &str, config: &Config, frames: &[Vec<u8>]) {
    let at = |nth: usize| Instant::from_nanos(1_000_000 + 1000 * nth as u64);
    let frames = frames.iter().filter(|frame| !frame.is_empty()).enumerate();
    let inputs: Vec<Input> = frames.map(|(nth, frame)| Input::Frame(at(nth), frame.clone())).collect();
    for model in Model::ALL {
        for bad_checksum in [BadChecksum::Drop, BadChecksum::Pass] {
            let config = Config { bad_checksum: Some(bad_checksum), max_aggregates: 64, ..*config };
            let rtl = RtlConfig::new(*model, &config, Duration::from_millis(1));
            if let Err(difference) = compare(&config, rtl, &inputs) {
                panic!("{case} with {model:?}, {bad_checksum:?}: {difference}");
            }
        }
    }
}

/// A segment with `len` bytes from `at` on.
fn data(at: u32, len: usize) -> TcpFrame {
    let byte = |n: usize| (at as usize + n).wrapping_mul(31) as u8;
    TcpFrame { seq: SeqNumber(1 + at), payload: (0..len).map(byte).collect(), ..TcpFrame::default() }
}

fn over_ipv6(mut frame: TcpFrame) -> TcpFrame {
    frame.network = Network::ipv6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    frame
}

fn tagged(mut frame: TcpFrame, tags: usize) -> TcpFrame {
    frame.tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 0x2005 }; tags];
    frame
}

/// Puts the TCP header behind an extension header of `chain` bytes.
fn extended(frame: TcpFrame, kind: IpProtocol, chain: usize) -> TcpFrame {
    let mut frame = over_ipv6(frame);
    if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
        *next_header = kind;
        let units = if kind == IpProtocol::AH { chain / 4 - 2 } else { chain / 8 - 1 };
        *extensions = [&[IpProtocol::TCP.0, units as u8, 0, 0][..], &vec![0; chain - 4]].concat();
    }
    frame
}

/// Three segments around a frame.
fn around(frame: Vec<u8>) -> Vec<Vec<u8>> {
    vec![data(0, 100).build(), frame, data(100, 100).build(), data(200, 100).build()]
}

/// Completes the TCP checksum of an untagged IPv4 frame without IP options.
fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[50..52].fill(0);
    let len = (frame.len() - 34) as u16;
    let pseudo = [&frame[26..34], &[0, 6], &len.to_be_bytes()].concat();
    let sum = checksum(&[&pseudo[..], &frame[34..]].concat());
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn frames_cut_short_anywhere() {
    let whole = [
        data(0, 9),
        tagged(data(0, 9), 1),
        tagged(data(0, 9), 2),
        tagged(data(0, 9), 3),
        over_ipv6(data(0, 9)),
        tagged(over_ipv6(data(0, 9)), 2),
        extended(data(0, 9), IpProtocol::DESTINATION_OPTIONS, 16),
        extended(data(0, 9), IpProtocol::FRAGMENT, 8),
        extended(data(0, 9), IpProtocol::AH, 12),
    ];
    for frame in whole {
        let bytes = frame.build();
        let frames: Vec<_> = (1..=bytes.len()).map(|len| bytes[..len].to_vec()).collect();
        same("cut short", &Config::default(), &frames);
    }
}

#[test]
fn every_bit_of_a_header_flipped() {
    for (first, second) in [
        (data(0, 100), data(100, 100)),
        (tagged(over_ipv6(data(0, 100)), 2), tagged(over_ipv6(data(100, 100)), 2)),
        (
            extended(data(0, 100), IpProtocol::HOP_BY_HOP, 8),
            extended(data(100, 100), IpProtocol::HOP_BY_HOP, 8),
        ),
    ] {
        let bytes = second.build();
        let mut frames = Vec::new();
        for bit in 12 * 8..8 * (bytes.len() - 100) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            frames.extend([first.build(), flipped, second.build()]);
        }
        same("a bit", &Config::default(), &frames);
    }
}

/// A bit flipped, with right checksums: the reserved bits, the urgent pointer, the flags.
#[test]
fn every_bit_of_a_tcp_header_differs() {
    let bytes = data(100, 100).build();
    let mut frames = Vec::new();
    for bit in 34 * 8..54 * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        frames.extend([data(0, 100).build(), with_checksum(flipped), data(200, 100).build()]);
    }
    same("a bit with checksums", &Config::default(), &frames);
}

#[test]
fn padding_does_not_come_before_the_next_payload() {
    for len in 1..8 {
        let frames: Vec<_> = (0..6u32)
            .map(|nth| {
                let mut bytes = data(nth * len, len as usize).build();
                bytes.resize(bytes.len().max(60), 0xEE);
                bytes
            })
            .collect();
        same("padding", &Config::default(), &frames);
    }
}

#[test]
fn trailers_up_to_eight_bytes_are_padding() {
    for len in [1, 67, 74, 120] {
        for trailer in 0..12 {
            let mut bytes = data(100, len).build();
            bytes.resize(bytes.len() + trailer, 0xEE);
            same("a trailer", &Config::default(), &around(bytes));
        }
    }
}

#[test]
fn lengths_around_the_maximum() {
    for max_bytes in [576, 1000, 1001] {
        let headers = 40;
        for second in max_bytes - headers - 100 - 2..=max_bytes - headers - 100 + 2 {
            let config = Config { max_bytes: max_bytes as u32, ..Config::default() };
            let frames =
                [data(0, 100).build(), data(100, second).build(), data(100 + second as u32, 100).build()];
            same("one that fits", &config, &frames);
        }
        for len in (max_bytes - headers) / 3 - 2..=(max_bytes - headers) / 3 + 2 {
            let config = Config { max_bytes: max_bytes as u32, ..Config::default() };
            let frames: Vec<_> = (0..7).map(|nth| data(nth * len as u32, len).build()).collect();
            same("another that fits", &config, &frames);
        }
    }
}

/// An aggregate of 65,535 bytes, its link header not counted; the frames behind it are short.
#[test]
fn aggregates_whose_frame_is_longer_than_65_535_bytes() {
    let config = Config { max_bytes: 65_535, ..Config::default() };
    for over_ip in [|frame| frame, over_ipv6] {
        for tags in 0..3 {
            let segment = |at, len| tagged(over_ip(data(at, len)), tags).build();
            let headers = data(0, 0).build().len() - 14;
            assert_eq!(headers + 32_747 + 32_748, 65_535);
            let frames =
                [segment(0, 32_747), segment(32_747, 32_748), segment(65_495, 1), segment(65_496, 1)];
            same("the longest aggregate", &config, &frames);
        }
    }
}

#[test]
fn counts_around_the_maximum() {
    for max_segments in [2, 3, 5] {
        let config = Config { max_segments, ..Config::default() };
        let frames: Vec<_> = (0..11).map(|nth| data(nth * 10, 10).build()).collect();
        same("segments", &config, &frames);
    }
    // The second segment fills both limits.
    let config = Config { max_segments: 2, max_bytes: 576, ..Config::default() };
    let frames: Vec<_> = (0..5).map(|nth| data(nth * 268, 268).build()).collect();
    same("segments and bytes", &config, &frames);
}

/// Sums that fold from 0x1FFFE to 0xFFFF, checksums of 0 and 0xFFFF, odd lengths and carries.
#[test]
fn checksums_at_their_limits() {
    let mut frames = Vec::new();
    let mut at = 0;
    for high in [0u16, 1, 0x00FF, 0xFF00, 0xFFFE, 0xFFFF] {
        for len in [2usize, 3, 100, 101] {
            let mut frame = data(at, len);
            let end = len & !1;
            frame.payload[end - 2..end].copy_from_slice(&high.to_be_bytes());
            frames.push(frame.build());
            // Makes the checksum 0: adds it to a word of the payload.
            let bytes = frame.build();
            let sum = u16::from_be_bytes([bytes[50], bytes[51]]);
            let word = u32::from(high) + u32::from(sum);
            let word = (word >> 16) as u16 + word as u16;
            frame.payload[end - 2..end].copy_from_slice(&word.to_be_bytes());
            frame.seq += len as u32;
            frames.push(with_checksum(frame.build()));
            let mut negative = frame.build();
            if negative[50..52] == [0, 0] {
                negative[50..52].fill(0xFF);
            }
            frames.push(negative);
            at += 2 * len as u32;
        }
    }
    // All bits set: the pairs of words sum to 0x1FFFE.
    for len in [2, 4, 6, 8, 16, 64] {
        let mut frame = data(at, len);
        frame.payload.fill(0xFF);
        frames.push(frame.build());
        at += len as u32;
    }
    same("checksums", &Config::default(), &frames);
}

#[test]
fn chains_around_the_parsers_reach() {
    let kinds =
        [IpProtocol::DESTINATION_OPTIONS, IpProtocol::HOP_BY_HOP, IpProtocol::ROUTING, IpProtocol::AH];
    for kind in kinds {
        for tags in 0..3 {
            let mut frames = Vec::new();
            for chain in [8, 16, 64, 120, 128, 136, 160, 168, 176, 184, 192, 200, 208, 1024] {
                frames.extend([
                    data(0, 100).build(),
                    tagged(extended(data(100, 100), kind, chain), tags).build(),
                ]);
                let mut two = extended(data(100, 100), kind, chain);
                if let Network::Ipv6 { extensions, .. } = &mut two.network {
                    extensions.extend([6, 0, 1, 4, 0, 0, 0, 0]);
                }
                for second in [IpProtocol::DESTINATION_OPTIONS, IpProtocol::HOP_BY_HOP] {
                    if let Network::Ipv6 { extensions, .. } = &mut two.network {
                        extensions[0] = second.0;
                    }
                    frames.extend([data(0, 100).build(), tagged(two.clone(), tags).build()]);
                }
            }
            same("a chain", &Config::default(), &frames);
        }
    }
}

/// A header follows a fragment header in the first fragment only.
#[test]
fn headers_behind_fragments() {
    let kinds = [
        IpProtocol::TCP,
        IpProtocol::FRAGMENT,
        IpProtocol::DESTINATION_OPTIONS,
        IpProtocol::HOP_BY_HOP,
        IpProtocol::ROUTING,
        IpProtocol::AH,
    ];
    let mut frames = Vec::new();
    for kind in kinds {
        for offset in [0u16, 1, 0x1FFF] {
            let mut frame = extended(data(100, 100), IpProtocol::FRAGMENT, 8);
            if let Network::Ipv6 { extensions, .. } = &mut frame.network {
                extensions[0] = kind.0;
                extensions[2..4].copy_from_slice(&(offset << 3).to_be_bytes());
                extensions.extend([IpProtocol::TCP.0, 0, 0, 0, 0, 0, 0, 0]);
            }
            frames.extend([data(50 * frames.len() as u32, 100).build(), frame.build()]);
        }
    }
    same("behind a fragment header", &Config::default(), &frames);
}

/// A home address (RFC 6275) among destination options changes which bytes the TCP checksum covers.
#[test]
fn checksums_behind_extension_headers_are_not_verified() {
    for kind in [IpProtocol::DESTINATION_OPTIONS, IpProtocol::HOP_BY_HOP] {
        let mut frames = Vec::new();
        for tags in 0..3 {
            for flags in [TcpFlags::ACK, TcpFlags::ACK | TcpFlags::PSH, TcpFlags::SYN] {
                let segment = |at: u32| tagged(over_ipv6(data(at, 100)), tags);
                let behind = |at: u32| TcpFrame { flags, ..tagged(extended(data(at, 100), kind, 24), tags) };
                let mut wrong = behind(200).build();
                *wrong.last_mut().unwrap() ^= 1;
                frames.extend([segment(0).build(), segment(100).build(), wrong, segment(300).build()]);
                frames.extend([behind(400).build(), segment(500).build()]);
            }
        }
        same("behind extension headers", &Config::default(), &frames);
    }
}

/// Beyond the parser's reach, a header that is cut short makes no difference.
#[test]
fn segments_cut_short_around_the_parsers_reach() {
    let mut frames = Vec::new();
    for (chain, options) in (160..=224).step_by(4).flat_map(|chain| [(chain, 0), (chain, 12)]) {
        for tcp in 0..20 {
            let segment = TcpFrame { options: vec![1; options], ..data(100, 100) };
            let mut frame = extended(segment, IpProtocol::AH, chain).build();
            frame.truncate(54 + chain + tcp);
            frame[18..20].copy_from_slice(&((chain + tcp) as u16).to_be_bytes());
            // Each frame arrives while an aggregate is in the store.
            frames.extend([data(50 * frames.len() as u32, 100).build(), frame]);
        }
    }
    same("cut short at the reach", &Config::default(), &frames);
}

/// Whole segments whose TCP options end around the reach.
#[test]
fn options_around_the_parsers_reach() {
    let mut frames = Vec::new();
    for chain in (140..=188).step_by(4) {
        for options in (0..=40).step_by(4) {
            let segment = TcpFrame { options: vec![1; options], ..data(100, 100) };
            let behind = extended(segment, IpProtocol::AH, chain);
            // Each frame arrives while an aggregate of another flow is in the store.
            frames.extend([data(50 * frames.len() as u32, 100).build(), behind.build()]);
        }
    }
    same("options at the reach", &Config::default(), &frames);
}

/// First fragments and whole packets that end within the TCP header.
#[test]
fn first_fragments_of_every_length() {
    let cut = |frame: TcpFrame, transport: usize, len: usize, fragment: bool| {
        let mut bytes = frame.build();
        bytes.truncate(transport + len);
        let (total, is_ipv4) = ((transport + len - 14) as u16, bytes[14] >> 4 == 4);
        if is_ipv4 {
            bytes[16..18].copy_from_slice(&total.to_be_bytes());
            bytes[20] |= u8::from(fragment) << 5;
            bytes[24..26].fill(0);
            let sum = checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            bytes[18..20].copy_from_slice(&(total - 40).to_be_bytes());
            bytes[57] |= u8::from(fragment && bytes[20] == IpProtocol::FRAGMENT.0);
        }
        bytes
    };
    let mut frames = Vec::new();
    for len in 0..32 {
        for fragment in [false, true] {
            frames.extend([data(0, 100).build(), cut(data(100, 100), 34, len, fragment)]);
            for kind in [IpProtocol::FRAGMENT, IpProtocol::ROUTING, IpProtocol::DESTINATION_OPTIONS] {
                let extended = cut(extended(data(100, 100), kind, 8), 62, len, fragment);
                frames.extend([over_ipv6(data(0, 100)).build(), extended]);
            }
        }
    }
    same("a first fragment", &Config::default(), &frames);
}

/// The module does not read the content of extension headers, such as a home address (RFC 6275). Frames with
/// such headers pass after the held segments of their flow: whole segments, TCP headers that are malformed or
/// cut short, fragments.
#[test]
fn nothing_overtakes_behind_extension_headers() {
    let home_address = [&[IpProtocol::TCP.0, 2, 1, 2, 0, 0, 0xC9, 16][..], &[0xFD; 16]].concat();
    let padding = vec![IpProtocol::TCP.0, 0, 1, 4, 0, 0, 0, 0];
    let fragment =
        |offset_and_more: [u8; 2]| [&[IpProtocol::TCP.0, 0][..], &offset_and_more, &[0, 0, 0, 7]].concat();
    let (options, hop_by_hop) = (IpProtocol::DESTINATION_OPTIONS, IpProtocol::HOP_BY_HOP);
    let mut chains = Vec::new();
    for (kind, header) in [(options, &home_address), (options, &padding), (hop_by_hop, &padding)] {
        chains.push(vec![(kind, header.clone())]);
        for field in [[0, 0], [0, 1], [1, 0]] {
            let fragment = (IpProtocol::FRAGMENT, fragment(field));
            chains.push(vec![(kind, header.clone()), fragment.clone()]);
            chains.push(vec![fragment, (kind, header.clone())]);
        }
    }
    for chain in chains {
        let mut segment = over_ipv6(data(100, 100));
        if let Network::Ipv6 { next_header, extensions, .. } = &mut segment.network {
            *next_header = chain[0].0;
            for (nth, (_, header)) in chain.iter().enumerate() {
                let start = extensions.len();
                extensions.extend(header);
                extensions[start] = chain.get(nth + 1).map_or(IpProtocol::TCP, |(kind, _)| *kind).0;
            }
        }
        let whole = segment.build();
        let tcp = whole.len() - 120;
        let mut frames = vec![whole.clone()];
        for data_offset in 0..16 {
            let mut malformed = whole.clone();
            malformed[tcp + 12] = data_offset << 4;
            for len in [20, 120] {
                let mut malformed = malformed.clone();
                malformed.truncate(tcp + len);
                malformed[18..20].copy_from_slice(&((tcp + len - 54) as u16).to_be_bytes());
                frames.push(malformed);
            }
        }
        for len in 0..20 {
            let mut cut = whole[..tcp + len].to_vec();
            cut[18..20].copy_from_slice(&((tcp + len - 54) as u16).to_be_bytes());
            frames.push(cut);
        }
        // Each frame arrives while an aggregate of its flow is in the store.
        let frames: Vec<_> =
            frames.into_iter().flat_map(|frame| [over_ipv6(data(0, 100)).build(), frame]).collect();
        same("behind extension headers", &Config::default(), &frames);
    }
}

#[test]
fn options_in_any_layout() {
    const TS: [u8; 10] = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut layouts: Vec<Vec<u8>> = Vec::new();
    for before in 0..=30 {
        for behind in 0..=30usize {
            let len: usize = before + 10 + behind;
            if len.is_multiple_of(4) && len <= 40 {
                layouts.push([&vec![1; before][..], &TS, &vec![1; behind]].concat());
                layouts.push([&vec![1; before][..], &TS, &vec![0; behind]].concat());
                let ended = |last| {
                    [
                        &vec![1; before][..],
                        &TS,
                        &vec![1; behind / 2],
                        &vec![0; behind - behind / 2 - 1],
                        &[last],
                    ]
                    .concat()
                };
                if behind > 1 {
                    layouts.extend([ended(0), ended(1), ended(8)]);
                }
                // NOPs in the four bytes behind those with the end of the list.
                for next in [[1, 0, 0, 0], [1; 4]] {
                    if behind > 0 && len < 40 {
                        layouts.push([&vec![1; before][..], &TS, &vec![0; behind], &next].concat());
                    }
                }
                let mut other = [&vec![1; before][..], &TS, &vec![1; behind]].concat();
                other[before + 1] = 9;
                layouts.push(other);
            }
        }
    }
    layouts.extend([vec![1; 4], vec![0; 4], vec![1, 1, 1, 0], vec![8, 10, 0, 0], [TS, TS].concat()]);
    let frame = |at, options: &Vec<u8>| TcpFrame { options: options.clone(), ..data(at, 100) }.build();
    let frames: Vec<_> =
        layouts.iter().flat_map(|options| [frame(0, options), frame(100, options)]).collect();
    same("options", &Config::default(), &frames);
    let mixed: Vec<_> =
        layouts.windows(2).flat_map(|pair| [frame(0, &pair[0]), frame(100, &pair[1])]).collect();
    same("two layouts", &Config::default(), &mixed);
}

#[test]
fn frames_of_every_length_and_realignment() {
    for len in (1..40).chain([100, 119, 120, 121, 1448, 8946]) {
        for first in 0..8 {
            let mut frames = vec![data(0, 50 + first).build()];
            let at = |nth: usize| (50 + first + nth * len) as u32;
            frames.extend((0..4).map(|nth| data(at(nth), len).build()));
            same("a length", &Config::default(), &frames);
        }
    }
}

#[test]
fn sequence_numbers_and_acks_wrap() {
    let mut frames = Vec::new();
    for (ack, window) in
        [(u32::MAX, 1), (3, 2), (u32::MAX - 5, 3), (3, 4), (0x8000_0003, 5), (0x8000_0002, 6)]
    {
        let at = frames.len() as u32 * 100;
        let mut frame = data(at, 100);
        frame.seq = SeqNumber(at.wrapping_sub(250));
        (frame.ack, frame.window) = (SeqNumber(ack), window);
        frame.flags = TcpFlags::ACK;
        frames.push(frame.build());
    }
    same("numbers", &Config::default(), &frames);
}

/// Two segments whose aggregate has a TCP checksum of 0.
#[test]
fn aggregates_with_a_tcp_checksum_of_zero() {
    for (first, second) in [(100, 100), (101, 100), (9, 8)] {
        for mut whole in [data(0, first + second), over_ipv6(data(0, first + second))] {
            let place = first.next_multiple_of(2);
            whole.payload[place..place + 2].fill(0);
            let bytes = whole.build();
            let at = bytes.len() - whole.payload.len() - 4;
            whole.payload[place..place + 2].copy_from_slice(&bytes[at..at + 2]);
            assert_eq!(whole.build()[at..at + 2], [0, 0]);
            let mut segments = [whole.clone(), whole];
            segments[0].payload.truncate(first);
            segments[1].payload.drain(..first);
            segments[1].seq += first as u32;
            same("a TCP checksum of 0", &Config::default(), &segments.map(|segment| segment.build()));
        }
    }
}

/// The sum of an aggregate's IPv4 header is 0x1FFFF before it is folded: folding carries again.
#[test]
fn aggregates_whose_ipv4_sum_carries_twice() {
    for len in [1, 100, 1448] {
        let segment = |at: usize, number: u16| {
            let mut frame = data(at as u32, len);
            if let Network::Ipv4 { ident, .. } = &mut frame.network {
                *ident = number;
            }
            frame.build()
        };
        // The lengths differ by `len`; so the first header's checksum must be `len` − 1.
        let wanted = len as u16 - 1;
        let frame = segment(0, 0);
        let ident = u32::from(!wanted) + u32::from(u16::from_be_bytes([frame[24], frame[25]]));
        let ident = (ident >> 16) as u16 + ident as u16;
        let first = segment(0, ident);
        assert_eq!(first[24..26], wanted.to_be_bytes());
        same("an IPv4 sum", &Config::default(), &[first, segment(len, ident.wrapping_add(1))]);
    }
}

/// Each byte of TSval grows, and falls again, wherever the option stands.
#[test]
fn timestamps_go_back_at_any_place() {
    for before in 0..8 {
        for byte in 0..4 {
            let frame = |nth: u32, value: u32| {
                let mut options = vec![1; before];
                options.extend([8, 10]);
                options.extend(value.to_be_bytes());
                options.extend([0, 0, 0, 1]);
                options.resize(options.len().next_multiple_of(4), 1);
                TcpFrame { options, ..data(100 * nth, 100) }.build()
            };
            let (low, high) = (0x4040_4040, 0x4040_4040 + (1 << (8 * byte)));
            let frames = [frame(0, low), frame(1, high), frame(2, low), frame(3, low), frame(4, high)];
            same("timestamps", &Config::default(), &frames);
        }
    }
}
