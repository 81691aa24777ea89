//! TCP in tunnels, in `gro`: merged as without, and re-created bit for bit.

use crate::common::{Card, Change, Sent, data, each_profile, ms};
use crate::generated::tunnel::{Tunnel, Wrapping};
use nichrome_lro::{Config, FlushReason, Hold, Medium, PassReason, Profile, ProfileConfig};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{Network, TcpFrame};

const WRAPPINGS: [Wrapping; 3] = [Wrapping::Ipv4, Wrapping::Ipv6, Wrapping::Pppoe];

fn card() -> Card {
    let config = Config { tunnels: true, ..Config::default() };
    Card::new(&config, &ProfileConfig::Gro(Hold::For(ms(1))))
}

fn wrap(segment: &TcpFrame, wrapping: Wrapping, ident: u16) -> Vec<u8> {
    Tunnel { wrapping, ident, step: 0 }.wrap(&segment.build(), Medium::Ethernet, segment.tags.len())
}

/// Payload lengths of what came out: what is behind the TCP header, whose place `headers` tells.
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
            // Lengths and checksums of the headers outside, as a receiver checks them.
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
    let mut card = self::card();
    let mut too_long = wrap(&data(100, 100), Wrapping::Pppoe, 0);
    too_long[19] += 1;
    card.receive_bytes(wrap(&data(0, 100), Wrapping::Pppoe, 0)).receive_bytes(too_long);
    assert_eq!((card.take().len(), card.passes(PassReason::NotTcp)), (1, 1));
}

#[test]
fn a_tunnel_whose_header_has_options_is_not_looked_into() {
    // Options that look like another header of IPv4 with all that follows.
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
    assert_eq!((card.take().len(), card.passes(PassReason::NotTcp)), (2, 2));
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

/// Whatever is merged, the verifier compares with what was received: each bit of the tunnel's header, in the second of three
/// segments.
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
            // One of these bits makes the identification that of the first segment.
            let is_ident = wrapping == Wrapping::Ipv4 && (4..6).contains(&(bit / 8));
            assert!(!merged || is_ident, "{wrapping:?}: bit {bit}");
        }
    }
}
