//! `nichrome segment`: the inverse of `nichrome coalesce`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use nichrome_port::capture::{LinkType, MAX_INTERFACES};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{SeqNumber, TcpFlags, TcpFrame};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::run::{
    Given, PROFILES, captures, datagram, datagrams, nichrome, number, printed, records, segments, stderr,
    summary, text, write_capture,
};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

fn segment(input: &str, output: &Path, more: &[&str]) -> Value {
    let output = text(output);
    let arguments = [&["segment", "--json", input, &output], more].concat();
    serde_json::from_str(&printed(&arguments)).unwrap()
}

/// Writes packets of one interface, with their original lengths, to a capture.
fn capture_of(folder: &TempDir, link_type: LinkType, packets: &[(Vec<u8>, Option<u32>)]) -> String {
    let given = (0..).zip(packets).map(|(nanos, (bytes, original_len))| Given {
        interface: 0,
        nanos,
        original_len: *original_len,
        bytes,
    });
    write_capture(&folder.path().join("in.pcapng"), &[link_type], given)
}

fn super_packet(payload: usize) -> Vec<u8> {
    TcpFrame { payload: (0..payload).map(|at| at as u8).collect(), ..TcpFrame::default() }.build()
}

#[test]
fn the_segments_of_every_capture_come_back_bit_for_bit() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    for capture in captures() {
        for hold in ["50us", "5ms"] {
            let before = summary(&[&text(&capture), &text(&merged), "--hold", hold]);
            let found = segment(&text(&merged), &cut, &[]);
            assert_eq!(found["super_packets"], before["aggregates"]);
            assert!(hold == "50us" || number(&found, "super_packets") > 10, "{found}");
            let frames = |path: &Path| {
                let mut frames: Vec<_> = records(path).into_iter().map(|(_, bytes)| bytes).collect();
                frames.sort();
                frames
            };
            assert!(frames(&cut) == frames(&capture), "{}, hold {hold}", capture.display());
        }
    }
}

/// Returns the packet of an Ethernet frame behind a cooked header with this address and padding, and the tag
/// of a VLAN.
fn tagged(link_type: LinkType, frame: &[u8], address: u8, padding: u8, vlan: u8) -> Vec<u8> {
    let address = [2, 0, 0, 0, 0, address, padding, 7];
    let header = match link_type {
        LinkType::LinuxCooked => [&[0, 0, 0, 1, 0, 6][..], &address, &[0x81, 0]].concat(),
        _ => [&[0x81, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6][..], &address].concat(),
    };
    [&header, &[0, vlan, 8, 0][..], &frame[ETHERNET..]].concat()
}

#[test]
fn the_link_headers_of_a_cooked_capture_come_back() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    for (link_type, tag) in [(LinkType::LinuxCooked, 16), (LinkType::LinuxCookedV2, 20)] {
        let links = [(1, 10), (1, 10), (1, 20), (1, 20), (2, 20), (2, 20)];
        let packets: Vec<_> = (1..)
            .zip(segments(1, 6))
            .zip(links)
            .map(|((nth, frame), (address, vlan))| (tagged(link_type, &frame, address, nth, vlan), None))
            .collect();
        let input = capture_of(&folder, link_type, &packets);
        for (profile, aggregates) in [("gro", 3), ("netfpga", 2), ("npu", 2)] {
            let found = summary(&[&input, &text(&merged), "--verify", "--profile", profile]);
            assert_eq!(number(&found, "aggregates"), aggregates, "{profile}");
            segment(&text(&merged), &cut, &[]);
            let after = records(&cut);
            let mut vlans: Vec<u8> = after.iter().map(|(_, bytes)| bytes[tag + 1]).collect();
            vlans.sort();
            assert_eq!(vlans, links.map(|(_, vlan)| vlan), "{profile}");
            if profile == "gro" {
                let without_padding = |bytes: &[u8]| {
                    let padding = if link_type == LinkType::LinuxCooked { 12 } else { 18 };
                    [&bytes[..padding], &bytes[padding + 2..]].concat()
                };
                let expected: BTreeSet<_> = packets.iter().map(|(bytes, _)| without_padding(bytes)).collect();
                let after: BTreeSet<_> = after.iter().map(|(_, bytes)| without_padding(bytes)).collect();
                assert_eq!(after, expected);
            }
        }
    }
}

