//! The engines verify the IPv4 header checksum of every frame, whatever the status of its TCP or UDP
//! checksum.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::common::{Card, Change, Sent, data, each_profile, ms};
use crate::generated::exchange::datagram;
use crate::generated::tunnel::{Tunnel, Wrapping};
use nichrome_lro::{
    BadChecksum, ChecksumStatus, Config, DropReason, Frame, Hold, Medium, PassReason, ProfileConfig,
};
use nichrome_wire::{Network, SeqNumber, TcpFrame, VlanTag};

const STATUSES: [ChecksumStatus; 3] =
    [ChecksumStatus::Unknown, ChecksumStatus::Verified, ChecksumStatus::Unfinished];

/// Kinds of frames, and which of their IPv4 header checksums may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Timestamps,
    Tagged,
    /// The header of an IPv4 tunnel.
    Tunnel,
    /// The header within an IPv4 tunnel.
    Tunneled,
    Datagram,
}

const KINDS: [Kind; 6] =
    [Kind::Plain, Kind::Timestamps, Kind::Tagged, Kind::Tunnel, Kind::Tunneled, Kind::Datagram];

impl Kind {
    fn is_for(self, profile: &ProfileConfig) -> bool {
        matches!(self, Self::Plain | Self::Timestamps | Self::Tagged)
            || matches!(profile, ProfileConfig::Gro(_))
    }

    /// The `nth` frame of a flow, whose payload begins with port and number.
    fn frame(self, nth: u16, port: u16, rising_acks: bool) -> Vec<u8> {
        let segment = data(u32::from(nth) * 100, 100).with(|frame| {
            frame.src_port = port;
            frame.payload[..4].copy_from_slice(&number(port, nth));
            if rising_acks {
                frame.ack = SeqNumber(u32::from(nth));
            }
            if let Network::Ipv4 { ident, .. } = &mut frame.network {
                *ident = nth.wrapping_sub(3);
            }
        });
        let tags = vec![VlanTag { tpid: nichrome_wire::EtherType::VLAN, tci: 5 }];
        match self {
            Self::Plain => segment.build(),
            Self::Timestamps => segment.timestamps(7, 9).build(),
            Self::Tagged => TcpFrame { tags, ..segment }.build(),
            Self::Tunnel | Self::Tunneled => {
                let mut tunnel = Tunnel { wrapping: Wrapping::Ipv4, ident: nth, step: 0 };
                tunnel.wrap(&segment.build(), Medium::Ethernet, 0)
            }
            Self::Datagram => datagram(&segment, Medium::Ethernet),
        }
    }

    /// Flips a bit of the IPv4 header checksum.
    fn corrupt(self, frame: &mut [u8], bit: usize) {
        let network = match self {
            Self::Plain | Self::Timestamps | Self::Tunnel | Self::Datagram => 14,
            Self::Tagged => 18,
            Self::Tunneled => 34,
        };
        frame[network + 10 + bit / 8] ^= 1 << (bit % 8);
    }
}

/// The first bytes of a frame's payload.
fn number(port: u16, nth: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (port.to_be_bytes(), nth.to_be_bytes());
    [a, b, c, d]
}

fn config() -> Config {
    Config { udp: true, tunnels: true, ..Config::default() }
}

/// Returns how many of the frames with these numbers were merged.
fn merged(sent: &[Sent], corrupt: &HashSet<[u8; 4]>) -> usize {
    let aggregates = sent.iter().filter_map(|sent| match sent {
        Sent::Merged(merged) => Some(merged),
        _ => None,
    });
    let payloads = aggregates.flat_map(|merged| merged.payloads.iter());
    payloads.filter(|payload| corrupt.contains(&payload[..4])).count()
}

#[test]
fn a_frame_with_a_wrong_ipv4_checksum_is_not_merged_and_is_counted() {
    let cases = STATUSES.iter().flat_map(|status| KINDS.iter().map(move |kind| (*status, *kind)));
    for (status, kind) in cases {
        for bad in 0..3 {
            let frames: Vec<Frame<Vec<u8>>> = (0..6)
                .map(|nth| {
                    let mut buffer = kind.frame(nth, 1, false);
                    if usize::from(nth) == bad {
                        kind.corrupt(&mut buffer, 3);
                    }
                    Frame { buffer, checksum: status }
                })
                .collect();
            for profile in each_profile(ms(1)).into_iter().filter(|profile| kind.is_for(profile)) {
                for (action, together) in [BadChecksum::Pass, BadChecksum::Drop]
                    .into_iter()
                    .flat_map(|action| [(action, false), (action, true)])
                {
                    let config = Config { bad_checksum: Some(action), ..config() };
                    let mut card = Card::new(&config, &profile);
                    if together {
                        card.receive_frames(frames.clone());
                    } else {
                        frames.iter().cloned().for_each(|frame| _ = card.receive_frame(frame));
                    }
                    card.drain();
                    let case = format!("{status:?}, {kind:?}, {bad}, {profile:?}, {action:?}, {together}");
                    let counted = (card.passes(PassReason::BadChecksum), card.drops(DropReason::IpChecksum));
                    let expected = if action == BadChecksum::Pass { (1, 0) } else { (0, 1) };
                    assert_eq!(counted, expected, "{case}");
                    let single = |sent: &Sent| match sent {
                        Sent::Frame(frame) | Sent::Dropped(frame, _) => *frame == frames[bad].buffer,
                        _ => false,
                    };
                    assert_eq!(card.take().iter().filter(|sent| single(sent)).count(), 1, "{case}");
                }
            }
        }
    }
}

/// A received frame of the property test: its flow, its status, and the bit of the IPv4 checksum that is
/// wrong, if any.
type Received = (u16, usize, Option<usize>);

fn received() -> impl Strategy<Value = Received> {
    let wrong = prop_oneof![4 => Just(None), 1 => (0usize..16).prop_map(Some)];
    (prop_oneof![Just(1u16), 1u16..4, 1u16..40], 0usize..3, wrong)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn no_engine_merges_a_frame_with_a_wrong_ipv4_checksum(
        kind in proptest::sample::select(KINDS.to_vec()),
        rising_acks: bool,
        holds_batches: bool,
        bursts in proptest::collection::vec(proptest::collection::vec(received(), 1..40), 1..5),
    ) {
        let gro = ProfileConfig::Gro(if holds_batches { Hold::Batch } else { Hold::For(ms(1)) });
        let profiles = each_profile(ms(1)).into_iter().skip(1).chain([gro]);
        for profile in profiles.filter(|profile| kind.is_for(profile)) {
            let mut card = Card::new(&config(), &profile);
            let mut next = [0u16; 40];
            let mut corrupt = HashSet::new();
            for burst in &bursts {
                let frames = burst.iter().map(|(port, status, wrong)| {
                    let nth = &mut next[usize::from(*port)];
                    let mut buffer = kind.frame(*nth, *port, rising_acks);
                    if let Some(bit) = wrong {
                        kind.corrupt(&mut buffer, *bit);
                        corrupt.insert(number(*port, *nth));
                    }
                    *nth += 1;
                    Frame { buffer, checksum: STATUSES[*status] }
                });
                let frames = frames.collect();
                card.receive_frames(frames).end_batch();
            }
            card.drain();
            let sent = card.take();
            prop_assert_eq!(merged(&sent, &corrupt), 0, "{:?}", profile);
        }
    }
}
