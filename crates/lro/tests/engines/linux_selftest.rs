//! The cases of the Linux kernel's selftest of receive offload (tools/testing/selftests, `gro.c`), applied to
//! `gro`: the same segments, and the same payload lengths of the packets that come out before the closing
//! FIN.

use crate::common::{Card, Change, ms, pattern, tcp};
use nichrome_lro::{Config, Hold, ProfileConfig};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{FlowLabel, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass};

/// Payload of most segments in bytes.
const L: usize = 100;

/// An action of the sender.
enum Step {
    Send(Vec<u8>),
    Wait100Ms,
}

use Step::{Send, Wait100Ms};

/// A case: its name, the sender's steps, and the expected payload lengths.
struct Case {
    name: &'static str,
    steps: Vec<Step>,
    expected: Vec<usize>,
}

fn case(name: &'static str, frames: impl IntoIterator<Item = TcpFrame>, expected: &[usize]) -> Case {
    let steps = frames.into_iter().map(|frame| Send(frame.build())).collect();
    Case { name, steps, expected: expected.to_vec() }
}

/// The two IP versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

const BOTH: [Ip; 2] = [Ip::V4, Ip::V6];

impl Ip {
    /// A segment with `len` bytes, `at` bytes into the stream.
    fn segment(self, at: u32, len: usize) -> TcpFrame {
        let network = match self {
            Self::V4 => Network::ipv4([192, 168, 1, 200].into(), [192, 168, 1, 100].into()),
            Self::V6 => Network::ipv6("fdaa::2".parse().unwrap(), "fdaa::1".parse().unwrap()),
        };
        let seq = SeqNumber(100) + at;
        TcpFrame {
            network,
            src_port: 1500,
            dst_port: 8000,
            seq,
            ack: SeqNumber(100),
            window: u16::MAX,
            payload: pattern(seq, len),
            ..TcpFrame::default()
        }
    }

    /// The nth segment of the usual length.
    fn nth(self, nth: u32) -> TcpFrame {
        self.segment(nth * L as u32, L)
    }

    /// Five segments. The third has these flags and `len` bytes of payload.
    fn with_flags(self, flags: TcpFlags, len: usize) -> Vec<TcpFrame> {
        let special = self.segment(2 * len as u32, len).flags(flags);
        vec![self.nth(0), self.nth(1), special, self.nth(3), self.nth(4)]
    }
}

/// Sends a case's frames and the FIN after them; panics if other payload lengths come out before the FIN.
fn check(ip: Ip, case: Case) {
    check_with(&Config::default(), ip, case);
}

/// As [`check`] with this configuration.
fn check_with(config: &Config, ip: Ip, case: Case) {
    let Case { name, steps, expected } = case;
    let mut card = Card::new(config, &ProfileConfig::Gro(Hold::For(ms(50))));
    for step in steps {
        match step {
            Send(frame) => _ = card.receive_bytes(frame),
            Wait100Ms => _ = card.wait(ms(100)),
        }
    }
    card.receive(&ip.segment(2 * L as u32, 0).flags(TcpFlags::FIN));
    let mut packets: Vec<_> = card.take().iter().map(|sent| lengths(sent.bytes())).collect();
    assert_eq!(packets.pop(), Some((0, true)), "{name}, {ip:?}: the FIN comes last");
    let got: Vec<usize> = packets.into_iter().map(|(len, _)| len).collect();
    assert_eq!(got, expected, "{name}, {ip:?}");
}

/// Returns the payload length and true if FIN is set, for whole segments and first fragments.
fn lengths(frame: &[u8]) -> (usize, bool) {
    let fragment = match frame[14] >> 4 {
        4 => frame[20] & 0x20 != 0,
        _ => frame[20] == IpProtocol::FRAGMENT.0,
    };
    if fragment {
        let headers = if frame[14] >> 4 == 4 { 14 + 20 + 20 } else { 14 + 40 + 8 + 20 };
        return (frame.len() - headers, false);
    }
    let segment = tcp(frame);
    (segment.payload.len(), segment.flags.contains(TcpFlags::FIN))
}

#[test]
fn data() {
    for ip in BOTH {
        let burst = [0, 1, 2, 3].map(|nth| Send(ip.nth(nth).build()));
        let mut steps = Vec::from(burst);
        steps.insert(2, Wait100Ms);
        let cases = [
            case("same_lengths_merge", [ip.nth(0), ip.nth(1)], &[2 * L]),
            case("a_smaller_one_joins_a_larger", [ip.nth(0), ip.segment(L as u32, L / 2)], &[L + L / 2]),
            case("one_byte_joins_a_larger", [ip.nth(0), ip.segment(L as u32, 1)], &[L + 1]),
            case(
                "a_larger_one_does_not_join_a_smaller",
                [ip.segment(0, L / 2), ip.segment(L as u32 / 2, L)],
                &[L / 2, L],
            ),
            case("a_single_one_stays_as_it_is", [ip.nth(0)], &[L]),
            Case { name: "bursts_stay_apart", steps, expected: vec![2 * L, 2 * L] },
        ];
        cases.into_iter().for_each(|case| check(ip, case));
    }
}