#[test]
fn a_flow_whose_link_address_changes_stays_in_order() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let frames = segments(1, 40);
    // Two routers take turns, as with equal-cost paths.
    let packets: Vec<_> = (0..)
        .zip(&frames)
        .map(|(nth, frame)| (tagged(LinkType::LinuxCooked, frame, nth / 4 % 2, 0, 10), None))
        .collect();
    let input = capture_of(&folder, LinkType::LinuxCooked, &packets);
    for profile in PROFILES {
        summary(&[&input, &text(&merged), "--verify", "--hold", "5ms", "--profile", profile]);
        segment(&text(&merged), &cut, &[]);
        let after = records(&cut);
        // Behind the VLAN tag, IPv4 and TCP.
        let payloads = after.iter().map(|(_, bytes)| &bytes[20 + 20 + 20..]);
        assert!(payloads.eq(packets.iter().map(|(bytes, _)| &bytes[20 + 20 + 20..])), "{profile}");
    }
}

#[test]
fn super_packets_without_a_total_length_are_cut_too() {
    let folder = tempdir().unwrap();
    let frame = super_packet(4000);
    let without_length = |frame: &[u8], ip: usize| {
        let mut frame = frame.to_vec();
        frame[ip + 2..ip + 4].fill(0);
        frame
    };
    let small = without_length(&super_packet(400), ETHERNET);
    for (link_type, skipped) in [(LinkType::Ethernet, 0), (LinkType::RawIp, ETHERNET)] {
        let [expected, cut] = [false, true].map(|is_without| {
            let ip = ETHERNET - skipped;
            let packet = frame[skipped..].to_vec();
            let packet = if is_without { without_length(&packet, ip) } else { packet };
            let out = folder.path().join("out.pcapng");
            let packets = [(packet, None), (small[skipped..].to_vec(), None)];
            let found = segment(&capture_of(&folder, link_type, &packets), &out, &[]);
            assert_eq!((number(&found, "super_packets"), number(&found, "packets_out")), (1, 4), "{found}");
            records(&out)
        });
        assert_eq!(cut, expected);
    }
    // A snap length below the packet's length: its header does not show how many bytes are missing.
    let packets = [(without_length(&frame, ETHERNET)[..2000].to_vec(), Some(frame.len() as u32))];
    let found =
        segment(&capture_of(&folder, LinkType::Ethernet, &packets), &folder.path().join("out.pcapng"), &[]);
    assert_eq!(
        (number(&found, "super_packets"), number(&found["left"], "cut short by the capture")),
        (0, 1),
        "{found}"
    );
}

/// `--mss` limits the payload, not the packet, whose headers may have any length.
#[test]
fn a_snap_length_makes_no_super_packet_of_a_segment() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let long_headers =
        |len| TcpFrame { options: vec![1; 40], payload: vec![0; len], ..TcpFrame::default() }.build();
    for (frame, is_super) in [
        (super_packet(1460), false),
        (super_packet(1461), true),
        (long_headers(1460), false),
        (long_headers(1461), true),
        (datagrams(1, &[1460], true).remove(0), false),
        (datagrams(1, &[1461], true).remove(0), true),
    ] {
        let snapped = [(frame[..96].to_vec(), Some(frame.len() as u32))];
        let found = segment(&capture_of(&folder, LinkType::Ethernet, &snapped), &out, &["--mss", "1460"]);
        let left = found["left"].get("cut short by the capture").is_some();
        assert_eq!((left, number(&found, "packets_out")), (is_super, 1), "{found}");
        assert_eq!(records(&out)[0].1, snapped[0].0);
    }
}

