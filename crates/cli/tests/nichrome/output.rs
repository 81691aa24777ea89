//! The captures that `nichrome coalesce` writes, read by other programs.

use std::collections::BTreeMap;

use crate::run::{
    Given, PROFILES, capture, captures, number, records, segments, summary, text, write_capture,
};
use nichrome_port::capture::LinkType;
use nichrome_wire::TcpFrame;
use tempfile::tempdir;

use crate::installed::tshark;

#[test]
fn wireshark_reads_every_output_and_finds_every_checksum_right() {
    let folder = tempdir().unwrap();
    let out = text(&folder.path().join("out.pcapng"));
    for path in captures() {
        for profile in PROFILES {
            let summary = summary(&[&text(&path), &out, "--profile", profile, "--bad-checksum", "drop"]);
            let fields =
                ["-e", "tcp.checksum.status", "-e", "ip.checksum.status", "-e", "_ws.expert.message"];
            let checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
            let lines = tshark(&[&["-r", &out, "-T", "fields"], &fields[..], &checks].concat());
            assert_eq!(lines.len() as u64, number(&summary, "packets_out"), "{path:?} {profile}");
            for line in lines {
                let mut statuses = line.split('\t').take(2);
                // The status 1 is good; a field is empty if the packet does not have it.
                assert!(
                    statuses.all(|status| status == "1" || status.is_empty()),
                    "{path:?} {profile}: {line}"
                );
                assert!(
                    !line.contains("Malformed") && !line.contains("exceeds"),
                    "{path:?} {profile}: {line}"
                );
            }
        }
    }
}

#[test]
fn comments_of_aggregates_describe_their_segments() {
    let folder = tempdir().unwrap();
    let out = text(&folder.path().join("out.pcapng"));
    let summary = summary(&[&capture("tcp-clean"), &out, "--profile", "npu"]);
    let lines = tshark(&["-r", &out, "-Y", "frame.comment", "-T", "fields", "-e", "frame.comment"]);
    assert_eq!(lines.len() as u64, number(&summary, "aggregates"));
    assert!(lines.iter().any(|line| line.starts_with("nichrome: 2 segments, MSS 1448, flush ")), "{lines:?}");
}

#[test]
fn wireshark_sees_the_same_streams_before_and_after() {
    let folder = tempdir().unwrap();
    let out = text(&folder.path().join("out.pcapng"));
    for name in ["tcp-clean", "tcp-no-timestamps"] {
        let path = capture(name);
        for profile in PROFILES {
            summary(&[&path, &out, "--profile", profile]);
            let follow = |path: &str| tshark(&["-r", path, "-q", "-z", "follow,tcp,raw,1"]);
            let (before, after) = (follow(&path), follow(&out));
            // The same bytes in each direction, in pieces of other lengths.
            let ways = |lines: &[String]| {
                let hex =
                    |way: bool| lines.iter().filter(move |l| l.starts_with('\t') == way).map(|l| l.trim());
                let is_hex = |line: &&str| line.bytes().all(|byte| byte.is_ascii_hexdigit());
                [true, false].map(|way| hex(way).filter(is_hex).collect::<String>())
            };
            let (before, after) = (ways(&before), ways(&after));
            assert!(before.iter().any(|way| way.len() > 100_000));
            assert!(before == after, "{name} {profile}");
        }
    }
}

#[test]
fn packets_are_written_in_the_order_of_time_when_they_leave() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    for path in captures() {
        for profile in PROFILES {
            let summary = summary(&[&text(&path), &text(&out), "--profile", profile, "--hold", "1ms"]);
            let written = records(&out);
            assert_eq!(written.len() as u64, number(&summary, "packets_out"));
            assert!(written.is_sorted_by_key(|(record, _)| record.time), "{path:?} {profile}");
        }
    }
}

#[test]
fn frames_that_were_cut_short_keep_the_length_that_they_had() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let frames = segments(1, 3);
    let given = frames.iter().zip(0..).map(|(frame, nth)| Given {
        interface: 0,
        nanos: nth,
        original_len: Some(frame.len() as u32),
        bytes: &frame[..100],
    });
    let input = write_capture(&folder.path().join("in.pcapng"), &[LinkType::Ethernet], given);
    for profile in PROFILES {
        let summary = summary(&[&input, &text(&out), "--verify", "--profile", profile]);
        assert_eq!(number(&summary["passes"], "malformed"), 3);
        let written = records(&out);
        for ((record, bytes), frame) in written.iter().zip(&frames) {
            assert_eq!((record.original_len as usize, &bytes[..]), (frame.len(), &frame[..100]));
        }
        assert_eq!(written.len(), 3);
    }
}