#[test]
fn ack() {
    for ip in BOTH {
        let pure = ip.segment(0, 0);
        let newer = pure.clone().with(|frame| frame.ack += 1);
        check(ip, case("pure_and_duplicate_acks_stay_single", [pure.clone(), pure, newer], &[0, 0, 0]));
    }
}

#[test]
fn flags() {
    for ip in BOTH {
        let cwr = |nth| ip.nth(nth).flags(TcpFlags::CWR);
        let cases = [
            case("psh_ends_the_aggregate", ip.with_flags(TcpFlags::PSH, L), &[3 * L, 2 * L]),
            case("syn_stays_single", ip.with_flags(TcpFlags::SYN, 0), &[2 * L, 0, 2 * L]),
            case("rst_stays_single", ip.with_flags(TcpFlags::RST, 0), &[2 * L, 0, 2 * L]),
            case("urg_stays_single", ip.with_flags(TcpFlags::URG, 0), &[2 * L, 0, 2 * L]),
            case("cwr_stays_single", [ip.nth(0), cwr(1), cwr(2), ip.nth(3), ip.nth(4)], &[L, L, L, 2 * L]),
        ];
        cases.into_iter().for_each(|case| check(ip, case));
        // Linux 7 merges segments that both have CWR.
        let accurate_ecn = Config { accurate_ecn: true, ..Config::default() };
        let frames = [ip.nth(0), cwr(1), cwr(2), ip.nth(3), ip.nth(4)];
        check_with(&accurate_ecn, ip, case("equal_cwr_merges", frames, &[L, 2 * L, 2 * L]));
    }
}

/// Timestamps and two no-operations in one of three orders.
fn with_timestamps(frame: TcpFrame, value: u8, order: usize) -> TcpFrame {
    let timestamps: &[u8] = &[8, 10, 0, 0, 0, value, 0, 0, 0, 0];
    let options = match order {
        0 => [&[1, 1], timestamps].concat(),
        1 => [&[1], timestamps, &[1]].concat(),
        _ => [timestamps, &[1, 1]].concat(),
    };
    TcpFrame { options, ..frame }
}

#[test]
fn tcp_header() {
    for ip in BOTH {
        let mut wrong = ip.nth(1).build();
        let at = wrong.len() - L - 4;
        wrong[at] = wrong[at].wrapping_sub(1);
        let shifted = ip.nth(1).with(|frame| frame.seq += 1);
        let stamped = |nth, value, order| with_timestamps(ip.nth(nth), value, order);
        let scaled = TcpFrame { options: vec![1, 3, 3, 0], ..ip.nth(2) };
        let cases = [
            Case {
                name: "a_wrong_checksum_does_not_merge",
                steps: vec![Send(ip.nth(0).build()), Send(wrong)],
                expected: vec![L, L],
            },
            case("a_gap_of_one_byte_does_not_merge", [ip.nth(0), shifted], &[L, L]),
            case(
                "other_timestamps_or_orders_of_options_do_not_merge",
                [
                    stamped(0, 0, 0),
                    stamped(1, 0, 0),
                    stamped(2, 100, 0),
                    stamped(3, 100, 1),
                    stamped(4, 100, 2),
                ],
                &[2 * L, L, L, L],
            ),
            case("other_options_do_not_merge", [stamped(0, 0, 0), stamped(1, 0, 0), scaled], &[2 * L, L]),
        ];
        cases.into_iter().for_each(|case| check(ip, case));
    }
}

#[test]
fn ip_header() {
    for ip in BOTH {
        let classed = |nth, value| {
            ip.nth(nth).with(|frame| match &mut frame.network {
                Network::Ipv4 { tos, .. } => *tos = TrafficClass(value),
                Network::Ipv6 { class, .. } => *class = TrafficClass(value),
            })
        };
        let cases = [
            case("another_ecn_mark_does_not_merge", [ip.nth(0), classed(1, 2)], &[L, L]),
            case("another_type_of_service_does_not_merge", [ip.nth(0), classed(1, 0xF0)], &[L, L]),
        ];
        cases.into_iter().for_each(|case| check(ip, case));
    }
}

/// An IPv4 segment with these fields changed.
fn v4(nth: u32, change: impl FnOnce(&mut u16, &mut bool, &mut u8, &mut Vec<u8>)) -> TcpFrame {
    Ip::V4.nth(nth).with(|frame| {
        if let Network::Ipv4 { ident, dont_fragment, ttl, options, .. } = &mut frame.network {
            change(ident, dont_fragment, ttl, options);
        }
    })
}