/// Returns jumbo frames, which coalesce does not merge, among segments and datagrams, which it does.
fn jumbo_frames_among_others() -> Vec<(Vec<u8>, Option<u32>)> {
    let jumbo = |port, flags| TcpFrame {
        src_port: port,
        payload: vec![port as u8; 8948],
        flags,
        ..TcpFrame::default()
    };
    let mut frames = vec![jumbo(1, TcpFlags::ACK).build(), jumbo(2, TcpFlags::ACK | TcpFlags::PSH).build()];
    frames.extend(datagrams(3, &[8000], true));
    frames.extend(segments(4, 5));
    frames.extend(datagrams(5, &[1200, 1200, 100], true));
    frames.into_iter().map(|frame| (frame, None)).collect()
}

#[test]
fn packets_that_were_not_merged_come_back_whatever_their_size() {
    let folder = tempdir().unwrap();
    let frames = jumbo_frames_among_others();
    let input = capture_of(&folder, LinkType::Ethernet, &frames);
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let before = summary(&[&input, &text(&merged), "--udp", "on"]);
    assert_eq!((number(&before, "packets_out"), number(&before, "aggregates")), (5, 2), "{before}");
    let found = segment(&text(&merged), &cut, &[]);
    assert_eq!((number(&found, "super_packets"), number(&found, "segments")), (2, 8), "{found}");
    let sorted = |mut frames: Vec<Vec<u8>>| {
        frames.sort();
        frames
    };
    let bytes = |path: &Path| records(path).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(
        sorted(bytes(&cut)),
        sorted(frames.into_iter().map(|(frame, _)| frame).collect()),
        "every packet is as it was received"
    );
}

#[test]
fn an_mtu_or_mss_limits_every_packet_and_enlarges_none() {
    let folder = tempdir().unwrap();
    let input = capture_of(&folder, LinkType::Ethernet, &jumbo_frames_among_others());
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    summary(&[&input, &text(&merged), "--udp", "on"]);
    for (more, largest, super_packets, segments) in [
        // The three large packets are cut to pieces of 960, 960 and 972 bytes, the aggregates to 960 and 972.
        (["--mtu", "1000"], ETHERNET + 1000, 5, 6 + 3 + 10 + 10 + 9),
        (["--mss", "1100"], ETHERNET + 40 + 1100, 5, 5 + 3 + 9 + 9 + 8),
    ] {
        let found = segment(&text(&merged), &cut, &more);
        assert_eq!(
            (number(&found, "super_packets"), number(&found, "segments")),
            (super_packets, segments),
            "{found}"
        );
        assert_eq!(records(&cut).iter().map(|(_, bytes)| bytes.len()).max(), Some(largest));
    }
}

#[test]
fn aggregates_of_other_profiles_are_segmented_to_fit_an_mtu() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    for capture in captures() {
        for profile in PROFILES {
            let before = summary(&[&text(&capture), &text(&merged), "--profile", profile, "--hold", "5ms"]);
            for more in [&[][..], &["--mtu", "576"]] {
                let most = if more.is_empty() { 1514 } else { 590 };
                let found = segment(&text(&merged), &cut, more);
                assert_eq!(found["left"], serde_json::json!({}), "{}", capture.display());
                assert!(records(&cut).iter().all(|(_, bytes)| bytes.len() <= most));
                let after = summary(&[&text(&cut)]);
                assert_eq!(after["tcp_payload_bytes_in"], before["tcp_payload_bytes_out"]);
            }
        }
    }
}

#[test]
fn a_fixed_identification_stays_fixed() {
    let folder = tempdir().unwrap();
    let frames: Vec<_> = segments(1, 5).into_iter().map(|frame| (frame, None)).collect();
    let input = capture_of(&folder, LinkType::Ethernet, &frames);
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let found = summary(&[&input, &text(&merged)]);
    assert_eq!(number(&found, "packets_out"), 1);
    segment(&text(&merged), &cut, &[]);
    assert!(records(&cut).iter().map(|(_, bytes)| bytes).eq(frames.iter().map(|(frame, _)| frame)));
}

