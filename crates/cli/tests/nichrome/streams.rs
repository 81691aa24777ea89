//! `-` for the standard streams, and streams that end early.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::capture::Reader;
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

use crate::common;
use crate::installed;
use crate::interrupt::interrupt;
use crate::run::{capture, command, nichrome, nichrome_fed, records, stderr, stdout, text};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

#[test]
fn a_dash_is_the_standard_input() {
    let input = fs::read(capture("tcp-loss")).unwrap();
    let fed = nichrome_fed(&["coalesce", "-", "--json", "--verify"], &input);
    let read = nichrome(&["coalesce", &capture("tcp-loss"), "--json", "--verify"]);
    assert!(fed.status.success() && fed.stderr.is_empty());
    assert_eq!(stdout(&fed), stdout(&read));
}

#[test]
fn a_dash_is_the_standard_output_and_nothing_else_goes_there() {
    let folder = tempdir().unwrap();
    let [out, piped] = ["out.pcapng", "piped.pcapng"].map(|name| folder.path().join(name));
    let input = capture("tcp-loss");
    nichrome(&["coalesce", &input, &text(&out)]);
    for more in [&[][..], &["--json"]] {
        let output = nichrome(&[&["coalesce", &input, "-"], more].concat());
        assert!(output.status.success());
        fs::write(&piped, &output.stdout).unwrap();
        assert_eq!(records(&piped), records(&out));
        assert!(stderr(&output).contains(if more.is_empty() { "aggregates of" } else { "\"aggregates\":" }));
    }
    let acks = ["coalesce", &input, "--profile", "npu", "--active-ack", "safe", "--acks", "-", "--json"];
    let output = nichrome(&acks);
    let summary: Value = serde_json::from_slice(&output.stderr).unwrap();
    fs::write(&piped, &output.stdout).unwrap();
    assert_eq!(records(&piped).len() as u64, summary["acks_sent"].as_u64().unwrap());
}

#[test]
fn the_summary_stays_out_of_a_capture_in_standard_output_under_any_name() {
    let folder = tempdir().unwrap();
    let piped = folder.path().join("piped.pcapng");
    for (name, what) in [("coalesce", "aggregates of"), ("segment", "720 packets in, 720 out")] {
        let output = nichrome(&[name, &capture("tcp-clean"), "/dev/stdout"]);
        assert!(output.status.success() && stderr(&output).contains(what), "{}", stderr(&output));
        fs::write(&piped, &output.stdout).unwrap();
        assert!(!whole(&piped).is_empty());
    }
}

#[test]
fn output_can_be_input() {
    let first = nichrome(&["coalesce", &capture("tcp-ecn"), "-"]);
    let second = nichrome_fed(&["coalesce", "-", "-", "--verify"], &first.stdout);
    assert!(second.status.success(), "{}", stderr(&second));
    assert!(stderr(&second).contains("verified: "));
}