#[test]
fn ipv4_header() {
    let timestamp_option = [68, 8, 5, 0, 0, 0, 0, 0];
    let mut fragment = Ip::V4.nth(1).build();
    fragment[14 + 6] |= 0x20; // more fragments
    fragment[14 + 10..14 + 12].fill(0);
    let sum = checksum(&fragment[14..34]);
    fragment[14 + 10..14 + 12].copy_from_slice(&sum.to_be_bytes());
    let mut wrong = Ip::V4.nth(1).build();
    wrong[14 + 10] ^= 1;
    let frame = |nth| Ip::V4.nth(nth);
    let cases = [
        case("another_ttl_does_not_merge", [frame(0), v4(1, |_, _, ttl, _| *ttl = 7)], &[L, L]),
        case(
            "ip_options_do_not_merge",
            [frame(0), v4(1, |_, _, _, options| options.extend(timestamp_option)), frame(2)],
            &[L, L, L],
        ),
        Case {
            name: "fragments_do_not_merge",
            steps: vec![Send(frame(0).build()), Send(fragment)],
            expected: vec![L, L],
        },
        Case {
            name: "a_wrong_header_checksum_does_not_merge",
            steps: vec![Send(frame(0).build()), Send(wrong), Send(frame(2).build())],
            expected: vec![L, L, L],
        },
    ];
    cases.into_iter().for_each(|case| check(Ip::V4, case));
}

#[test]
fn ipv4_identification() {
    let cases: [(&str, bool, &[u16], &[usize]); 6] = [
        ("incrementing_merges_with_df", true, &[8, 9], &[2 * L]),
        ("fixed_merges_with_df", true, &[8, 8], &[2 * L]),
        ("incrementing_merges_without_df", false, &[8, 9], &[2 * L]),
        ("fixed_merges_without_df", false, &[8, 8], &[2 * L]),
        ("fixed_after_incrementing_does_not_merge", true, &[8, 9, 9], &[2 * L, L]),
        ("incrementing_after_fixed_does_not_merge", true, &[8, 8, 9], &[2 * L, L]),
    ];
    for (name, df, idents, expected) in cases {
        let frames = idents.iter().zip(0..).map(|(value, nth)| {
            v4(nth, |ident, dont_fragment, _, _| (*ident, *dont_fragment) = (*value, df))
        });
        check(Ip::V4, case(name, frames, expected));
    }
}

/// An IPv6 segment with one extension header of this type and content.
fn extended(nth: u32, kind: IpProtocol, content: u8) -> TcpFrame {
    Ip::V6.nth(nth).with(|frame| {
        if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
            *next_header = kind;
            *extensions = vec![IpProtocol::TCP.0, 0, content, content, content, content, content, content];
        }
    })
}

#[test]
fn ipv6_header() {
    const OPTIONS: IpProtocol = IpProtocol::DESTINATION_OPTIONS;
    let v6 = |nth| Ip::V6.nth(nth);
    let fragment = extended(2, IpProtocol::FRAGMENT, 0);
    let changed = |change: fn(&mut u8, &mut FlowLabel)| {
        v6(1).with(|frame| {
            if let Network::Ipv6 { hop_limit, flow_label, .. } = &mut frame.network {
                change(hop_limit, flow_label);
            }
        })
    };
    let another_hop_limit = changed(|limit, _| *limit = 7);
    let another_label = changed(|_, label| *label = FlowLabel::new(1).unwrap());
    let cases = [
        case("fragments_do_not_merge", [v6(0), v6(1), fragment, v6(3)], &[2 * L, L, L]),
        case("equal_extension_headers_merge", [extended(0, OPTIONS, 0), extended(1, OPTIONS, 0)], &[2 * L]),
        case("other_extension_headers_do_not", [extended(0, OPTIONS, 0), extended(1, OPTIONS, 17)], &[L, L]),
        case("another_hop_limit_does_not_merge", [v6(0), another_hop_limit], &[L, L]),
        case("another_flow_label_does_not_merge", [v6(0), another_label], &[L, L]),
    ];
    cases.into_iter().for_each(|case| check(Ip::V6, case));
}

#[test]
fn large() {
    const MSS: usize = 4096 - 40 - 20;
    for ip in BOTH {
        let most = 65_535 - 20 - if ip == Ip::V4 { 20 } else { 40 };
        let (full, remainder) = ((most / MSS) as u32, most % MSS);
        let frames = |last: usize| {
            let at = |nth: u32| nth * MSS as u32;
            let full_sized = (0..full).map(move |nth| ip.segment(at(nth), MSS));
            full_sized.chain([ip.segment(at(full), last), ip.segment(at(full + 1), last)])
        };
        check(ip, case("up_to_the_most_that_ip_can_carry", frames(remainder), &[most, remainder]));
        let expected = [most - remainder, remainder + 1, remainder + 1];
        check(ip, case("what_is_too_much_stays_apart", frames(remainder + 1), &expected));
    }
}

/// Two segments of each of many flows: first segment of each flow, then the second of each.
#[test]
fn capacity() {
    for ip in BOTH {
        let mut card = Card::gro();
        for (nth, flags) in [(0, TcpFlags::NONE), (1, TcpFlags::PSH)] {
            for flow in 0..100 {
                card.receive(&ip.segment(nth * 200, 200).flags(flags).with(|frame| frame.src_port += flow));
            }
        }
        assert_eq!(card.take_lens(), [400; 100], "every flow is merged, {ip:?}");
    }
}