#[test]
fn accurate_ecn_stays_on_every_segment() {
    let folder = tempdir().unwrap();
    let (ack, cwr, ece, ae) = (TcpFlags::ACK, TcpFlags::CWR, TcpFlags::ECE, TcpFlags::AE);
    let frames: Vec<_> = [ack | cwr, ack | cwr | ece, ack | ae, ack | ece | ae | cwr]
        .into_iter()
        .flat_map(|flags| [flags; 4])
        .zip(0..)
        .map(|(flags, nth)| TcpFrame {
            seq: SeqNumber(nth * 1000),
            payload: vec![7; 1000],
            flags,
            ..TcpFrame::default()
        })
        .map(|frame| (frame.build(), None))
        .collect();
    let input = capture_of(&folder, LinkType::Ethernet, &frames);
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let found = summary(&[&input, &text(&merged), "--accurate-ecn", "on"]);
    assert_eq!((number(&found, "packets_out"), number(&found, "aggregates")), (4, 4), "{found}");
    segment(&text(&merged), &cut, &[]);
    assert!(records(&cut).iter().map(|(_, bytes)| bytes).eq(frames.iter().map(|(frame, _)| frame)));
}

#[test]
fn datagrams_that_were_merged_come_back_bit_for_bit() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let lens: Vec<usize> = (0..200).map(|nth| if nth % 70 == 69 { 100 } else { 1200 }).collect();
    for counts in [false, true] {
        let frames: Vec<_> = datagrams(1, &lens, counts).into_iter().map(|frame| (frame, None)).collect();
        let input = capture_of(&folder, LinkType::Ethernet, &frames);
        let found = summary(&[&input, &text(&merged), "--udp", "on", "--verify"]);
        // 54 of 1,200 bytes fit into 64 KB; every 70th is short.
        assert_eq!((number(&found, "packets_out"), number(&found, "aggregates")), (6, 6), "{found}");
        assert_eq!(number(&segment(&text(&merged), &cut, &[]), "super_packets"), 6);
        assert!(records(&cut).iter().map(|(_, bytes)| bytes).eq(frames.iter().map(|(frame, _)| frame)));
        let untouched = summary(&[&input, "--verify"]);
        assert_eq!((number(&untouched, "packets_out"), number(&untouched, "aggregates")), (200, 0));
    }
}

/// Returns the EtherType and the header of a tunnel around a packet of `len` bytes, the `nth` of the capture.
type Wrap = fn(is_ipv4: bool, len: u16, nth: u16) -> (u16, Vec<u8>);

const TUNNELS: [(&str, Wrap); 4] = [
    ("IPv4", |is_ipv4, len, nth| (0x0800, ipv4_header(is_ipv4, len, nth))),
    ("IPv4, fixed identification", |is_ipv4, len, _| (0x0800, ipv4_header(is_ipv4, len, 7))),
    ("IPv6", |is_ipv4, len, _| {
        let protocol = if is_ipv4 { 4 } else { 41 };
        (0x86DD, [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol, 9], &[0xFD; 32]].concat())
    }),
    ("PPPoE", |is_ipv4, len, _| {
        let [high, low] = (len + 2).to_be_bytes();
        (0x8864, vec![0x11, 0, 0, 7, high, low, 0, if is_ipv4 { 0x21 } else { 0x57 }])
    }),
];