#[test]
fn a_comparison_refuses_a_stream_that_it_could_read_only_once() {
    let folder = tempdir().unwrap();
    let pipe = text(&folder.path().join("pipe"));
    installed::run(Command::new("mkfifo").arg(&pipe), "coreutils");
    for input in ["-", "/dev/stdin", &pipe] {
        let refused = nichrome_fed(&["coalesce", input, "--compare"], &[]);
        let what = "--compare reads the capture several times: name a file instead of";
        let expected = (format!("{what} {input}"), 2);
        assert_eq!(common::failure(&refused), expected);
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for arguments in [&["coalesce", &capture("tcp-clean"), "-"][..], &["coalesce", &capture("tcp-clean")]] {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn an_interrupted_run_leaves_whole_records() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let mut child = command(&["coalesce", "-", &text(&out)]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fs::read(capture("tcp-clean")).unwrap()).unwrap();
    // The end of the input stays in the pipe or in the writer's buffer; the file stops growing.
    let len = || fs::metadata(&out).map_or(0, |file| file.len());
    wait_until_still(&len);
    assert!(len() > 100_000);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!whole(&out).is_empty());
}

/// A running command that has read all bytes written to its standard input so far.
struct Waiting {
    child: Child,
    stdin: ChildStdin,
    folder: TempDir,
}

fn waiting(name: &str) -> Waiting {
    let folder = tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let mut command = command(&[name, "-", &text(&out)]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fs::read(capture("tcp-clean")).unwrap()).unwrap();
    wait_until_still(&|| fs::metadata(&out).map_or(0, |file| file.len()));
    Waiting { child, stdin, folder }
}

#[test]
fn an_interrupted_run_says_what_it_has_processed() {
    for name in ["coalesce", "segment"] {
        let Waiting { child, stdin, folder: _folder } = waiting(name);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let line = "nichrome: interrupted: the first 720 packets were processed\n";
        assert_eq!((stderr(&output), output.status.code()), (line, Some(130)), "{name}");
        assert!(!stdout(&output).is_empty());
    }
}

#[test]
fn an_interrupted_run_does_not_wait_for_the_writer_of_its_input() {
    for name in ["coalesce", "segment"] {
        let Waiting { child, stdin, folder } = waiting(name);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        let line = "nichrome: interrupted: the first 720 packets were processed\n";
        assert_eq!((stderr(&output), output.status.code()), (line, Some(143)), "{name}");
        drop(stdin);
        let [kept, out] = ["kept.pcapng", "out.pcapng"].map(|file| folder.path().join(file));
        assert!(nichrome(&[name, &capture("tcp-clean"), &text(&kept)]).status.success());
        assert_eq!(records(&out), records(&kept));
    }
}

/// Ctrl-C interrupts all programs of a pipeline: the previous one first writes its remaining packets.
#[test]
fn an_interrupted_run_reads_what_the_writer_of_its_input_still_has() {
    let Waiting { child, mut stdin, folder } = waiting("segment");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    thread::sleep(Duration::from_millis(50));
    // Without its file header.
    stdin.write_all(&fs::read(capture("tcp-clean")).unwrap()[24..]).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let line = "nichrome: interrupted: the first 1,440 packets were processed\n";
    assert_eq!((stderr(&output), output.status.code()), (line, Some(130)));
    assert_eq!(records(&folder.path().join("out.pcapng")).len(), 1440);
}

#[test]
fn a_run_whose_reader_stalls_can_be_interrupted_and_leaves_no_empty_files() {
    let folder = tempdir().unwrap();
    let [pipe, page, plot] = ["pipe", "page.html", "plot.svg"].map(|name| text(&folder.path().join(name)));
    installed::run(Command::new("mkfifo").arg(&pipe), "coreutils");
    let stalled = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let child = command(&["coalesce", &capture("tcp-clean"), &pipe, "--html", &page, "--plot", &plot])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_still(&|| ioctl_fionread(&stalled).unwrap());
    interrupt(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("nichrome: interrupted\n", Some(130)));
    assert!(!Path::new(&page).exists() && !Path::new(&plot).exists());
}

#[test]
fn a_run_that_waits_for_the_first_packet_can_be_interrupted() {
    let folder = tempdir().unwrap();
    let pipe = text(&folder.path().join("pipe"));
    installed::run(Command::new("mkfifo").arg(&pipe), "coreutils");
    for input in ["-", &pipe] {
        let mut child = command(&["coalesce", input]);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let _open = child.stdin.take();
        interrupt(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        // The line of a command that has to be killed has no packets.
        let line = "nichrome: interrupted: the first 0 packets were processed\n";
        assert_eq!((stderr(&output), output.status.code()), (line, Some(130)), "{input}");
    }
}

#[test]
fn packets_are_passed_on_before_their_reader_waits_for_more() {
    let input = fs::read(capture("tcp-clean")).unwrap();
    // The last packet may be incomplete: a buffered writer flushes without regard to packets.
    for cut in [0, 1] {
        let mut child = command(&["segment", "-", "-"]);
        let mut child =
            child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let written = input[..input.len() - cut].to_vec();
        let writer = thread::spawn(move || stdin.write_all(&written).map(|()| stdin));
        let (to, passed_on) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut reader = Reader::new(stdout).unwrap();
            let mut bytes = Vec::new();
            while let Some(record) = reader.next(&mut bytes).unwrap() {
                to.send(record).unwrap();
            }
        });
        for _ in 0..720 - cut {
            passed_on.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        drop(writer.join().unwrap().unwrap());
        reader.join().unwrap();
        assert!(passed_on.recv().is_err() && child.wait().unwrap().success());
    }
}

fn whole(path: &Path) -> Vec<Vec<u8>> {
    records(path).into_iter().map(|(_, bytes)| bytes).collect()
}

/// Waits until a number is not 0 and has not changed for 300 ms.
fn wait_until_still(number: &dyn Fn() -> u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut last = 0;
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(300));
        let now = number();
        if now != 0 && now == last {
            return;
        }
        last = now;
    }
    panic!("nothing was written, or it never ended");
}
