//! `nichrome coalesce` on captures of real traffic, and its summary.

use std::fs;
use std::path::Path;

use crate::run::{
    Given, PROFILES, capture, captures, command, datagrams, nichrome, number, printed, records, segments,
    stderr, stdout, summary, text, write_capture,
};
use nichrome_port::capture::LinkType;
use serde_json::Value;
use tempfile::tempdir;

#[test]
fn every_capture_is_verified_with_every_profile() {
    for capture in captures() {
        let (packets, path) = (records(&capture).len() as u64, text(&capture));
        for profile in PROFILES {
            for more in [&[][..], &["--hold", "5ms"], &["--hold", "0"], &["--max-bytes", "3000"]] {
                let arguments = [&[&*path, "--verify", "--profile", profile], more].concat();
                let summary = summary(&arguments);
                assert_eq!(number(&summary["verified"], "frames"), packets, "{arguments:?}");
            }
        }
        for more in [
            ["--psh", "end"],
            ["--active-ack", "safe"],
            ["--reorder-hold", "1ms"],
            ["--bad-checksum", "pass"],
        ] {
            let arguments = [&[&*path, "--verify", "--profile", "npu"], &more[..]].concat();
            assert_eq!(number(&summary(&arguments)["verified"], "frames"), packets, "{arguments:?}");
        }
    }
}

