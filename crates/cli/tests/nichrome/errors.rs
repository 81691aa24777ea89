//! Errors are one line, with an exit status.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::interrupt::interrupt;
use crate::run::{capture, command, nichrome, printed, records, stderr, text};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

/// Returns the line on standard error, without its prefix, and the exit status.
fn failure(arguments: &[&str]) -> (String, i32) {
    common::failure(&nichrome(arguments))
}

#[test]
fn an_input_that_cannot_be_read_is_named() {
    let folder = tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        text(&path)
    };
    let mut wireless = fs::read(capture("tcp-clean")).unwrap();
    wireless[20] = 105;
    for (path, what) in [
        (file("empty", b""), "the file is empty"),
        (file("elf", b"\x7fELF"), "not a pcap or pcapng file: it begins with 7f 45 4c 46"),
        (file("bz2", b"BZh9"), "the file is compressed with bzip2: decompress it first"),
        (
            file("gz", b"\x1f\x8b\x08\x00"),
            "the capture is cut off after 0 whole records (0 bytes): the next lacks 4 bytes or more",
        ),
        (
            file("wireless", &wireless),
            "link type 105 (IEEE 802.11) is not supported: supported are Ethernet (1), raw IP (101, 12, 14, 228, 229), \
             Linux cooked (113, 276) and loopback (0, 108)",
        ),
        (
            text(&folder.path().join("none")),
            "cannot read the capture: No such file or directory (os error 2)",
        ),
        (
            file("short", &wireless[..30]),
            "link type 105 (IEEE 802.11) is not supported: supported are Ethernet (1), raw IP (101, 12, 14, 228, 229), \
             Linux cooked (113, 276) and loopback (0, 108)",
        ),
        (
            file("magic", &wireless[..3]),
            "the capture is cut off after 0 whole records (0 bytes): the next lacks 1 bytes or more",
        ),
    ] {
        let out = folder.path().join("out.pcapng");
        assert_eq!(failure(&["coalesce", &path, &text(&out)]), (format!("{path}: {what}"), 1));
        assert!(!out.exists(), "{what}");
        assert_eq!(failure(&["bench", "lro", &path]), (format!("{path}: {what}"), 1));
    }
}

#[test]
fn a_capture_without_one_whole_record_fails() {
    let folder = tempdir().unwrap();
    let [cut, out] = ["cut.pcap", "out.pcapng"].map(|name| folder.path().join(name));
    fs::write(&cut, &fs::read(capture("tcp-clean")).unwrap()[..50]).unwrap();
    let (line, status) = failure(&["coalesce", &text(&cut), &text(&out)]);
    assert!(
        line.ends_with("cut off after 0 whole records (24 bytes): the next lacks 64 bytes or more"),
        "{line}"
    );
    assert_eq!((status, records(&out).len()), (1, 0));
}

#[test]
fn a_capture_that_is_cut_off_is_used_as_far_as_it_goes() {
    let folder = tempdir().unwrap();
    let [cut, out] = ["cut.pcap", "out.pcapng"].map(|name| folder.path().join(name));
    fs::write(&cut, &fs::read(capture("tcp-clean")).unwrap()[..100_000]).unwrap();
    let output = nichrome(&["coalesce", &text(&cut), &text(&out), "--json", "--verify"]);
    assert_eq!(output.status.code(), Some(0));
    let warning = stderr(&output);
    assert_eq!(warning.lines().count(), 1, "{warning}");
    assert!(
        warning.starts_with(&format!("nichrome: warning: {}: the capture is cut off after ", cut.display())),
        "{warning}"
    );
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["truncated"], true);
    assert!(warning.contains(&format!("after {} whole records (", summary["packets_in"])), "{warning}");
    assert_eq!(records(&out).len() as u64, summary["packets_out"].as_u64().unwrap());
}

