//! `nichrome bench`: the names in its output, and relations that hold on every machine.

use std::fs;
use std::process::Command;

use crate::common;
use crate::run::{
    Given, PROFILES, capture, nichrome, number, printed, records, segments, stderr, text, write_capture,
};
use nichrome_port::capture::LinkType;
use serde_json::Value;
use tempfile::tempdir;

fn measured(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[&["bench"], arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn every_profile_is_measured_and_none_allocates_per_packet() {
    let clean = capture("tcp-clean");
    for profile in PROFILES {
        // One full measurement is enough: the other profiles are measured in a single run.
        let (rounds, runs): (&[&str], _) = if profile == "gro" { (&[], 15) } else { (&["--quick"], 1) };
        let report = measured(&[&["lro", &clean, "--profile", profile], rounds].concat());
        for name in [
            "ns_per_packet",
            "ns_per_packet_with_checksum",
            "ns_per_packet_read",
            "gbps",
            "gbps_with_checksum",
        ] {
            assert!(report[name].as_f64().unwrap() > 0.0, "{name}");
        }
        assert_eq!(report["allocations_per_packet"], 0.0, "{profile}");
        assert_eq!(report["profile"], profile);
        assert_eq!((number(&report, "packets_in"), number(&report, "flows")), (720, 4));
        assert!(number(&report, "packets_out") < 500);
        assert!(number(&report, "runs") >= runs);
    }
}

#[test]
fn flows_in_random_order_are_generated() {
    let clean = capture("tcp-clean");
    let one = measured(&["lro", &clean, "--flows", "1", "--quick"]);
    assert_eq!((number(&one, "flows"), number(&one, "packets_in")), (1, 8192));
    // Every burst is one aggregate: segments follow in sequence, checksums are right.
    assert_eq!(number(&one, "packets_out"), 8192 / 32);
    let file = capture("tcp-ipv6-reorder-loss");
    let many = measured(&["lro", &file, "--profile", "npu", "--flows", "20000", "--quick"]);
    assert_eq!((number(&many, "flows"), number(&many, "packets_in")), (20_000, 20_000));
    assert!(number(&many, "packets_out") > 19_000);
    assert_eq!(many["allocations_per_packet"], 0.0);
}

#[test]
fn interleaved_flows_are_a_table_of_flows_runs_and_profiles() {
    let clean = capture("tcp-clean");
    let report = measured(&["lro", &clean, "--interleave", "--quick"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((rows.len(), number(&report, "burst")), (24, 32));
    let folder = tempdir().unwrap();
    let captures = folder.path().join("new");
    printed(&["bench", "lro", &clean, "--interleave", "--captures", &text(&captures)]);
    for row in rows {
        let [flows, in_a_row] = ["flows", "in_a_row"].map(|name| number(row, name));
        let profiles = row["profiles"].as_array().unwrap();
        assert!(profiles.iter().map(|of| of["profile"].as_str().unwrap()).eq(PROFILES));
        for profile in profiles {
            for name in ["ns_per_packet", "ns_per_packet_with_checksum"] {
                assert!(profile[name].as_f64().unwrap() > 0.0, "{name}");
            }
            let [before, after] = ["packets_in", "packets_out"].map(|name| number(profile, name));
            // gro merges the segments of a flow within a burst.
            let most = in_a_row.max(32 / flows);
            let is_right = match (profile["profile"].as_str(), &row["merges"]) {
                (Some("gro"), Value::Bool(true)) => (before / most..=before / in_a_row).contains(&after),
                (Some("gro"), _) => after == before,
                _ => after <= before,
            };
            assert!(is_right, "{profile} of {flows} flows, {in_a_row} in a row");
        }
        let merges = if row["merges"] == true { "yes" } else { "no" };
        let written = records(&captures.join(format!("{flows}-{in_a_row}-{merges}.pcap")));
        assert!(written.len() as u64 >= flows * in_a_row);
    }
}

#[test]
fn every_pass_over_a_file_is_like_the_first() {
    let folder = tempdir().unwrap();
    // Without SYN and FIN, nothing in the file itself shows that the flow begins again.
    let frames = segments(1, 64);
    let given = frames.iter().map(|bytes| Given { interface: 0, nanos: 0, original_len: None, bytes });
    let file = write_capture(&folder.path().join("in.pcapng"), &[LinkType::Ethernet], given);
    for profile in PROFILES {
        let report = measured(&["lro", &file, "--profile", profile, "--quick"]);
        assert!(number(&report, "packets_out") <= 2, "{profile}: {report}");
    }
}

#[test]
fn a_capture_that_is_cut_off_is_measured_as_far_as_it_goes() {
    let folder = tempdir().unwrap();
    let cut = folder.path().join("cut.pcap");
    let bytes = fs::read(capture("tcp-clean")).unwrap();
    fs::write(&cut, &bytes[..100_000]).unwrap();
    let output = nichrome(&["bench", "lro", &text(&cut), "--quick"]);
    let (start, end) =
        (format!("nichrome: warning: {}: the capture is cut off after ", cut.display()), "measured\n");
    let warning = stderr(&output);
    assert!(
        warning.starts_with(&start) && warning.ends_with(end) && warning.lines().count() == 1,
        "{warning}"
    );
    assert!(output.status.success());
    fs::write(&cut, &bytes[..50]).unwrap();
    let (line, status) = common::failure(&nichrome(&["bench", "lro", &text(&cut), "--quick"]));
    assert!(line.contains("cut off after 0 whole records") && status == 1, "{line}");
}

#[test]
fn checksum_and_crc_are_measured_beside_a_plain_read_at_six_sizes() {
    let report = measured(&["checksum", "--quick"]);
    let sizes = report["sizes"].as_array().unwrap();
    let bytes: Vec<_> = sizes.iter().map(|size| number(size, "bytes")).collect();
    assert_eq!(bytes, [64, 576, 1448, 1500, 9000, 65_536]);
    for name in ["gb_per_s", "read_gb_per_s", "crc32c_gb_per_s"] {
        assert!(sizes.iter().all(|size| size[name].as_f64().unwrap() > 0.0), "{name}");
    }
}

#[test]
fn a_missing_iperf3_is_reported_before_the_measurement() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    let output = command.args(["bench", "wan"]).env("PATH", "/nonexistent").output().unwrap();
    let expected = "nichrome: cannot run iperf3, which throughput is measured with (install Debian's package iperf3): \
                No such file or directory (os error 2)\n";
    assert_eq!(
        (String::from_utf8(output.stderr).unwrap().as_str(), output.status.code()),
        (expected, Some(1))
    );
}

#[test]
fn text_is_printed_without_json() {
    let text = printed(&["bench", "checksum", "--quick"]);
    assert!(text.contains("plain read") && text.contains("\n  1500 "), "{text}");
    let text = printed(&["bench", "lro", &capture("tcp-no-timestamps"), "--quick"]);
    assert!(text.contains("ns per packet") && text.contains("with checksum"), "{text}");
}

#[test]
fn the_simulator_is_measured_beside_a_heap_that_agrees() {
    let report = measured(&["sim", "--quick"]);
    assert_eq!((number(&report, "pending"), number(&report, "network_hosts")), (65_000, 256));
    for name in ["events_per_s", "heap_events_per_s", "queue_by_heap", "network_events_per_s"] {
        assert!(report[name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert!(report["network_pending"].as_f64().unwrap() > 1000.0);
}
