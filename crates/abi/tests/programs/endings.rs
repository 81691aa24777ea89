//! A capture holds every packet, however the program ends.

use std::fs::File;
use std::path::Path;
use std::process::ExitStatus;

use nichrome_port::capture::Reader;

use crate::installed::tshark;
use crate::lifetimes::output_text;
use crate::running::{command, compile, ended};

/// Runs `endings.c`, which sends 100 messages and ends in this way. Returns its exit status after reading its
/// capture.
fn ending(way: &str) -> ExitStatus {
    let folder = tempfile::tempdir().unwrap();
    let [program, capture] = ["program", "capture.pcapng"].map(|name| folder.path().join(name));
    compile("endings.c", &program);
    let environment = [("NICHROME_CAPTURE", capture.to_str().unwrap())];
    let child = command(program.to_str().unwrap(), &[way], &environment).spawn().unwrap();
    let output = ended(child, way);
    let messages = messages(&capture);
    let expected: Vec<_> = (0..100).collect();
    assert_eq!(messages, expected, "{way}: {}", output_text(&output));
    assert_eq!(read_by_tshark(&capture), 100, "{way}");
    output.status
}

/// Returns the numbers of the messages in a capture, each of which is sent and received once. Fails if the
/// file is not a whole capture.
fn messages(capture: &Path) -> Vec<usize> {
    let mut reader = Reader::new(File::open(capture).unwrap()).unwrap();
    let mut packet = Vec::new();
    let mut messages = Vec::new();
    while reader.next(&mut packet).unwrap().is_some() {
        let text = String::from_utf8_lossy(&packet);
        if let Some((_, rest)) = text.split_once("message ") {
            messages.push(rest.split(' ').next().unwrap().parse().unwrap());
        }
    }
    messages.dedup();
    messages
}

/// Returns the number of WRITE packets that tshark finds, counting each copy of a message once.
fn read_by_tshark(capture: &Path) -> usize {
    let capture = capture.to_str().unwrap();
    let filter = ["-Y", "infiniband.bth.opcode == 10", "-T", "fields", "-e", "infiniband.bth.psn"];
    let mut numbers = tshark(&[&["-r", capture], &filter[..]].concat());
    numbers.dedup();
    numbers.len()
}

#[test]
fn a_capture_is_complete_when_the_program_exits() {
    for way in ["return", "close", "exit", "_exit", "quick_exit", "exit_group", "exec", "fork"] {
        let status = ending(way);
        assert!(status.success(), "{way}: {status}");
    }
}

#[test]
fn a_capture_is_complete_when_a_signal_ends_the_program() {
    use std::os::unix::process::ExitStatusExt;

    for (way, signal) in [("abort", libc::SIGABRT), ("fault", libc::SIGSEGV)] {
        assert_eq!(ending(way).signal(), Some(signal), "{way}");
    }
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGFPE, libc::SIGUSR1, libc::SIGKILL] {
        assert_eq!(ending(&format!("signal {signal}")).signal(), Some(signal));
    }
    assert_eq!(ending("default action in a handler").signal(), Some(libc::SIGALRM));
}

/// The handler interrupts the thread that polls, which usually holds the device's lock.
#[test]
fn a_signal_handler_that_exits_ends_the_program() {
    for way in ["exit in a handler", "_exit in a handler"] {
        assert_eq!(ending(way).code(), Some(3), "{way}");
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let [program, capture] = ["program", "capture.pcapng"].map(|name| folder.path().join(name));
    compile("endings.c", &program);
    let environment = [("NICHROME_CAPTURE", capture.to_str().unwrap())];
    for way in ["return", "close"] {
        // 4 KB are 40 messages.
        let limited = format!("trap '' XFSZ; ulimit -f 4; exec {} {way}", program.display());
        let child = command("bash", &["-c", &limited], &environment).spawn().unwrap();
        let output = ended(child, way);
        assert!(output.status.success(), "{way}: {}", output_text(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!("nichrome: cannot write {}: File too large", capture.display());
        assert!(said.starts_with(&expected) && said.lines().count() == 1, "{way}: {said}");
        assert!((1..99).contains(&messages(&capture).len()), "{way}");
    }
}

#[test]
fn a_truncated_file_ends_the_capture_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let [program, capture] = ["program", "capture.pcapng"].map(|name| folder.path().join(name));
    compile("endings.c", &program);
    let environment = [("NICHROME_CAPTURE", capture.to_str().unwrap())];
    let child = command(program.to_str().unwrap(), &["truncate"], &environment).spawn().unwrap();
    let output = ended(child, "truncate");
    assert!(output.status.success(), "{}: {}", output.status, output_text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("nichrome: cannot write {}: another program has truncated it", capture.display());
    assert!(said.starts_with(&expected) && said.lines().count() == 1, "{said}");
}