#[test]
fn a_corrupt_capture_fails_after_what_is_before_it() {
    let folder = tempdir().unwrap();
    let [broken, out] = ["broken.pcap", "out.pcapng"].map(|name| folder.path().join(name));
    let whole = fs::read(capture("tcp-clean")).unwrap();
    let start =
        24 + records(Path::new(&capture("tcp-clean")))[..50].iter().map(|(_, b)| b.len() + 16).sum::<usize>();
    let mut bytes = whole;
    bytes[start + 8..][..4].fill(0xFF);
    fs::write(&broken, bytes).unwrap();
    let output = nichrome(&["coalesce", &text(&broken), &text(&out), "--json"]);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains(&format!("the capture is corrupt at byte {start}: ")) && error.lines().count() == 1,
        "{error}"
    );
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["packets_in"], &summary["truncated"]), (&50.into(), &true.into()));
    assert_eq!(records(&out).len() as u64, summary["packets_out"].as_u64().unwrap());
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let input = capture("tcp-clean");
    for (path, what) in [
        ("/nonexistent/out.pcapng", "No such file or directory (os error 2)"),
        ("/dev/full", "No space left on device (os error 28)"),
        ("/", "Is a directory (os error 21)"),
    ] {
        let expected = (format!("cannot write {path}: {what}"), 1);
        assert_eq!(failure(&["coalesce", &input, path]), expected);
        let acks = ["coalesce", &input, "--profile", "npu", "--active-ack", "paper", "--acks", path];
        assert_eq!(failure(&acks), expected);
    }
}

#[test]
fn files_are_opened_before_the_work_and_left_alone_if_one_cannot_be() {
    let folder = tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| text(&folder.path().join(name)));
    fs::write(&old, "important").unwrap();
    let input = capture("tcp-clean");
    let (nowhere, acks) = ("/nonexistent/file", ["--profile", "npu", "--active-ack", "safe", "--acks"]);
    let expected = "cannot write /nonexistent/file: No such file or directory (os error 2)";
    for file in [&old, &new] {
        for line in [
            vec!["coalesce", &input, file, "--plot", nowhere],
            vec!["coalesce", &input, "--plot", file, "--html", nowhere],
            vec!["coalesce", &input, "--compare", "--plot", nowhere, "--html", file],
            [&["coalesce", &input, file][..], &acks, &[nowhere]].concat(),
        ] {
            assert_eq!(failure(&line), (expected.into(), 1), "{line:?}");
        }
        let (_, status) = failure(&["coalesce", "/nonexistent/in.pcap", "--html", file]);
        assert_eq!(status, 1);
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "important");
    assert!(!Path::new(&new).exists());
}

