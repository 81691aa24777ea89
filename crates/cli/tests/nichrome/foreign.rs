//! Captures as other programs write them: other link types, compression, comments.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use nichrome_port::capture::{self, LinkType, PacketOptions, Writer};
use nichrome_wire::Instant;
use serde_json::Value;
use tempfile::tempdir;

use crate::installed;
use crate::run::{
    Given, PROFILES, capture as captured, nichrome, number, printed, records, segments, stderr, stdout,
    summary, text, write_capture,
};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Returns the header of a capture of `link_type` that corresponds to an Ethernet header.
fn header(link_type: LinkType, ethernet: &[u8]) -> Vec<u8> {
    let protocol = &ethernet[12..14];
    let is_v6 = protocol == [0x86, 0xDD];
    match link_type {
        LinkType::Ethernet => ethernet.to_vec(),
        LinkType::RawIp => Vec::new(),
        LinkType::LinuxCooked => [&[0, 0, 0, 1, 0, 6][..], &ethernet[6..12], &[0, 0], protocol].concat(),
        LinkType::LinuxCookedV2 => {
            [protocol, &[0, 0, 0, 0, 0, 3, 0, 1, 0, 6], &ethernet[6..12], &[0, 0]].concat()
        }
        LinkType::Null => vec![if is_v6 { 30 } else { 2 }, 0, 0, 0],
        LinkType::Loop => vec![0, 0, 0, if is_v6 { 24 } else { 2 }],
    }
}

