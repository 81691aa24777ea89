//! Traces of one run: its packets and its time series.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tempfile::tempdir;

use crate::command::{failure, json, names, printed, sim, text};
use crate::installed::tshark;

/// One point of each model, as short as possible, with the points at which its packets are captured.
const POINTS: [(&[&str], &[&str]); 2] = [
    (
        &["lro-npu-throughput", "--point", "with LRO/4", "--set", "warm-up=2ms", "--set", "duration=5ms"],
        &["host in", "host out", "wire in", "wire out"],
    ),
    (
        &[
            "lro-netfpga-cpu",
            "--point",
            "LRO-enabled NIC/1000",
            "--set",
            "warm-up=0",
            "--set",
            "duration=5ms",
        ],
        &["host", "wire"],
    ),
];

fn run(point: &[&'static str]) -> Vec<&'static str> {
    [&["run"], point].concat()
}

/// Returns tshark's lines: interface, time, length, expert messages.
fn lines_of(capture: &str) -> Vec<String> {
    let fields =
        ["frame.interface_name", "frame.time_epoch", "frame.len", "tcp.checksum.status", "_ws.malformed"];
    let fields = fields.map(|field| ["-e", field]).concat();
    tshark(&[&["-r", capture, "-o", "tcp.check_checksum:TRUE", "-T", "fields"], &fields[..]].concat())
}

#[test]
fn wireshark_reads_the_packets_of_a_point() {
    let folder = tempdir().unwrap();
    let capture = folder.path().join("out.pcapng");
    for (point, places) in POINTS {
        let stdout = printed(&[&run(point)[..], &["--capture", text(&capture)]].concat());
        assert_eq!(stdout, printed(&run(point)), "recording changes nothing");
        let lines = lines_of(text(&capture));
        let mut longest = BTreeMap::new();
        let mut last = 0.0;
        for line in &lines {
            let [place, time, len, checksum, malformed] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert!(malformed.is_empty() && checksum == "1", "{line}");
            let (time, len): (f64, u32) = (time.parse().unwrap(), len.parse().unwrap());
            assert!(time >= last, "{line}");
            last = time;
            let most = longest.entry(place.to_owned()).or_insert(len);
            *most = len.max(*most);
        }
        assert_eq!(longest.keys().collect::<Vec<_>>(), places);
        let of = |places: &[&str]| places.iter().find_map(|place| longest.get(*place)).copied().unwrap();
        assert!(of(&["wire in", "wire"]) <= 1514, "{longest:?}");
        assert!(of(&["host in", "host"]) > 5 * 1514, "the host gets aggregates: {longest:?}");
    }
}

#[test]
fn a_capture_in_standard_output_has_nothing_else_there() {
    let folder = tempdir().unwrap();
    let capture = folder.path().join("out.pcapng");
    let arguments = run(POINTS[1].0);
    for more in [&[][..], &["--json"]] {
        let results = printed(&[&arguments[..], more, &["--capture", text(&capture)]].concat());
        let output = sim(&[&arguments[..], more, &["--capture", "-"]].concat());
        assert!(output.status.success() && output.stdout == fs::read(&capture).unwrap());
        assert_eq!(String::from_utf8(output.stderr).unwrap(), results);
    }
}

#[test]
fn numbers_over_time_agree_with_the_result() {
    let folder = tempdir().unwrap();
    let [csv, file] = ["out.csv", "out.json"].map(|name| folder.path().join(name));
    for (point, _) in POINTS {
        let sampled =
            |file| json(&[&run(point)[..], &["--sample", "500us", "--series", text(file)]].concat());
        let summary = sampled(&file);
        assert_eq!(summary, sampled(&csv));
        assert_eq!(summary, json(&run(point)), "sampling changes nothing");
        assert_eq!(summary["points"].as_array().unwrap().len(), 1);

        let series: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let throughput = &series.as_array().unwrap()[0];
        assert_eq!(throughput["name"], "throughput");
        let samples = throughput["samples"].as_array().unwrap();
        for (nth, sample) in samples.iter().enumerate() {
            assert_eq!(sample[0], nth * 500_000);
        }
        assert!(samples.iter().any(|sample| sample[1].as_f64().unwrap() > 0.0), "{samples:?}");

        let table = fs::read_to_string(&csv).unwrap();
        let unit = throughput["unit"].as_str().unwrap();
        assert!(table.starts_with(&format!("time (ns),throughput ({unit}),")), "{table}");
        let columns = series.as_array().unwrap().len() + 1;
        assert!(table.lines().skip(1).all(|line| line.split(',').count() == columns), "{table}");
        assert_eq!(table.lines().count(), samples.len() + 1);
    }
}

#[test]
fn points_that_cannot_be_traced_are_refused() {
    for (arguments, expected, status) in [
        (
            &["--point", "NIC"][..],
            "lro-netfpga-cpu, --point NIC: 'NIC' is not a point: expected SERIES/X, such as 'NIC/64'",
            2,
        ),
        (
            &["--point", "saved/64"],
            "lro-netfpga-cpu, --point saved/64: there is no series 'saved': there are NIC, LRO-enabled NIC",
            2,
        ),
        (
            &["--point", "NIC/9000B"],
            "lro-netfpga-cpu, --point NIC/9000B: frame: 9kB is out of range: expected 60B to 1514B",
            2,
        ),
        (&["--point", "NIC/64", "--set", "frame=128B"], "--set frame=128B: --point chooses its value", 2),
        (
            &["--point", "NIC/64", "--samples", "3"],
            "the argument '--point <SERIES/X>' cannot be used with '--samples <N>'",
            2,
        ),
        (
            &["--point", "NIC/64", "--series", "out.txt"],
            "--series out.txt: its name must end in .csv or .json",
            2,
        ),
        (
            &["--point", "NIC/64", "--series", "out.csv", "--sample", "0"],
            "invalid value '0' for '--sample <DURATION>': it must be longer than 0",
            2,
        ),
        (&["--capture", "out.pcapng"], "the following required arguments were not provided", 2),
        (
            &["--point", "NIC/64", "--capture", "/none/out.pcapng"],
            "lro-netfpga-cpu, NIC, frame = 64 B: cannot write /none/out.pcapng: No such file or directory",
            1,
        ),
    ] {
        let (line, code) = failure(&[&["run", "lro-netfpga-cpu"], arguments].concat());
        assert!(line.starts_with(expected) && code == status, "{arguments:?}: {line}");
    }
}

#[test]
fn a_model_without_time_series_says_so() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("series.csv");
    let (line, code) = failure(&["run", "iwarp-latency", "--point", "sockets/1", "--series", text(&file)]);
    let expected =
        "iwarp-latency, sockets, message = 1 B: model 'overip' has no time series: leave out --series";
    assert_eq!((line.as_str(), code, file.exists()), (expected, 1, false));
}

#[test]
fn a_failed_capture_leaves_an_existing_file_unchanged_and_no_new_one() {
    let folder = tempdir().unwrap();
    let [existing, new] = ["precious.pcapng", "new.pcapng"].map(|name| folder.path().join(name));
    fs::write(&existing, "precious").unwrap();
    for (point, expected) in [
        (
            &["star-rpc", "--point", "StaR/20"][..],
            "packets of model 'star' are lengths: there is nothing to capture",
        ),
        (
            &["lro-npu-throughput", "--point", "with LRO/1", "--set", "receive-threads=14"],
            "are 17 threads: 4 cores of 4 have 16",
        ),
        (
            &["lro-netfpga-cpu", "--point", "LRO-enabled NIC/1000", "--set", "queue=1GiB"],
            "bytes are reserved: at most 4294967296 may be",
        ),
        (&["iwarp-today", "--point", "RoCE/5", "--set", "pattern=senders"], "senders need sockets or rdma"),
    ] {
        for file in [&existing, &new] {
            let (line, code) = failure(&[&["run"], point, &["--capture", text(file)]].concat());
            assert!(line.ends_with(expected) && code == 1, "{line}");
        }
        assert_eq!(names(folder.path()), ["precious.pcapng"]);
        assert_eq!(fs::read_to_string(&existing).unwrap(), "precious");
    }
}

#[test]
fn a_capture_replaces_an_existing_file() {
    let folder = tempdir().unwrap();
    let [existing, new] = ["precious.pcapng", "new.pcapng"].map(|name| folder.path().join(name));
    fs::write(&existing, "precious".repeat(1 << 20)).unwrap();
    for file in [&existing, &new] {
        printed(&[&run(POINTS[1].0)[..], &["--set", "duration=1ms", "--capture", text(file)]].concat());
    }
    assert_eq!(fs::read(&existing).unwrap(), fs::read(&new).unwrap());
}
