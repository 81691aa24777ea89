//! TCP in tunnels, in `gro`: merged as without a tunnel, and re-created bit for bit.

use crate::common::{Card, Change, Sent, data, each_profile, ms};
use crate::generated::tunnel::{Tunnel, Wrapping};
use nichrome_lro::{Config, FlushReason, Hold, Medium, PassReason, Profile, ProfileConfig};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{IpProtocol, Network, TcpFrame};

const WRAPPINGS: [Wrapping; 3] = [Wrapping::Ipv4, Wrapping::Ipv6, Wrapping::Pppoe];

fn card() -> Card {
    let config = Config { tunnels: true, ..Config::default() };
    Card::new(&config, &ProfileConfig::Gro(Hold::For(ms(1))))
}

fn wrap(segment: &TcpFrame, wrapping: Wrapping, ident: u16) -> Vec<u8> {
    Tunnel { wrapping, ident, step: 0 }.wrap(&segment.build(), Medium::Ethernet, segment.tags.len())
}

/// Returns the payload lengths of the outputs: the bytes behind `headers` bytes of headers.
fn take_lens(card: &mut Card, headers: usize) -> Vec<usize> {
    card.take().iter().map(|sent| sent.bytes().len() - headers).collect()
}

#[test]
fn segments_are_merged_in_every_tunnel_and_re_created() {
    for (wrapping, outer) in WRAPPINGS.into_iter().zip([20, 40, 8]) {
        for segment in [data(0, 100), data(0, 100).over_ipv6(), data(0, 100).timestamps(1, 2)] {
            let mut card = card();
            let frames: Vec<_> =
                (0..4).map(|nth| wrap(&segment.clone().at(nth * 100, 100), wrapping, nth as u16)).collect();
            let [one, others @ ..] = &frames[..] else { panic!() };
            card.receive_bytes(one.clone()).receive_batch(others).drain();
            let sent = card.take_one();
            let (merged, headers) = (sent.merged(), one.len() - 100);
            assert_eq!((&merged.recreated, merged.packet.len()), (&frames, headers + 400), "{wrapping:?}");
            let transport = headers - 20 - segment.options.len();
            assert_eq!(usize::from(merged.virtio.csum_start), transport);
            // Checks lengths and checksums of the outer headers, as a receiver does.
            let header = &merged.packet[14..14 + outer];
            let within = (merged.packet.len() - 14 - outer) as u16;
            match wrapping {
                Wrapping::Ipv4 => {
                    assert_eq!((checksum(header), &header[2..4]), (0, &(within + 20).to_be_bytes()[..]));
                }
                Wrapping::Ipv6 => assert_eq!(header[4..6], within.to_be_bytes()),
                Wrapping::Pppoe => assert_eq!(header[4..6], (within + 2).to_be_bytes()),
            }
        }
    }
}

#[test]
fn tunnels_are_passed_where_the_option_is_off_and_by_the_other_profiles() {
    for wrapping in WRAPPINGS {
        for (tunnels, profile) in
            each_profile(ms(1)).into_iter().flat_map(|profile| [(false, profile), (true, profile)])
        {
            let mut card = Card::new(&Config { tunnels, ..Config::default() }, &profile);
            for nth in 0..2 {
                card.receive_bytes(wrap(&data(nth * 100, 100), wrapping, 0));
            }
            let merges = tunnels && profile.profile() == Profile::Gro;
            assert_eq!(card.drain().take().len(), if merges { 1 } else { 2 });
            assert_eq!(card.passes(PassReason::NotTcp), if merges { 0 } else { 2 });
        }
    }
}

/// As Linux: the rule for identifications holds for both headers.
#[test]
fn the_identifications_of_a_tunnel_are_the_same_or_go_up_by_one() {
    for (idents, expected) in [
        ([8, 9, 10], vec![300]),
        ([8, 8, 8], vec![300]),
        ([8, 9, 9], vec![200, 100]),
        ([8, 8, 9], vec![200, 100]),
        ([8, 10, 12], vec![100, 100, 100]),
    ] {
        let mut card = card();
        for (nth, ident) in (0..).zip(idents) {
            card.receive_bytes(wrap(&data(nth * 100, 100), Wrapping::Ipv4, ident));
        }
        card.drain();
        assert_eq!(take_lens(&mut card, 14 + 20 + 40), expected, "{idents:?}");
    }
}

#[test]
fn an_aggregate_in_a_tunnel_fits_its_length_fields() {
    for (wrapping, counted) in WRAPPINGS.into_iter().zip([20, 40, 2]) {
        let mut card = card();
        for nth in 0..66 {
            card.receive_bytes(wrap(&data(nth * 1000, 1000), wrapping, 0));
        }
        let first = card.take()[0].bytes().len();
        assert_eq!(first, 65_000 + wrap(&data(0, 1000), wrapping, 0).len() - 1000);
        assert!(65_000 + 40 + counted <= 65_535);
        assert_eq!(card.flushes(FlushReason::MaxLength), 1);
        // One more byte than fits.
        let mut card = self::card();
        let most = 65_535 - 40 - counted - 65_000;
        for (len, last) in [(most, vec![65_000 + most]), (most + 1, vec![65_000, most + 1])] {
            for nth in 0..65 {
                card.receive_bytes(wrap(&data(nth * 1000, 1000), wrapping, 0));
            }
            card.receive_bytes(wrap(&data(65_000, len), wrapping, 0)).drain();
            let headers = wrap(&data(0, 0), wrapping, 0).len();
            assert_eq!(take_lens(&mut card, headers), last, "{wrapping:?}");
        }
    }
}