#[test]
fn other_link_types_are_coalesced_as_ethernet_is() {
    let folder = tempdir().unwrap();
    for name in ["tcp-clean", "tcp-ipv6-reorder-loss"] {
        let ethernet = captured(name);
        let expected = summary(&[&ethernet, "--verify"]);
        for link_type in
            [LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCookedV2, LinkType::Null, LinkType::Loop]
        {
            let [input, output, cut] =
                ["in.pcapng", "out.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
            let frames: Vec<(u64, Vec<u8>)> = records(Path::new(&ethernet))
                .into_iter()
                .map(|(record, frame)| {
                    let (link, packet) = frame.split_at(ETHERNET);
                    (record.time.as_nanos(), [&header(link_type, link), packet].concat())
                })
                .collect();
            let given = frames.iter().map(|(nanos, bytes)| Given {
                interface: 0,
                nanos: *nanos,
                original_len: None,
                bytes,
            });
            write_capture(&input, &[link_type], given);
            let found = summary(&[&text(&input), &text(&output), "--verify"]);
            for field in ["packets_in", "packets_out", "tcp_payload_bytes_out", "segments_histogram"] {
                assert_eq!(found[field], expected[field], "{field} of {name} as {link_type}");
            }
            let len = header(link_type, &records(Path::new(&ethernet))[0].1[..ETHERNET]).len();
            let frames = |path: &Path| records(path).into_iter().map(|(_, bytes)| bytes);
            printed(&["segment", &text(&output), &text(&cut)]);
            let [before, after] = [&input, &cut].map(|path| frames(path).collect::<BTreeSet<_>>());
            assert!(before == after, "{name} as {link_type}");
            for (record, bytes) in records(&output) {
                assert_eq!(record.link_type, link_type);
                assert_eq!(link_type.header_len(&bytes), if link_type == LinkType::RawIp { 0 } else { len });
            }
        }
    }
}

#[test]
fn acks_of_the_card_are_ip_packets_unless_the_capture_is_of_ethernet() {
    let folder = tempdir().unwrap();
    let [input, acks] = ["in.pcapng", "acks.pcapng"].map(|name| folder.path().join(name));
    let frames = segments(1, 40);
    let tags = [&[0; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat();
    for (link_type, expected) in [
        (LinkType::Ethernet, LinkType::Ethernet),
        (LinkType::LinuxCooked, LinkType::RawIp),
        (LinkType::LinuxCookedV2, LinkType::RawIp),
        (LinkType::Null, LinkType::RawIp),
    ] {
        let is_tagged = !matches!(link_type, LinkType::Null);
        let framed: Vec<Vec<u8>> = frames
            .iter()
            .map(|frame| {
                let (ethernet, packet) = frame.split_at(ETHERNET);
                let link = if is_tagged { &tags[..] } else { ethernet };
                [&header(link_type, &link[..ETHERNET]), &link[ETHERNET..], packet].concat()
            })
            .collect();
        let given =
            (0..).zip(&framed).map(|(nanos, bytes)| Given { interface: 0, nanos, original_len: None, bytes });
        write_capture(&input, &[link_type], given);
        let found =
            summary(&[&text(&input), "--profile", "npu", "--active-ack", "paper", "--acks", &text(&acks)]);
        let kept = records(&acks);
        assert!(!kept.is_empty() && kept.len() as u64 == number(&found, "acks_sent"), "{found}");
        for (record, bytes) in kept {
            assert_eq!(record.link_type, expected);
            let ip = if expected == LinkType::Ethernet { ETHERNET + 4 } else { 0 };
            assert_eq!((bytes[ip], bytes.len() - ip), (0x45, 40), "{link_type}");
        }
    }
}

#[test]
fn frames_other_than_ip_pass_unchanged_and_in_order() {
    let folder = tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcapng"));
    // 0x65 0x58 look like the first bytes of an IPv6 header.
    let frames = [
        [&[0, 0, 0, 1, 0, 6, 1, 1, 1, 1, 1, 1, 0, 0, 8, 6][..], &[0x45; 28]].concat(),
        vec![0x65, 0x58, 0],
        Vec::new(),
    ];
    let given =
        (0..).zip(&frames).map(|(nanos, bytes)| Given { interface: 0, nanos, original_len: None, bytes });
    write_capture(&input, &[LinkType::LinuxCooked], given);
    let found = summary(&[&text(&input), &text(&output), "--verify"]);
    assert_eq!((number(&found, "packets_in"), number(&found, "packets_out")), (3, 3));
    assert!(records(&output).iter().map(|(_, bytes)| bytes).eq(&frames));
}

/// Returns the packet of an Ethernet frame behind a cooked header v2 with this interface index and packet
/// type.
fn of_any(frame: &[u8], index: u16, kind: u8) -> Vec<u8> {
    let [high, low] = index.to_be_bytes();
    [&[8, 0, 0, 0, 0, 0, high, low, 0, 1, kind, 6, 1, 1, 1, 1, 1, 1, 0, 0][..], &frame[ETHERNET..]].concat()
}

/// Writes a capture of `any`, in which this number of interfaces takes turns, each with `turns` segments of
/// one flow.
fn write_capture_of_any(path: &Path, interfaces: u16, turns: usize) -> String {
    let flows: Vec<Vec<Vec<u8>>> = (0..interfaces).map(|nth| segments(1 + nth, turns as u32)).collect();
    let turn = |turn: usize| (1..).zip(&flows).map(move |(index, flow)| of_any(&flow[turn], index, 0));
    let frames: Vec<Vec<u8>> = (0..turns).flat_map(turn).collect();
    // Each interface receives a segment every 40 µs.
    let interval = 40_000 / u64::from(interfaces);
    let given = (0..).zip(&frames).map(|(nth, bytes)| Given {
        interface: 0,
        nanos: nth * interval,
        original_len: None,
        bytes,
    });
    write_capture(path, &[LinkType::LinuxCookedV2], given)
}

#[test]
fn each_of_many_interfaces_is_coalesced_as_it_is_alone() {
    let folder = tempdir().unwrap();
    let alone = write_capture_of_any(&folder.path().join("alone.pcapng"), 1, 8);
    let many = write_capture_of_any(&folder.path().join("many.pcapng"), 40, 8);
    for profile in PROFILES {
        let options = ["--profile", profile, "--hold", "500us", "--top", "40", "--verify"];
        let expected = &summary(&[&[&*alone], &options[..]].concat())["flows"][0];
        assert!(number(expected, "packets_out") <= 2, "{expected}");
        // With 1 GB of memory.
        let limited = ["-c", "ulimit -v 1000000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_nichrome")];
        let output =
            Command::new("sh").args(limited).args(["coalesce", "--json", &many]).args(options).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{profile}: {}", stderr(&output));
        let found: Value = serde_json::from_str(stdout(&output)).unwrap();
        let flows = found["flows"].as_array().unwrap();
        assert_eq!((flows.len(), number(&found, "replaced_engines")), (40, 0), "{profile}");
        for flow in flows {
            for field in ["packets_out", "mean_segments_per_aggregate"] {
                assert_eq!(flow[field], expected[field], "{field} of {flow} with {profile}");
            }
        }
    }
}

#[test]
fn engines_that_change_to_another_interface_are_counted() {
    let folder = tempdir().unwrap();
    let input = write_capture_of_any(&folder.path().join("in.pcapng"), 1025, 2);
    let options = ["--profile", "netfpga", "--verify", "--top", "0"];
    let found = summary(&[&[&*input], &options[..]].concat());
    // The interface whose turn is next is always the one that was idle for longest.
    assert_eq!(number(&found, "replaced_engines"), 2 * 1025 - 1024);
    let printed = printed(&[&["coalesce", &input], &options[..]].concat());
    let line = "engines flushed and replaced: 1,026 (more than 1,024 interfaces)";
    assert!(printed.lines().any(|found| found == line), "{printed}");
}

#[test]
fn links_and_directions_of_the_interface_any_are_kept_apart() {
    let folder = tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcapng"));
    let packets = segments(1, 4);
    // Each packet as it came in on interface 2, and as it was forwarded to interface 3.
    let frames: Vec<Vec<u8>> =
        packets.iter().flat_map(|packet| [of_any(packet, 2, 0), of_any(packet, 3, 4)]).collect();
    let given =
        (0..).zip(&frames).map(|(nanos, bytes)| Given { interface: 0, nanos, original_len: None, bytes });
    write_capture(&input, &[LinkType::LinuxCookedV2], given);
    let found = summary(&[&text(&input), &text(&output), "--verify"]);
    assert_eq!((number(&found, "packets_out"), number(&found, "aggregates")), (2, 2));
    let links: Vec<u64> =
        records(&output).iter().map(|(_, bytes)| LinkType::LinuxCookedV2.channel(bytes)).collect();
    assert_eq!(links, [2 << 1, 3 << 1 | 1]);
}

#[test]
fn packets_of_an_unsupported_link_type_are_left_out_with_a_warning() {
    let folder = tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcapng"));
    let packets = segments(1, 6);
    let given = (0..).zip(&packets).map(|(nth, bytes)| Given {
        interface: u32::from(nth >= 2),
        nanos: nth,
        original_len: None,
        bytes,
    });
    let path = write_capture(&input, &[LinkType::RawIp, LinkType::Ethernet], given);
    let mut file = fs::read(&input).unwrap();
    let first_interface =
        file.windows(8).position(|bytes| bytes[..4] == [1, 0, 0, 0] && bytes[7] == 0 && bytes[4] > 8);
    let mut set_link_types = |links: &[u8]| {
        let mut at = first_interface.unwrap();
        for link in links {
            file[at + 8] = *link;
            at += usize::from(file[at + 4]);
        }
        fs::write(&input, &file).unwrap();
    };
    set_link_types(&[127, 1]);
    let warning = format!(
        "nichrome: warning: {path}: 2 packets of link type 127 (IEEE 802.11 with radiotap header), which is not \
         supported: skipped\n"
    );
    let output_path = text(&output);
    for command in [
        &["coalesce", "--json", &path, &output_path, "--verify"][..],
        &["coalesce", "--json", &path, "--compare"],
        &["segment", "--json", &path, &output_path],
    ] {
        let ran = nichrome(command);
        assert_eq!((stderr(&ran), ran.status.code()), (&*warning, Some(0)));
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!((number(&found, "packets_in"), number(&found, "skipped")), (4, 2), "{command:?}");
        let has_one = found.get("aggregates").is_none_or(|aggregates| aggregates == 1);
        assert!(has_one, "{found}");
    }
    assert_eq!(records(&output).len(), 4);

    set_link_types(&[127, 105]);
    let refused = nichrome(&["coalesce", &path]);
    assert!(stderr(&refused).contains("link type 127 (IEEE 802.11 with radiotap header) is not supported"));
    assert!(stderr(&refused).lines().count() == 1 && refused.status.code() == Some(1));
}

/// Returns the output of a compression program for a capture.
fn compressed(program: &str, plain: &str) -> Vec<u8> {
    installed::run(Command::new(program).args(["-q", "-c", plain]), program).stdout
}

#[test]
fn compressed_captures_are_read() {
    let folder = tempdir().unwrap();
    let plain = captured("tcp-loss");
    let expected = printed(&["coalesce", "--json", &plain]);
    for program in ["gzip", "zstd"] {
        let input = folder.path().join(program);
        fs::write(&input, compressed(program, &plain)).unwrap();
        assert_eq!(printed(&["coalesce", "--json", &text(&input)]), expected);
    }
}

#[test]
fn a_compressed_capture_that_is_cut_off_is_used_as_far_as_it_goes() {
    let folder = tempdir().unwrap();
    let plain = captured("tcp-loss");
    let all = records(Path::new(&plain)).len() as u64;
    for program in ["gzip", "zstd"] {
        let input = folder.path().join(program);
        let file = compressed(program, &plain);
        // Within the data, and within the checksum after all of it.
        for (cut, whole) in [(file.len() / 2, 1..all), (file.len() - 2, all..all + 1)] {
            fs::write(&input, &file[..cut]).unwrap();
            let output = nichrome(&["coalesce", "--json", &text(&input), "--verify"]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            let packets = number(&found, "packets_in");
            assert!(whole.contains(&packets), "{program}: {packets} of {all}");
            let warning = format!("the capture is cut off after {packets} whole records (");
            let warned = stderr(&output);
            assert!(output.status.success() && warned.lines().count() == 1, "{warned}");
            assert!(
                warned.contains(&warning) && warned.contains("the packets before that were processed"),
                "{warned}"
            );
        }
    }
}

#[test]
fn damage_to_a_compressed_capture_is_an_error() {
    let folder = tempdir().unwrap();
    for (program, what) in [
        ("gzip", "corrupt gzip stream does not have a matching checksum"),
        ("zstd", "the zstd data does not match its checksum"),
    ] {
        let input = folder.path().join(program);
        let mut file = compressed(program, &captured("tcp-loss"));
        let len = file.len();
        // The first byte of each trailer: CRC32 and length (RFC 1952), and the content checksum (RFC 8878).
        file[len - if program == "gzip" { 8 } else { 4 }] ^= 1;
        fs::write(&input, file).unwrap();
        let output = nichrome(&["coalesce", &text(&input)]);
        let expected = format!("nichrome: {}: cannot read the capture: {what}\n", input.display());
        assert_eq!((stderr(&output), output.status.code()), (&*expected, Some(1)));
    }
}

#[test]
fn comments_are_kept() {
    let folder = tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcapng"));
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "test");
    writer.add_interface(LinkType::Ethernet, "test", 0).unwrap();
    let comments = [Some("the first"), None, Some("the third\nof three")];
    for (nth, (frame, comment)) in (0..).zip(segments(1, 3).iter().zip(comments)) {
        writer
            .write(
                0,
                Instant::from_nanos(nth),
                None,
                [frame],
                PacketOptions { comment, ..PacketOptions::default() },
            )
            .unwrap();
    }
    writer
        .write(
            0,
            Instant::from_nanos(9),
            None,
            [&[7; 60]],
            PacketOptions { comment: Some("no IP"), ..PacketOptions::default() },
        )
        .unwrap();
    writer.finish().unwrap();
    fs::write(&input, file).unwrap();
    summary(&[&text(&input), &text(&output)]);
    let (mut reader, mut bytes, mut found) = (capture::open(&output).unwrap(), Vec::new(), Vec::new());
    while reader.next(&mut bytes).unwrap().is_some() {
        found.push(reader.comment().unwrap().to_owned());
    }
    found.sort();
    let [merged, alone] = &found[..] else { panic!("{found:?}") };
    assert!(merged.starts_with("nichrome: 3 segments, MSS 1000, flush "), "{merged}");
    assert!(merged.ends_with("\nthe first\nthe third\nof three"), "{merged}");
    assert_eq!(alone, "no IP");
}

#[test]
fn flags_and_lost_packets_are_kept() {
    let folder = tempdir().unwrap();
    let [input, merged, cut] =
        ["in.pcapng", "merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let mut writer = capture::create(&input, "test").unwrap();
    writer.add_interface(LinkType::Ethernet, "test", 0).unwrap();
    let inbound = PacketOptions { flags: Some(1), ..PacketOptions::default() };
    let after_loss = |lost| PacketOptions { dropped: Some(lost), ..inbound };
    let given = [inbound, after_loss(2), after_loss(3)];
    for (nth, (frame, options)) in (0..).zip(segments(1, 3).into_iter().zip(given)) {
        writer.write(0, Instant::from_nanos(nth), None, [frame], options).unwrap();
    }
    writer.write(0, Instant::from_nanos(9), None, [[7; 60]], after_loss(7)).unwrap();
    writer.finish().unwrap();
    printed(&["coalesce", &text(&input), &text(&merged)]);
    printed(&["segment", &text(&merged), &text(&cut)]);
    let options = |path: &Path| {
        let (mut reader, mut found) = (capture::open(path).unwrap(), Vec::new());
        while reader.next(&mut Vec::new()).unwrap().is_some() {
            found.push((reader.options().flags, reader.options().dropped));
        }
        found.sort();
        found
    };
    assert_eq!(options(&merged), [(Some(1), Some(5)), (Some(1), Some(7))]);
    let first_has_the_sum = [(Some(1), None), (Some(1), None), (Some(1), Some(5)), (Some(1), Some(7))];
    assert_eq!(options(&cut), first_has_the_sum);
}

#[test]
fn interfaces_keep_their_names() {
    let folder = tempdir().unwrap();
    let [input, merged, cut] =
        ["in.pcapng", "merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let mut writer = capture::create(&input, "test").unwrap();
    for name in ["wg0", "", "eth0"] {
        writer.add_interface(LinkType::Ethernet, name, 0).unwrap();
    }
    // The last interface has the first packet.
    for (nth, frame) in (0..).zip(segments(1, 6)) {
        writer
            .write(2 - nth / 2, Instant::from_nanos(nth.into()), None, [frame], PacketOptions::default())
            .unwrap();
    }
    writer.finish().unwrap();
    printed(&["coalesce", &text(&input), &text(&merged)]);
    printed(&["segment", &text(&merged), &text(&cut)]);
    for output in [&merged, &cut] {
        let (mut reader, mut names) = (capture::open(output).unwrap(), Vec::new());
        while reader.next(&mut Vec::new()).unwrap().is_some() {
            names.push(reader.interface_name().unwrap().to_owned());
        }
        names.dedup();
        names.sort();
        assert_eq!(names, ["eth0", "interface 1", "wg0"], "{}", output.display());
    }
}

#[test]
fn segments_with_long_comments_come_back() {
    let folder = tempdir().unwrap();
    let [input, merged, cut] =
        ["in.pcapng", "merged.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let mut writer = capture::create(&input, "test").unwrap();
    writer.add_interface(LinkType::Ethernet, "test", 0).unwrap();
    let (frames, comment) = (segments(1, 6), "x".repeat(10_940));
    for (nth, frame) in (0..).zip(&frames) {
        writer
            .write(
                0,
                Instant::from_nanos(nth),
                None,
                [frame],
                PacketOptions { comment: Some(&comment), ..PacketOptions::default() },
            )
            .unwrap();
    }
    writer.finish().unwrap();
    let found = summary(&[&text(&input), &text(&merged)]);
    assert_eq!(number(&found, "aggregates"), 1);
    printed(&["segment", &text(&merged), &text(&cut)]);
    assert!(records(&cut).iter().map(|(_, bytes)| bytes).eq(&frames));
    let mut reader = capture::open(&cut).unwrap();
    reader.next(&mut Vec::new()).unwrap();
    let expected = [&[&*comment; 5][..], &["nichrome: 1 comment left out: pcapng allows 65,535 bytes"]];
    assert_eq!(reader.comment(), Some(&*expected.concat().join("\n")));
}

#[test]
fn a_filter_leaves_packets_out_and_counts_them() {
    let folder = tempdir().unwrap();
    let (input, output) = (captured("tcp-loss"), folder.path().join("out.pcapng"));
    let all = number(&summary(&[&input]), "packets_in");
    for (filter, inverse) in [("port 5201", "not port 5201"), ("before 5ms", "after 5ms")] {
        let taken = summary(&[&input, &text(&output), "--filter", filter, "--verify"]);
        let others = summary(&[&input, "--filter", inverse]);
        for [one, other] in [[&taken, &others], [&others, &taken]] {
            assert_eq!(number(one, "packets_in"), number(other, "filtered"));
            assert_eq!(number(one, "packets_in") + number(one, "filtered"), all);
        }
    }
    assert_eq!(records(&output).last().map(|(record, _)| record.link_type), Some(LinkType::Ethernet));
    let cut: Value =
        serde_json::from_str(&printed(&["segment", "--json", &input, &text(&output), "--filter", "udp"]))
            .unwrap();
    assert_eq!((number(&cut, "packets_in"), number(&cut, "filtered")), (0, all));
    let wrong = nichrome(&["coalesce", &input, "--filter", "prot 80"]);
    let error = stderr(&wrong);
    assert!(
        wrong.status.code() == Some(2)
            && error.contains("'prot' is not a term")
            && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn what_is_not_ip_behind_a_cooked_header_is_counted_and_kept() {
    let folder = tempdir().unwrap();
    let [path, out] = ["in.pcapng", "out.pcapng"].map(|name| folder.path().join(name));
    let arp = [&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 6][..], &[0x45; 28]].concat();
    let frames = [0, 1].map(|nanos| Given { interface: 0, nanos, original_len: None, bytes: &arp });
    let input = write_capture(&path, &[LinkType::LinuxCooked], frames);
    for profile in PROFILES {
        let summary = summary(&[&input, &text(&out), "--profile", profile, "--verify"]);
        // As Ethernet frames.
        assert_eq!((number(&summary, "bytes_in"), number(&summary, "bytes_out")), (84, 84), "{profile}");
        assert_eq!(number(&summary["passes"], "not_tcp"), 2);
        assert!(records(&out).into_iter().all(|(_, bytes)| bytes == arp));
    }
}

#[test]
fn packets_that_the_snap_length_cut_are_counted_and_passed() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("in.pcapng");
    let segments = segments(5, 4);
    let frames = segments.iter().enumerate().map(|(nth, frame)| Given {
        interface: 0,
        nanos: nth as u64,
        original_len: (nth < 3).then_some(frame.len() as u32),
        bytes: &frame[..if nth < 3 { 200 } else { frame.len() }],
    });
    let input = write_capture(&path, &[LinkType::Ethernet], frames);
    let json = summary(&[&input, "--verify"]);
    assert_eq!((number(&json, "snapped"), number(&json, "packets_out")), (3, 4));
    let output = nichrome(&["coalesce", &input]);
    assert!(stdout(&output).contains("cut short"), "{}", stdout(&output));
}
