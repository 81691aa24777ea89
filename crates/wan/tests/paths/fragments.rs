//! IPv4 packets without DF on a path with an MTU.

use nichrome_wan::{DropReason, Impairments, Output, Path};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Instant, Network, TcpFrame};

use crate::common::of;

fn frame(dont_fragment: bool) -> Vec<u8> {
    let mut network = Network::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    if let Network::Ipv4 { dont_fragment: flag, .. } = &mut network {
        *flag = dont_fragment;
    }
    TcpFrame { network, payload: vec![7; 1460], ..TcpFrame::default() }.build()
}

/// Returns lengths of released packets, reasons of dropped ones, and the path.
fn through(impairments: &Impairments, frames: &[Vec<u8>]) -> (Vec<usize>, Vec<DropReason>, Path<Vec<u8>>) {
    let mut path = Path::new(impairments, 1).unwrap();
    let (mut released, mut dropped) = (Vec::new(), Vec::new());
    let mut take = |_, output| match output {
        Output::Released(departure) => released.push(Vec::len(&departure.packet) - 14),
        Output::Dropped { reason, .. } => dropped.push(reason),
    };
    for frame in frames {
        deliver(&mut path, frame.clone(), Instant::ZERO, &mut take);
    }
    advance(&mut path, Instant::MAX, &mut take);
    assert_eq!(path.in_flight(), 0);
    let stats = path.stats();
    let entered = stats.packets_in - stats.fragmented + stats.fragments + stats.duplicated;
    assert_eq!(entered, stats.packets_out + stats.drops.total());
    assert_eq!(stats.bytes_in, frames.iter().map(|frame| frame.len() as u64).sum());
    assert_eq!(stats.bytes_out, released.iter().map(|len| *len as u64 + 14).sum());
    (released, dropped, path)
}

#[test]
fn a_packet_without_df_is_fragmented_and_others_are_dropped() {
    let impairments = Impairments { mtu: Some(of("600")), delay: of("1ms"), ..Impairments::default() };
    let (released, dropped, path) = through(&impairments, &[frame(false), frame(true)]);
    assert_eq!((released, dropped), (vec![596, 596, 348], vec![DropReason::Mtu]));
    assert_eq!((path.stats().fragmented, path.stats().fragments, path.stats().reordered), (1, 3, 0));
}

#[test]
fn each_fragment_meets_the_stages_behind_the_mtu() {
    let impairments =
        Impairments { mtu: Some(of("600")), loss: Some(of("packets:2")), ..Impairments::default() };
    let (released, dropped, _) = through(&impairments, &[frame(false)]);
    assert_eq!((released, dropped), (vec![596, 348], vec![DropReason::Loss]));
}

#[test]
fn a_packet_with_more_fragments_than_may_be_on_their_way_is_dropped() {
    let limited = |limit| Impairments { mtu: Some(of("600")), limit: of(limit), ..Impairments::default() };
    let (released, dropped, _) = through(&limited("2"), &[frame(false)]);
    assert_eq!((released, dropped), (vec![], vec![DropReason::InFlightLimit]));
    let (released, dropped, _) = through(&limited("3"), &[frame(false)]);
    assert_eq!((released, dropped), (vec![596, 596, 348], vec![]));
}