#[test]
fn output_that_fails_verification_is_an_error_of_one_line() {
    // The paper's Algorithm 1 drops segments that arrive after it has given up their gap.
    let path = capture("tcp-reorder");
    let options = ["--profile", "npu", "--rules", "paper", "--reorder-hold", "500us", "--verify"];
    let output = nichrome(&[&["coalesce", &path], &options[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr(&output);
    let whose = "the output fails verification: --rules paper drops segments that it has not seen \
                 (--rules safe does not): 10.77.0.2:48924 > 10.77.0.1:5201";
    assert!(stderr.contains(whose), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn json_has_stable_names_and_types() {
    let summary = summary(&[&capture("tcp-duplicate-corrupt"), "--profile", "npu", "--verify"]);
    for name in [
        "packets_in",
        "packets_out",
        "bytes_in",
        "bytes_out",
        "tcp_payload_bytes_in",
        "tcp_payload_bytes_out",
        "aggregates",
        "acks_sent",
        "flow_count",
    ] {
        assert!(summary[name].is_u64(), "{name}");
    }
    assert!(summary["mean_segments_per_aggregate"].is_f64());
    assert_eq!(summary["profile"], "npu");
    assert_eq!((&summary["truncated"], &summary["flow_count_exceeded"]), (&false.into(), &false.into()));
    for name in ["flush_reasons", "passes", "drops"] {
        assert!(summary[name].as_object().unwrap().values().all(Value::is_u64), "{name}");
    }
    assert_eq!(number(&summary["drops"], "tcp_checksum"), 3);
    for size in summary["segments_histogram"].as_array().unwrap() {
        assert!(size["segments"].is_u64() && size["packets"].is_u64());
    }
    let flow = &summary["flows"][0];
    assert_eq!(flow["flow"], "10.77.0.2:48936 > 10.77.0.1:5201");
    for name in ["packets_in", "packets_out", "payload_bytes"] {
        assert!(flow[name].is_u64(), "{name}");
    }
    assert!(flow["mean_segments_per_aggregate"].is_f64());
    for name in ["frames", "flows", "bytes"] {
        assert!(summary["verified"][name].is_u64(), "{name}");
    }
}

/// The text output has these values, so programs need them as well.
#[test]
fn json_has_the_hold_times_and_the_packets_without_payload() {
    let path = capture("tcp-loss");
    for (profile, [hold, for_a_gap]) in [
        ("gro", [50.0.into(), Value::Null]),
        ("netfpga", [50.0.into(), Value::Null]),
        ("npu", [1000.0.into(), 500.0.into()]),
    ] {
        let summary = summary(&[&path, "--profile", profile]);
        assert_eq!([&summary["hold_us"], &summary["reorder_hold_us"]], [&hold, &for_a_gap], "{profile}");
        let output = nichrome(&["coalesce", &path, "--profile", profile]);
        let without =
            format!(" {} of them without TCP payload", number(&summary, "packets_out_without_payload"));
        assert!(stdout(&output).contains(&without), "{profile}: {without}");
    }
}

#[test]
fn the_numbers_of_the_summary_agree() {
    for path in captures() {
        for profile in PROFILES {
            let summary = summary(&[&text(&path), "--profile", profile, "--top", "100"]);
            let sum = |name: &str| -> u64 {
                summary[name].as_object().unwrap().values().filter_map(Value::as_u64).sum()
            };
            let [packets_in, packets_out] = ["packets_in", "packets_out"].map(|name| number(&summary, name));
            assert_eq!(packets_in, records(&path).len() as u64);
            assert_eq!(sum("flush_reasons") + sum("passes"), packets_out);
            let sizes: Vec<(u64, u64)> = summary["segments_histogram"]
                .as_array()
                .unwrap()
                .iter()
                .map(|size| (number(size, "segments"), number(size, "packets")))
                .collect();
            assert_eq!(sizes.iter().map(|(_, packets)| packets).sum::<u64>(), packets_out);
            let segments = sizes.iter().map(|(segments, packets)| segments * packets).sum::<u64>();
            assert_eq!(segments + sum("drops"), packets_in);
            let merged = || sizes.iter().filter(|(segments, _)| *segments > 1);
            let aggregates = merged().map(|(_, packets)| packets).sum::<u64>();
            assert_eq!(aggregates, number(&summary, "aggregates"));
            let mean = merged().map(|(segments, packets)| segments * packets).sum::<u64>() as f64
                / aggregates as f64;
            assert!((mean - summary["mean_segments_per_aggregate"].as_f64().unwrap()).abs() < 1e-9);
            let flows = summary["flows"].as_array().unwrap();
            assert_eq!(flows.len() as u64, number(&summary, "flow_count"));
            let payload: u64 = flows.iter().map(|flow| number(flow, "payload_bytes")).sum();
            assert_eq!(payload, number(&summary, "tcp_payload_bytes_in"));
        }
    }
}

#[test]
fn reordering_at_least_doubles_the_aggregates_of_gro() {
    let mean = |profile: &str| {
        let summary = summary(&[&capture("tcp-reorder"), "--hold", "5ms", "--profile", profile]);
        summary["mean_segments_per_aggregate"].as_f64().unwrap()
    };
    let (npu, gro) = (mean("npu"), mean("gro"));
    assert!(npu >= 2.0 * gro, "npu {npu}, gro {gro}");
}

#[test]
fn longer_holds_make_fewer_packets_in_every_profile() {
    for profile in PROFILES {
        let out = |hold: &str| {
            number(&summary(&[&capture("tcp-loss"), "--profile", profile, "--hold", hold]), "packets_out")
        };
        assert!(out("5ms") < out("30us") && out("30us") < out("0"), "{profile}");
        let given = summary(&[&capture("tcp-loss"), "--profile", profile]);
        assert!(number(&given, "packets_out") < out("0"), "{profile}");
    }
}

#[test]
fn the_total_mean_is_that_of_the_only_flow_with_aggregates() {
    let summary = summary(&[&capture("tcp-clean"), "--profile", "netfpga"]);
    let name = "mean_segments_per_aggregate";
    assert_eq!(summary["flows"][0][name], summary[name]);
    assert_eq!(summary["flows"][1][name], 0.0);
}

#[test]
fn the_card_acknowledges_into_a_capture_of_its_own() {
    let folder = tempdir().unwrap();
    let acks = folder.path().join("acks.pcapng");
    let arguments =
        [&capture("tcp-clean"), "--profile", "npu", "--active-ack", "safe", "--acks", &text(&acks)];
    let sent = number(&summary(&arguments), "acks_sent");
    assert!(sent > 10, "{sent}");
    assert_eq!(records(&acks).len() as u64, sent);
}

#[test]
fn the_text_has_the_results_of_json() {
    let text =
        printed(&["coalesce", &capture("tcp-duplicate-corrupt"), "--verify", "--top", "2", "--hold", "1ms"]);
    for part in [
        "through gro, held for at most 1ms\n",
        "aggregates of ",
        "159 of them without TCP payload",
        "flushed      psh ",
        "passed       bad_checksum 3, syn 6",
        "dropped      –",
        "top 2 of 6 flows",
        "10.77.0.2:48936 > 10.77.0.1:5201",
        "verified: 574 frames of 6 flows were delivered",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110 && !line.ends_with(' ')), "{text}");
    assert_eq!(text.matches(" > ").count(), 2);
}

/// README's example: its command, and lines of the output.
#[test]
fn the_output_is_as_the_readme_prints_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, example) = readme.split_once("`nichrome coalesce tests/captures/").unwrap();
    let (arguments, after) = example.split_once('`').unwrap();
    let arguments: Vec<_> = arguments.split(' ').collect();
    let file = format!("tests/captures/{}", arguments[0]);
    let run = [&["coalesce", &file][..], &arguments[1..]].concat();
    let output = command(&run).current_dir(&root).output().unwrap();
    let code = after.lines().skip_while(|line| !line.starts_with("    "));
    let code: Vec<_> = code.take_while(|line| line.is_empty() || line.starts_with("    ")).collect();
    let printed: Vec<_> = stdout(&output).lines().collect();
    let lines = || code.iter().filter_map(|line| line.strip_prefix("    "));
    assert!(lines().count() > 8);
    for line in lines() {
        assert!(printed.contains(&line), "{line:?} is not in {printed:#?}");
    }
}

#[test]
fn the_plot_is_a_picture_with_titles_units_and_legends() {
    let folder = tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    printed(&["coalesce", &capture("tcp-reorder"), "--profile", "npu", "--plot", &text(&plot)]);
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for part in [
        "tcp-reorder.pcap through npu: 1,001 packets in",
        "Packets to the host by size",
        "segments in the packet",
        "5–8",
        "Packets over time",
        "time from the first packet (ms)",
        "packets per second",
        "before",
        "after",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn help_and_version_are_there() {
    assert!(printed(&["--version"]).starts_with("nichrome 0."));
    assert!(printed(&["coalesce", "--help"]).contains("Examples:"));
    for arguments in [&["--help"][..], &["bench", "--help"], &["bench", "lro", "--help"]] {
        printed(arguments);
    }
}

#[test]
fn the_comparison_equals_single_runs() {
    let (folder, input) = (tempdir().unwrap(), capture("tcp-reorder"));
    let plot = folder.path().join("all.svg");
    let compared = printed(&["coalesce", &input, "--compare", "--verify", "--json", "--plot", &text(&plot)]);
    let compared: Value = serde_json::from_str(&compared).unwrap();
    let runs = compared["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 12);
    for run in runs {
        let hold = format!("{}us", number(run, "hold_us"));
        let alone = summary(&[&input, "--profile", run["profile"].as_str().unwrap(), "--hold", &hold]);
        assert_eq!(number(&alone, "packets_in"), number(&compared, "packets_in"));
        for field in ["packets_out", "aggregates", "mean_segments_per_aggregate"] {
            assert_eq!(run[field], alone[field], "{field} of {run}");
        }
        assert_eq!(number(&run["verified"], "frames"), 1001);
    }
    let verified = printed(&["coalesce", &input, "--compare", "--verify"]);
    assert!(
        verified.ends_with("\nverified: 1,001 frames of 6 flows were delivered by each of 12 engines\n"),
        "{verified}"
    );
    let svg = fs::read_to_string(plot).unwrap();
    assert!(PROFILES.iter().all(|profile| svg.contains(&format!("\n{profile}\n"))), "{svg}");
    let printed = printed(&["coalesce", &input, "--compare"]);
    assert!(!printed.contains("verified"), "{printed}");
    assert!(
        printed.contains("the fewest packets: npu, held for at most 5ms: 48.6 % of 1,001 packets"),
        "{printed}"
    );
    for refused in [&["-", "--compare"][..], &[&input, "--compare", "--hold", "1ms"]] {
        let output = nichrome(&[&["coalesce"], refused].concat());
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1));
    }
}

/// Without the counts of drops, the card that drops most would seem the best.
#[test]
fn the_comparison_counts_wrong_checksums_and_drops() {
    const WRONG: u32 = 30;
    let folder = tempdir().unwrap();
    let mut frames = [segments(1, WRONG), segments(2, 10)].concat();
    // The TCP checksum behind the headers of Ethernet and IPv4.
    frames[..WRONG as usize].iter_mut().for_each(|frame| frame[50] ^= 1);
    let given = frames.iter().map(|bytes| Given { interface: 0, nanos: 0, original_len: None, bytes });
    let input = write_capture(&folder.path().join("in.pcapng"), &[LinkType::Ethernet], given);
    let arguments = ["coalesce", &input, "--compare"];
    let compared = |more: &[&str]| -> (String, Value) {
        let json = printed(&[&arguments[..], more, &["--json"]].concat());
        (printed(&[&arguments[..], more].concat()), serde_json::from_str(&json).unwrap())
    };
    let counts = |compared: &Value, name: &str| -> Vec<u64> {
        compared["runs"].as_array().unwrap().iter().map(|run| number(run, name)).collect()
    };
    let wrong =
        "\n\nwrong checksums: 30 packets, not coalesced: captured on a sender with checksum offload?\n";
    let (text, json) = compared(&[]);
    let end = "the fewest packets: gro, held for at most 50µs: 77.5 % of 40 packets\n";
    assert!(text.ends_with(&format!("{wrong}{end}")) && !text.contains("dropped"), "{text}");
    assert_eq!(
        (counts(&json, "drops"), counts(&json, "bad_checksums")),
        (vec![0; 12], vec![u64::from(WRONG); 12])
    );
    let (text, json) = compared(&["--bad-checksum", "drop"]);
    let end = "the fewest packets, dropped ones included: gro, held for at most 50µs: 77.5 % of 40 packets\n";
    assert!(text.ends_with(&format!("{wrong}{end}")), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("gro ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["gro", "50µs", "1", "30", "77.5", "%", "1", "10.0"]);
    assert_eq!(
        (counts(&json, "drops"), counts(&json, "bad_checksums")),
        (vec![u64::from(WRONG); 12], vec![u64::from(WRONG); 12])
    );
}

#[test]
fn the_comparison_counts_what_the_filter_and_the_snap_length_leave_out() {
    let folder = tempdir().unwrap();
    let frames = [segments(1, 2), datagrams(1, &[1000; 3], true)].concat();
    let given = frames.iter().map(|frame| Given {
        interface: 0,
        nanos: 0,
        original_len: Some(frame.len() as u32),
        bytes: &frame[..100],
    });
    let input = write_capture(&folder.path().join("in.pcapng"), &[LinkType::Ethernet], given);
    let arguments = ["coalesce", &input, "--compare", "--filter", "tcp"];
    let printed_text = printed(&arguments);
    let end = "\n\nfiltered out: 3 packets\ncut short: 2 packets by the snap length: capture with 'tcpdump -s 0'\n\
               the fewest packets: gro, held for at most 50µs: 100.0 % of 2 packets\n";
    assert!(printed_text.ends_with(end), "{printed_text}");
    let compared: Value = serde_json::from_str(&printed(&[&arguments[..], &["--json"]].concat())).unwrap();
    let counts = ["packets_in", "filtered", "snapped"].map(|name| number(&compared, name));
    assert_eq!(counts, [2, 3, 2]);
}