#[test]
fn times_in_the_output_never_decrease() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let frames = segments(1, 4);
    let given = frames.iter().zip([5_000_000, 3_000_000, 0, 5_000_001]).map(|(bytes, nanos)| Given {
        interface: 0,
        nanos,
        original_len: None,
        bytes,
    });
    let input = write_capture(&folder.path().join("in.pcapng"), &[LinkType::Ethernet], given);
    for profile in PROFILES {
        let summary = summary(&[&input, &text(&out), "--verify", "--profile", profile]);
        assert_eq!((number(&summary, "packets_out"), number(&summary, "aggregates")), (1, 1), "{profile}");
        let (record, bytes) = &records(&out)[0];
        assert!(record.time.as_nanos() > 5_000_000);
        assert_eq!(bytes.len(), 54 + 4000);
    }
}

#[test]
fn interfaces_are_kept_apart() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let (ethernet, ip) = (segments(1, 10), segments(1, 10));
    let given = (0..10).flat_map(|nth| {
        let nanos = nth as u64;
        [
            Given { interface: 0, nanos, original_len: None, bytes: &ethernet[nth] },
            Given { interface: 1, nanos, original_len: None, bytes: &ip[nth][14..] },
            Given { interface: 2, nanos, original_len: None, bytes: &ethernet[nth] },
        ]
    });
    let link_types = [LinkType::Ethernet, LinkType::RawIp, LinkType::Ethernet];
    let input = write_capture(&folder.path().join("in.pcapng"), &link_types, given);
    for profile in PROFILES {
        let summary = summary(&[&input, &text(&out), "--verify", "--profile", profile]);
        assert_eq!(number(&summary, "packets_out"), 3, "{profile}");
        assert_eq!(number(&summary["verified"], "frames"), 30);
        let written = records(&out);
        let written =
            written.iter().map(|(record, bytes)| (record.interface, (record.link_type, bytes.len())));
        let expected =
            [(LinkType::Ethernet, 10_054), (LinkType::RawIp, 10_040), (LinkType::Ethernet, 10_054)];
        assert_eq!(written.collect::<BTreeMap<_, _>>(), (0..).zip(expected).collect());
    }
}

#[test]
fn a_silent_interface_holds_no_longer_than_a_busy_one() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let mut frames = segments(1, 2);
    // An acknowledgement passes at once.
    frames.push(TcpFrame::default().build());
    let given = [(0, 1000), (0, 2000), (1, 1_000_000)];
    let given = given.iter().zip(&frames).map(|(&(interface, nanos), bytes)| Given {
        interface,
        nanos,
        original_len: None,
        bytes,
    });
    let input = write_capture(&folder.path().join("in.pcapng"), &[LinkType::Ethernet; 2], given);
    for profile in ["gro", "netfpga"] {
        summary(&[&input, &text(&out), "--profile", profile, "--hold", "50us"]);
        let times: Vec<u64> = records(&out).iter().map(|(record, _)| record.time.as_nanos()).collect();
        assert_eq!(times, [51_000, 1_000_000], "{profile}");
    }
}

#[test]
fn more_interfaces_than_engines_take_turns() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let link_types = vec![LinkType::Ethernet; 100];
    let frames = segments(1, 4);
    let given = (0..400).map(|nth| Given {
        interface: nth / 4,
        nanos: u64::from(nth),
        original_len: None,
        bytes: &frames[nth as usize % 4],
    });
    let input = write_capture(&folder.path().join("in.pcapng"), &link_types, given);
    let summary = summary(&[&input, &text(&out), "--verify", "--hold", "1s"]);
    assert_eq!((number(&summary, "packets_in"), number(&summary, "aggregates")), (400, 100));
    assert_eq!(number(&summary["verified"], "frames"), 400);
    let written = records(&out);
    assert!(written.is_sorted_by_key(|(record, _)| record.time));
    assert_eq!(written.len(), 100);
}