fn ipv4_header(is_ipv4: bool, len: u16, ident: u16) -> Vec<u8> {
    let protocol = if is_ipv4 { 4 } else { 41 };
    let [total, ident] = [len + 20, ident].map(u16::to_be_bytes);
    let mut header =
        [&[0x45, 0][..], &total, &ident, &[0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns the frames of a capture, each in a tunnel. They are grouped by sender, so that the tunnel's
/// identifications increase by one within a flow.
fn tunneled(capture: &Path, wrap: Wrap) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut frames: Vec<Vec<u8>> = records(capture).into_iter().map(|(_, bytes)| bytes).collect();
    frames.sort_by_key(|frame| frame[6..12].to_vec());
    let wrapped = (0..).zip(frames).filter_map(|(nth, frame)| {
        let (link, packet) = frame.split_at_checked(ETHERNET)?;
        let is_ipv4 = packet.first()? >> 4 == 4;
        let (ethertype, outer) = wrap(is_ipv4, packet.len() as u16, nth);
        Some(([&link[..12], &ethertype.to_be_bytes(), &outer, packet].concat(), None))
    });
    wrapped.collect()
}

#[test]
fn segments_in_tunnels_come_back_bit_for_bit() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    for capture in captures() {
        for (name, wrap) in TUNNELS {
            let frames = tunneled(&capture, wrap);
            let input = capture_of(&folder, LinkType::Ethernet, &frames);
            let before = summary(&[&input, &text(&merged), "--tunnels", "on", "--hold", "5ms", "--verify"]);
            let found = segment(&text(&merged), &cut, &[]);
            let of = format!("{}, {name}: {found}", capture.display());
            assert_eq!(found["super_packets"], before["aggregates"], "{of}");
            assert!(number(&found, "super_packets") > 10, "{of}");
            let flows = before["flows"].as_array().unwrap();
            let payload: u64 = flows.iter().map(|flow| number(flow, "payload_bytes")).sum();
            assert_eq!(payload, number(&before, "tcp_payload_bytes_in"), "{of}");
            assert!(flows.iter().all(|flow| flow["flow"].as_str().unwrap().ends_with(" in a tunnel")));
            let mut back: Vec<_> = records(&cut).into_iter().map(|(_, bytes)| bytes).collect();
            let mut sent: Vec<_> = frames.into_iter().map(|(frame, _)| frame).collect();
            back.sort();
            sent.sort();
            assert!(back == sent, "{of}");
            let again = segment(&text(&merged), &cut, &["--mtu", "576"]);
            assert_eq!(again["left"], serde_json::json!({}), "{of}");
            assert!(records(&cut).iter().all(|(_, bytes)| bytes.len() <= ETHERNET + 576), "{of}");
        }
    }
}

/// Returns a frame in VXLAN, the `nth` of its sender.
fn in_vxlan(frame: &[u8], nth: u16) -> Vec<u8> {
    datagram((49_152, 4789), nth, &[&[8, 0, 0, 0, 0, 0, 7, 0], frame].concat())
}

#[test]
fn super_packets_in_vxlan_are_cut_to_packets_in_vxlan() {
    let folder = tempdir().unwrap();
    let output = folder.path().join("out.pcapng");
    let [alone, whole] = [super_packet(3000), in_vxlan(&super_packet(3000), 0)];
    let [frames, datagrams] = [&alone, &whole].map(|packet| {
        let input = capture_of(&folder, LinkType::Ethernet, &[(packet.clone(), None)]);
        let found = segment(&input, &output, &["--mss", "1000"]);
        assert_eq!((number(&found, "super_packets"), number(&found, "segments")), (1, 3), "{found}");
        records(&output).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()
    });
    assert!(datagrams.into_iter().eq((0..).zip(&frames).map(|(nth, frame)| in_vxlan(frame, nth))));

    let mut fragment = super_packet(3000);
    fragment[ETHERNET + 6] = 0x20;
    let packets = [
        (in_vxlan(&fragment, 0), None),
        (in_vxlan(&[&alone[..], &alone].concat(), 0), None),
        (whole[..100].to_vec(), Some(whole.len() as u32)),
    ];
    let found = segment(&capture_of(&folder, LinkType::Ethernet, &packets), &output, &[]);
    let left =
        ["IP fragments", "broken or unusual headers", "cut short by the capture"].map(|name| (name, 1));
    assert_eq!(found["left"], serde_json::json!(BTreeMap::from(left)), "{found}");
    assert!(
        records(&output).into_iter().map(|(_, bytes)| bytes).eq(packets.into_iter().map(|(bytes, _)| bytes))
    );
}

#[test]
fn datagrams_of_vxlan_that_were_merged_come_back_bit_for_bit() {
    let folder = tempdir().unwrap();
    let [merged, cut] = ["merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let ordinary: Vec<_> = (0..).zip(segments(1, 4)).map(|(nth, frame)| in_vxlan(&frame, nth)).collect();
    // The first packet's inner header claims the length of both parts.
    let long = super_packet(2500);
    let (first, second) = long.split_at(long.len() / 2 - 4);
    let hostile = [in_vxlan(first, 0), datagram((49_152, 4789), 1, second)];
    for frames in [&ordinary[..], &hostile] {
        let packets: Vec<_> = frames.iter().map(|frame| (frame.clone(), None)).collect();
        let input = capture_of(&folder, LinkType::Ethernet, &packets);
        let before = summary(&[&input, &text(&merged), "--udp", "on", "--tunnels", "on", "--verify"]);
        assert_eq!((number(&before, "packets_out"), number(&before, "aggregates")), (1, 1), "{before}");
        for more in [&[][..], &["--mtu", "1400"]] {
            let found = segment(&text(&merged), &cut, more);
            assert_eq!(number(&found, "segments"), frames.len() as u64, "{found}");
            assert!(records(&cut).iter().map(|(_, bytes)| bytes).eq(frames));
        }
    }
}

#[test]
fn super_packets_of_other_programs_fit_the_mtu_or_have_the_requested_payload() {
    let folder = tempdir().unwrap();
    let whole = super_packet(10_000);
    for (link_type, header) in [(LinkType::Ethernet, &whole[..ETHERNET]), (LinkType::Null, &[2, 0, 0, 0])] {
        let packet = [header, &whole[ETHERNET..]].concat();
        let input = capture_of(&folder, link_type, &[(packet, None)]);
        let output = folder.path().join("out.pcapng");
        for (more, payload) in [
            (&[][..], 1460),
            (&["--mtu", "1500"], 1460),
            (&["--mtu", "9000"], 8960),
            (&["--mss", "536"], 536),
        ] {
            let found = segment(&input, &output, more);
            let count = 10_000_u64.div_ceil(payload);
            assert_eq!((number(&found, "super_packets"), number(&found, "segments")), (1, count));
            let packets = records(&output);
            let bytes: Vec<u8> =
                packets.iter().flat_map(|(_, bytes)| bytes[header.len() + 40..].to_vec()).collect();
            assert_eq!(bytes, whole[ETHERNET + 40..]);
            assert!(packets.iter().all(|(record, bytes)| record.link_type == link_type
                && bytes.starts_with(header)
                && bytes.len() <= header.len() + 40 + payload as usize));
        }
    }
}

#[test]
fn packets_that_cannot_be_segmented_stay_unchanged_and_are_counted() {
    let folder = tempdir().unwrap();
    let mut fragment = super_packet(3000);
    fragment[ETHERNET + 6] = 0x20;
    let mut icmp = super_packet(3000);
    icmp[ETHERNET + 9] = 1;
    let mut short = super_packet(3000);
    let len = short.len() as u32;
    short.truncate(100);
    let mut fits = super_packet(1460);
    fits[ETHERNET + 9] = 1;
    let packets = [(fragment, None), (icmp, None), (short, Some(len)), (fits, None), (vec![7; 4000], None)];
    let input = capture_of(&folder, LinkType::Ethernet, &packets);
    let output = folder.path().join("out.pcapng");
    let found = segment(&input, &output, &[]);
    let left =
        serde_json::json!({ "IP fragments": 1, "neither TCP nor UDP": 2, "cut short by the capture": 1 });
    assert_eq!(found["left"], left);
    for ((record, bytes), (given, original_len)) in records(&output).iter().zip(&packets) {
        assert_eq!(bytes, given);
        assert_eq!(record.original_len, original_len.unwrap_or(given.len() as u32));
    }
    let printed = printed(&["segment", &input, &text(&output)]);
    assert!(
        printed.contains(
            "5 packets in, 5 out: 0 super-packets segmented into 0 segments; 1 left unchanged: IP fragments"
        ),
        "{printed}"
    );
}

/// Sections that are joined, such as by cat(1), have an interface each.
#[test]
fn an_output_of_more_interfaces_than_a_section_can_have_is_read_again() {
    let folder = tempdir().unwrap();
    let [joined, once, twice] = ["joined", "once", "twice"].map(|name| folder.path().join(name));
    let packet = super_packet(10);
    let section = capture_of(&folder, LinkType::Ethernet, &[(packet.clone(), None)]);
    let sections = MAX_INTERFACES + 1;
    fs::write(&joined, fs::read(section).unwrap().repeat(sections)).unwrap();
    for (input, output) in [(&joined, &once), (&once, &twice)] {
        let found = segment(&text(input), output, &[]);
        assert_eq!(number(&found, "packets_out"), sections as u64);
    }
    let last = records(&twice).pop().unwrap();
    assert_eq!((last.0.interface as usize, last.1), (MAX_INTERFACES, packet));
}

#[test]
fn a_limit_of_payload_counts_no_packets_that_have_no_segments() {
    let folder = tempdir().unwrap();
    let (mut icmp, mut fragment, mut long) = (super_packet(1400), super_packet(1400), super_packet(3000));
    icmp[ETHERNET + 9] = 1;
    fragment[ETHERNET + 6] = 0x20;
    long[ETHERNET + 9] = 1;
    let arp = [&[0xFF; 12][..], &[8, 6], &[0; 986]].concat();
    let mut cut = super_packet(400);
    let len = cut.len() as u32;
    cut.truncate(100);
    let ordinary = [icmp, fragment, arp, super_packet(500)].map(|packet| (packet, None));
    let others = [(cut.clone(), Some(len)), (long, None), (cut, Some(1400)), (super_packet(1000), None)];
    let input = capture_of(&folder, LinkType::Ethernet, &[&ordinary[..], &others].concat());
    let found = segment(&input, &folder.path().join("out.pcapng"), &["--mss", "500"]);
    assert_eq!(found["left"], serde_json::json!({ "cut short by the capture": 1, "neither TCP nor UDP": 1 }));
    assert_eq!(["super_packets", "segments", "packets_out"].map(|name| number(&found, name)), [1, 2, 9]);
}

#[test]
fn wrong_options_and_files_are_one_line() {
    let folder = tempdir().unwrap();
    let input = capture_of(&folder, LinkType::Ethernet, &[(super_packet(3000), None)]);
    let output = text(&folder.path().join("out.pcapng"));
    for (arguments, status) in [
        (&["segment", &input][..], 2),
        (&["segment", &input, &output, "--mtu", "67"], 2),
        (&["segment", &input, &output, "--mss", "0"], 2),
        (&["segment", &input, &output, "--mtu", "1500", "--mss", "1448"], 2),
        (&["segment", &input, &input], 2),
        (&["segment", "/nonexistent/in.pcap", &output], 1),
        (&["segment", &input, "/nonexistent/out.pcapng"], 1),
    ] {
        let found = nichrome(arguments);
        assert_eq!((found.status.code(), stderr(&found).lines().count()), (Some(status), 1), "{arguments:?}");
    }
    for (option, value, least) in
        [("--mtu", "x", 68), ("--mtu", "67", 68), ("--mss", "0", 1), ("--mss", "1k", 1)]
    {
        let found = nichrome(&["segment", &input, &output, option, value]);
        let expected = format!(
            "nichrome: invalid value '{value}' for '{option} <BYTES>': expected a whole number of bytes from {least} to 65535\n"
        );
        assert_eq!(stderr(&found), expected);
    }
}