#[test]
fn what_is_wrong_about_a_tunnel_flushes_the_flow_or_belongs_to_none() {
    let mut card = card();
    let mut wrong = wrap(&data(100, 100), Wrapping::Ipv4, 0);
    wrong[24] ^= 1; // header checksum
    card.receive_bytes(wrap(&data(0, 100), Wrapping::Ipv4, 0)).receive_bytes(wrong);
    assert_eq!((card.take().len(), card.passes(PassReason::BadChecksum)), (2, 1));
    for wrapping in WRAPPINGS {
        let mut padded = wrap(&data(100, 100), wrapping, 0);
        padded.push(0);
        let mut card = self::card();
        card.receive_bytes(wrap(&data(0, 100), wrapping, 0)).receive_bytes(padded);
        assert_eq!((card.take().len(), card.passes(PassReason::Trailer)), (2, 1), "{wrapping:?}");
    }
    // The packet ends before its tunnel.
    for (wrapping, length) in WRAPPINGS.into_iter().zip([16, 18, 18]) {
        let mut longer = wrap(&data(100, 100), wrapping, 0);
        longer.push(0);
        longer[length + 1] += 1;
        if wrapping == Wrapping::Ipv4 {
            longer[24..26].fill(0);
            let sum = checksum(&longer[14..34]);
            longer[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let mut card = self::card();
        card.receive_bytes(wrap(&data(0, 100), wrapping, 0)).receive_bytes(longer);
        assert_eq!((card.take().len(), card.passes(PassReason::Trailer)), (2, 1), "{wrapping:?}");
    }
    let mut card = self::card();
    let mut too_long = wrap(&data(100, 100), Wrapping::Pppoe, 0);
    too_long[19] += 1;
    card.receive_bytes(wrap(&data(0, 100), Wrapping::Pppoe, 0)).receive_bytes(too_long);
    assert_eq!((card.take().len(), card.passes(PassReason::NotTcp)), (1, 1));
}

#[test]
fn a_packet_whose_tunnel_header_has_options_is_passed_after_what_its_connection_holds() {
    // Options that look like another IPv4 header.
    let outer = TcpFrame { payload: Vec::new(), ..data(0, 0) }.build()[14..34].to_vec();
    let mut frames = [0, 100].map(|at| {
        let mut frame = wrap(&data(at, 100), Wrapping::Ipv4, 0);
        frame[14] = 0x4A;
        frame.splice(34..34, outer.iter().copied());
        let len = frame.len() as u16;
        frame[16..18].copy_from_slice(&(len - 14).to_be_bytes());
        frame[36..38].copy_from_slice(&(len - 34).to_be_bytes());
        frame
    });
    for frame in &mut frames {
        for header in [14..54, 34..54] {
            frame[header.start + 10..header.start + 12].fill(0);
            let sum = checksum(&frame[header.clone()]);
            frame[header.start + 10..header.start + 12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let mut card = card();
    card.receive_batch(&frames);
    assert_eq!((card.take().len(), card.passes(PassReason::IpOptions)), (2, 2));
    card.receive_bytes(wrap(&data(0, 100), Wrapping::Ipv4, 0)).receive_bytes(frames[1].clone());
    let sent = card.take();
    assert_eq!((sent.len(), &sent[1]), (2, &Sent::Frame(frames[1].clone())));
}

#[test]
fn a_packet_whose_ipv6_tunnel_header_has_options_is_passed_after_what_its_connection_holds() {
    let mut frame = wrap(&data(100, 100), Wrapping::Ipv6, 0);
    // A tunnel encapsulation limit (RFC 2473 section 4.1.1), as Linux sends it.
    let limit = [frame[20], 0, 4, 1, 4, 1, 1, 0];
    frame[20] = IpProtocol::DESTINATION_OPTIONS.0;
    frame[19] += 8;
    frame.splice(54..54, limit);
    let mut card = card();
    card.receive_bytes(wrap(&data(0, 100), Wrapping::Ipv6, 0)).receive_bytes(frame.clone());
    let sent = card.take();
    assert_eq!((sent.len(), sent.get(1)), (2, Some(&Sent::Frame(frame))));
    assert_eq!(card.passes(PassReason::IpOptions), 1);
}

/// The fragments of a frame in a tunnel, of 72 bytes and the rest.
fn fragments(segment: &TcpFrame, wrapping: Wrapping) -> [Vec<u8>; 2] {
    let whole = wrap(segment, wrapping, 0);
    match wrapping {
        Wrapping::Ipv4 => [(0..72, [0x20, 0]), (72..whole.len() - 34, [0, 9])].map(|(range, field)| {
            let mut frame = [&whole[..34], &whole[34..][range]].concat();
            let total = frame.len() as u16 - 14;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame[20..22].copy_from_slice(&field);
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        }),
        Wrapping::Ipv6 => [(0..72, [0, 1]), (72..whole.len() - 54, [0, 72])].map(|(range, [high, low])| {
            let header = [whole[20], 0, high, low, 0, 0, 0, 7];
            let mut frame = [&whole[..54], &header, &whole[54..][range]].concat();
            let payload = frame.len() as u16 - 54;
            frame[18..20].copy_from_slice(&payload.to_be_bytes());
            frame[20] = IpProtocol::FRAGMENT.0;
            frame
        }),
        Wrapping::Pppoe => panic!("PPPoE has no fragments"),
    }
}

#[test]
fn the_first_fragment_of_a_tunnels_packet_is_passed_after_what_its_connection_holds() {
    for wrapping in [Wrapping::Ipv4, Wrapping::Ipv6] {
        for segment in [data(0, 100), data(0, 100).over_ipv6()] {
            let [first, later] = fragments(&segment.clone().at(200, 100), wrapping);
            for together in [false, true] {
                let held = [0, 100].map(|at| wrap(&segment.clone().at(at, 100), wrapping, 0));
                let mut card = card();
                card.receive_all(&held, together).receive_bytes(later.clone());
                assert_eq!(card.take(), [Sent::Frame(later.clone())], "it is not known to be of the flow");
                card.receive_bytes(first.clone());
                let sent = card.take();
                assert_eq!(sent.len(), 2, "{wrapping:?}");
                assert_eq!((sent[0].merged().payloads.len(), &sent[1]), (2, &Sent::Frame(first.clone())));
                assert_eq!(card.passes(PassReason::Fragment), 2, "{wrapping:?}");
            }
        }
    }
}

/// The engine reads only the headers up to TCP's, wherever the fragment ends.
#[test]
fn a_first_fragment_of_any_length_is_passed() {
    for wrapping in [Wrapping::Ipv4, Wrapping::Ipv6] {
        let [first, _] = fragments(&data(100, 100), wrapping);
        let mut card = card();
        for len in 0..first.len() {
            card.receive_bytes(first[..len].to_vec());
            assert_eq!(card.take(), [Sent::Frame(first[..len].to_vec())]);
        }
    }
}

#[test]
fn a_connection_in_a_tunnel_is_another_than_the_same_outside() {
    for wrapping in WRAPPINGS {
        let mut card = card();
        let inside = |at: u32| wrap(&data(at, 100), wrapping, (at / 100) as u16);
        card.receive_bytes(inside(0)).receive(&data(100, 100)).receive_bytes(inside(100)).drain();
        assert_eq!(card.take().len(), 2, "{wrapping:?}");
    }
}

#[test]
fn tunnels_with_the_same_connection_within_are_not_merged() {
    let mut card = card();
    let mut other = wrap(&data(100, 100), Wrapping::Ipv6, 0);
    other[30] ^= 1; // address of the sender
    card.receive_bytes(wrap(&data(0, 100), Wrapping::Ipv6, 0)).receive_bytes(other).drain();
    assert_eq!(card.take().len(), 2);
}

/// Flips each bit of the tunnel's header in the second of three segments. If the segments merge, the verifier
/// compares the re-created frames with the received ones.
#[test]
fn a_tunnel_header_that_differs_in_a_bit_is_re_created() {
    let config = Config { tunnels: true, max_connections: 64, max_aggregates: 8, ..Config::default() };
    for (wrapping, outer) in WRAPPINGS.into_iter().zip([20, 40, 8]) {
        for (bit, is_batch) in (0..outer * 8).flat_map(|bit| [(bit, false), (bit, true)]) {
            let mut frames = [0, 1, 2].map(|nth| {
                let segment = data(u32::from(nth) * 100, 100).with(|frame| {
                    if let Network::Ipv4 { ident, .. } = &mut frame.network {
                        *ident = nth;
                    }
                });
                wrap(&segment, wrapping, nth)
            });
            frames[1][14 + bit / 8] ^= 0x80 >> (bit % 8);
            if wrapping == Wrapping::Ipv4 && !(10..12).contains(&(bit / 8)) {
                let header = &mut frames[1][14..34];
                header[10..12].fill(0);
                let sum = checksum(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let mut card = Card::new(&config, &ProfileConfig::Gro(Hold::For(ms(1))));
            if is_batch {
                card.receive_batch(&frames);
            } else {
                frames.iter().for_each(|frame| _ = card.receive_bytes(frame.clone()));
            }
            let merged = card.drain().take().iter().any(|sent| match sent {
                Sent::Merged(merged) => merged.recreated.contains(&frames[1]),
                _ => false,
            });
            // Flipping one of these bits gives the segment the first one's identification.
            let is_ident = wrapping == Wrapping::Ipv4 && (4..6).contains(&(bit / 8));
            assert!(!merged || is_ident, "{wrapping:?}: bit {bit}");
        }
    }
}