#[test]
fn a_full_disk_ends_the_run_at_once() {
    let mut child = command(&["coalesce", "-", "/dev/full"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let capture = fs::read(capture("tcp-clean")).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Writes more than the pipe holds before its reader closes it.
    let pieces = [&capture[..]].into_iter().chain(iter::repeat_n(&capture[24..], 100));
    let ended = pieces.map(|piece| stdin.write_all(piece)).find_map(Result::err);
    assert_eq!(ended.unwrap().kind(), ErrorKind::BrokenPipe);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "nichrome: cannot write /dev/full: No space left on device (os error 28)\n");
}

#[test]
fn a_file_is_never_written_over_itself() {
    let folder = tempdir().unwrap();
    let [input, link, hard] = ["in.pcap", "link.pcap", "hard.pcap"].map(|name| folder.path().join(name));
    fs::copy(capture("tcp-clean"), &input).unwrap();
    symlink(&input, &link).unwrap();
    fs::hard_link(&input, &hard).unwrap();
    let [name, new] = [&input, &folder.path().join("new")].map(|path| text(path));
    let around = text(&folder.path().join(".").join("new"));
    for same in [&input, &link, &hard] {
        let same = text(same);
        let expected = format!("IN and OUT are the same file, {same}: name another");
        assert_eq!(failure(&["coalesce", &name, &same]), (expected, 2));
    }
    let npu = ["coalesce", &name, "--profile", "npu", "--active-ack", "safe"];
    for (more, expected) in [
        (&["--acks", &name][..], "IN and --acks are the same file"),
        (&[&new, "--acks", &around], "OUT and --acks are the same file"),
        (&["-", "--acks", "-"], "OUT and --acks are the same file"),
        (&[&new, "--plot", &new], "OUT and --plot are the same file"),
        (&["--html", &name], "IN and --html are the same file"),
        (&["--plot", &new, "--html", &around], "--plot and --html are the same file"),
    ] {
        let (line, status) = failure(&[&npu[..], more].concat());
        assert!(line.starts_with(expected) && status == 2, "{line}");
    }
    assert_eq!(fs::read(&input).unwrap(), fs::read(capture("tcp-clean")).unwrap());
    assert!(!Path::new(&new).exists());
    printed(&[
        "coalesce",
        &name,
        "/dev/null",
        "--profile",
        "npu",
        "--active-ack",
        "safe",
        "--acks",
        "/dev/null",
    ]);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let input = capture("tcp-clean");
    for (options, expected) in [
        (&["--psh", "end"][..], "--psh is for the npu profile only: gro always ends an aggregate on PSH"),
        (&["--psh", "end", "--profile", "netfpga"], "--psh is for the npu profile only: netfpga passes"),
        (&["--udp", "on", "--profile", "npu"], "--udp on is for the gro profile only"),
        (&["--tunnels", "on", "--profile", "netfpga"], "--tunnels on is for the gro profile only"),
        (&["--accurate-ecn", "on", "--profile", "npu"], "--accurate-ecn on is for the gro profile only"),
        (&["--reorder-hold", "1ms"], "--reorder-hold is for the npu profile only"),
        (&["--rules", "paper"], "--rules is for the npu profile only"),
        (&["--active-ack", "safe"], "--active-ack is for the npu profile only"),
        (&["--acks", "a.pcapng"], "--acks needs --active-ack paper or safe"),
        (&["--acks", "a.pcapng", "--profile", "npu", "--active-ack", "off"], "--acks needs --active-ack"),
        (&["--plot", "-"], "invalid value '-' for '--plot <FILE.svg>': expected the name of a file"),
        (&["--html", "-"], "--html needs the name of a file"),
        (
            &["--profile", "lro"],
            "invalid value 'lro' for '--profile <PROFILE>': unknown profile 'lro': use gro, netfpga or npu",
        ),
        (
            &["--hold", "5"],
            "invalid value '5' for '--hold <DURATION>': a time is a number with ns, us, ms or s",
        ),
        (&["--hold", "61s"], "invalid value '61s' for '--hold <DURATION>': a time is a number with ns, us, "),
        (
            &["--max-bytes", "70000"],
            "invalid value '70000' for '--max-bytes <N>': expected a whole number of bytes from 576 to 65535",
        ),
        (
            &["--max-bytes", "64k"],
            "invalid value '64k' for '--max-bytes <N>': expected a whole number of bytes from 576 to 65535",
        ),
        (&["--filter", ""], "invalid value '' for '--filter <TERMS>': the filter is empty: expected tcp,"),
        (
            &["--active-ack", "on"],
            "invalid value 'on' for '--active-ack <MODE>' [possible values: off, paper, safe]",
        ),
        (&["--holt", "5ms"], "unexpected argument '--holt' found; tip: a similar argument exists: '--hold'"),
    ] {
        let (line, status) = failure(&[&["coalesce", &input], options].concat());
        assert!(line.starts_with(expected) && status == 2, "{line}");
    }
    let missing = "the following required arguments were not provided: <IN>";
    assert_eq!(failure(&["coalesce"]), (missing.into(), 2));
}

#[test]
fn files_that_cannot_be_measured_are_refused_with_the_reason() {
    let folder = tempdir().unwrap();
    let none = folder.path().join("none.pcap");
    fs::write(&none, &fs::read(capture("tcp-clean")).unwrap()[..24]).unwrap();
    let none = text(&none);
    assert_eq!(failure(&["bench", "lro", &none]), (format!("{none}: there are no IP packets in it"), 1));
    let (line, status) = failure(&["bench", "lro", &none, "--flows", "0"]);
    assert!(line.starts_with("invalid value '0' for '--flows <N>'") && status == 2, "{line}");
}

#[test]
fn arguments_that_are_no_text_are_named() {
    let output = command(&["wan", "--delay"]).arg(OsStr::from_bytes(b"\xFF5ms")).output().unwrap();
    assert_eq!(common::failure(&output), ("'\u{FFFD}5ms': not valid UTF-8".into(), 2));
}

#[test]
fn a_picture_that_cannot_be_written_is_reported_before_the_measurement() {
    let begun = Instant::now();
    let expected = "cannot write /nonexistent/demo.svg: No such file or directory (os error 2)";
    assert_eq!(failure(&["demo", "--plot", "/nonexistent/demo.svg"]), (expected.into(), 1));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_page_that_cannot_be_written_is_reported_before_reading_or_measuring() {
    let expected = "cannot write /nonexistent/page.html: No such file or directory (os error 2)";
    let input = capture("tcp-clean");
    let commands: [&[&str]; 9] = [
        &["coalesce", &input],
        &["coalesce", &input, "--compare"],
        &["demo"],
        &["sim", "run", "lro-npu-10000"],
        &["bench", "lro", &input],
        &["bench", "checksum"],
        &["bench", "sim"],
        &["bench", "rdma"],
        &["bench", "star"],
    ];
    for words in commands {
        let line = [words, &["--html", "/nonexistent/page.html"]].concat();
        assert_eq!(failure(&line), (expected.into(), 1), "{words:?}");
    }
}

#[test]
fn no_command_writes_a_file_that_it_reads_or_writes_twice() {
    let folder = tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let content = "delay = \"1ms\"\n";
    let [file, link, new] = ["there.toml", "link", "new"].map(at);
    fs::write(&file, content).unwrap();
    symlink(&file, &link).unwrap();
    let pcap = at("in.pcap");
    fs::copy(capture("tcp-clean"), &pcap).unwrap();
    let captured = fs::read(&pcap).unwrap();
    let same = |first: &str, second: &str, path: &str| {
        (format!("{first} and {second} are the same file, {path}: name another"), 2)
    };
    let no_stream = || ("invalid value '-' for '--plot <FILE.svg>': expected the name of a file".into(), 2);
    let there = &*file;
    for (arguments, expected) in [
        (&["wan", "--config", there, "--plot", &link, "--", "true"][..], same("--config", "--plot", &link)),
        (&["wan", "--capture", &new, "--plot", &new, "--", "true"], same("--capture", "--plot", &new)),
        (&["demo", "--plot", &new, "--html", &new], same("--plot", "--html", &new)),
        (&["demo", "--config", there, "--html", there], same("--config", "--html", there)),
        (&["bench", "lro", &pcap, "--html", &pcap], same("FILE", "--html", &pcap)),
        (&["bench", "star", "--plot", &new, "--html", &new], same("--plot", "--html", &new)),
        (&["demo", "--plot", "-"], no_stream()),
        (&["bench", "star", "--plot", "-"], no_stream()),
        (
            &["bench", "overip", "--config", "/dev/null", "--html", "-"],
            ("--html needs the name of a file".into(), 2),
        ),
        (
            &["rdma", "bw", "--transport", "star", "--key-file", there, "--capture", &link, "127.0.0.1"],
            same("--key-file", "--capture", &link),
        ),
        (
            &["nic", "up", "--wire", "w0", "--host", "h0", "--capture-wire", &new, "--capture-host", &new],
            same("--capture-wire", "--capture-host", &new),
        ),
    ] {
        assert_eq!(failure(arguments), expected, "{arguments:?}");
    }
    for key in ["trace", "jitter"] {
        let option = format!("--{key}");
        let samples = at(key);
        fs::write(&samples, "10\n").unwrap();
        let value = if key == "trace" { samples.clone() } else { format!("file:{samples}") };
        if key == "jitter" {
            fs::write(&samples, "1ms\n").unwrap();
        }
        let arguments = ["wan", &option, &value, "--capture", &samples, "--", "true"];
        assert_eq!(failure(&arguments), same(&option, "--capture", &samples));
    }
    assert!(fs::read_to_string(&file).unwrap() == content && fs::read(&pcap).unwrap() == captured);
    assert!(!Path::new(&new).exists());
}

#[test]
fn an_interrupted_measurement_leaves_no_file() {
    let folder = tempdir().unwrap();
    let page = text(&folder.path().join("page.html"));
    for signal in [Signal::INT, Signal::QUIT] {
        let mut bench = command(&["bench", "lro", &capture("tcp-clean"), "--interleave", "--html", &page]);
        let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        interrupt(&bench, signal);
        let output = bench.wait_with_output().unwrap();
        let status = Some(128 + signal.as_raw());
        assert_eq!((stderr(&output), output.status.code()), ("nichrome: interrupted\n", status));
        assert!(!Path::new(&page).exists());
    }
}

#[test]
fn output_on_a_full_disk_is_a_failure() {
    for (arguments, what) in [
        (&["--help"][..], "help"),
        (&["rdma", "devices"], "addresses"),
        (&["rdma", "devices", "--json"], "addresses"),
        (&["doctor", "--json"], "report"),
        (&["doctor", "--apparmor-profile"], "profile"),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let line = format!("cannot print the {what}: No space left on device (os error 28)");
        assert_eq!(common::failure(&output), (line, 1), "{arguments:?}");
    }
}

/// Runs the command with a standard output whose reader is gone.
fn without_reader(arguments: &[&str]) -> Output {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    command(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn output_without_a_reader_is_no_failure() {
    let input = capture("tcp-clean");
    for arguments in
        [&["--help"][..], &["doctor", "--json"], &["rdma", "devices", "--json"], &["coalesce", &input]]
    {
        let output = without_reader(arguments);
        let status = command(arguments).output().unwrap().status;
        assert_eq!((stderr(&output), output.status), ("", status), "{arguments:?}");
    }
}

#[test]
fn a_summary_on_standard_error_without_a_reader_is_no_failure() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut coalesce = command(&["coalesce", &capture("tcp-clean"), "-"]);
    let status = coalesce.stdout(Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn files_are_written_also_if_nothing_reads_the_output() {
    let folder = tempdir().unwrap();
    let [page, plot] = ["page.html", "plot.svg"].map(|name| text(&folder.path().join(name)));
    let input = capture("tcp-clean");
    for arguments in [
        &["coalesce", &input, "--html", &page, "--plot", &plot][..],
        &["coalesce", &input, "--compare", "--html", &page, "--plot", &plot],
        &["bench", "lro", &input, "--quick", "--html", &page],
    ] {
        let output = without_reader(arguments);
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{arguments:?}");
        assert!(fs::read_to_string(&page).unwrap().contains("</html>"), "{arguments:?}");
        fs::remove_file(&page).unwrap();
    }
    assert!(fs::read_to_string(&plot).unwrap().contains("</svg>"));
}

#[test]
fn a_corrupt_capture_fails_also_if_nothing_reads_the_output() {
    let folder = tempdir().unwrap();
    let [broken, out] = ["broken.pcap", "out.pcapng"].map(|name| text(&folder.path().join(name)));
    let mut bytes = fs::read(capture("tcp-clean")).unwrap();
    // The length of the second record.
    let second = 24 + 16 + u32::from_le_bytes(*bytes[32..].first_chunk().unwrap()) as usize;
    bytes[second + 8..][..4].fill(0xFF);
    fs::write(&broken, bytes).unwrap();
    for arguments in
        [&["coalesce", &broken][..], &["coalesce", &broken, "--compare"], &["segment", &broken, &out]]
    {
        let output = without_reader(arguments);
        let (line, status) = common::failure(&output);
        assert!(line.contains("the capture is corrupt") && status == 1, "{arguments:?}: {line}");
    }
}

#[test]
fn a_corrupt_capture_is_reported_also_if_its_plot_cannot_be_written() {
    let folder = tempdir().unwrap();
    let [broken, page] = ["broken.pcap", "page.html"].map(|name| text(&folder.path().join(name)));
    let mut bytes = fs::read(capture("tcp-clean")).unwrap();
    // The length of the second record.
    let second = 24 + 16 + u32::from_le_bytes(*bytes[32..].first_chunk().unwrap()) as usize;
    bytes[second + 8..][..4].fill(0xFF);
    fs::write(&broken, bytes).unwrap();
    for more in [&[][..], &["--compare"]] {
        let arguments = ["coalesce", &broken, "--plot", "/dev/full", "--html", &page];
        let output = nichrome(&[&arguments[..], more].concat());
        let lines: Vec<_> = stderr(&output).lines().collect();
        let full = "nichrome: warning: cannot write /dev/full: No space left on device (os error 28)";
        assert_eq!((output.status.code(), lines.len(), lines[0]), (Some(1), 2, full), "{lines:?}");
        assert!(lines[1].contains("the capture is corrupt"), "{lines:?}");
        assert!(fs::read_to_string(&page).unwrap().contains("</html>"), "{more:?}");
        fs::remove_file(&page).unwrap();
    }
}

#[test]
fn a_negative_number_is_refused_as_the_value_that_it_is() {
    let expected =
        "invalid value '-1' for '--top <N>': expected a whole number from 0 to 18446744073709551615";
    assert_eq!(failure(&["coalesce", "in.pcap", "--top", "-1"]), (expected.into(), 2));
    let expected = "invalid value '-1us' for '--hold <DURATION>': a time is a number with ns, us, ms or s, such as \
                    50us, 1.5ms or 1s, at most 60s, or it is 0";
    assert_eq!(failure(&["coalesce", "in.pcap", "--hold", "-1us"]), (expected.into(), 2));
}

#[test]
fn a_command_is_no_folder_for_manual_pages() {
    let expected = "'coalesce' is a command, whose page is its --help; a folder of this name is ./coalesce";
    assert_eq!(failure(&["man", "coalesce"]), (expected.into(), 2));
}
