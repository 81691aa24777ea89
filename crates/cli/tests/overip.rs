//! `nichrome bench overip`: figures, claims, files, and interruption.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/programs.rs"]
mod programs;
#[path = "common/until.rs"]
mod until;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use self::common::{failure, text};
use self::programs::copy_program;
use self::until::until;

const BEARERS: [&str; 5] = ["sockets-blocking", "sockets-nonblocking", "iwarp", "roce", "star"];

/// Creates a folder that all users can access, with the command in it.
fn room() -> TempDir {
    let room = tempdir().unwrap();
    fs::set_permissions(room.path(), Permissions::from_mode(0o777)).unwrap();
    copy_program(env!("CARGO_BIN_EXE_nichrome"), room.path().join("nichrome"));
    room
}

/// Returns the command, run by a user who is not root.
fn command(room: &Path, arguments: &str) -> Command {
    let nichrome = room.join("nichrome");
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(nichrome);
        command
    } else {
        Command::new(nichrome)
    };
    command.args(["bench", "overip"]).args(arguments.split_whitespace()).current_dir(room);
    command.env("TMPDIR", room).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(room: &Path, arguments: &str) -> Output {
    command(room, arguments).output().unwrap()
}

fn names(values: &Value, key: &str) -> Vec<String> {
    values.as_array().unwrap().iter().map(|value| value[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn figures_are_measured_over_every_transport_and_judged() {
    let room = room();
    let figures = ["iwarp-latency-delay", "iwarp-progress-delay", "iwarp-cpu-delay", "iwarp-rendezvous"];
    let chosen: String = figures.iter().map(|name| format!(" --figure {name}")).collect();
    let output =
        output(room.path(), &format!("--quick --json --delays 2ms --svg pictures --html page.html{chosen}"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures_measured = names(&report["figures"], "name");
    assert_eq!(
        figures_measured,
        ["iwarp-latency-delay", "iwarp-progress-delay", "iwarp-cpu-delay", "iwarp-rendezvous"]
    );
    for figure in report["figures"].as_array().unwrap() {
        let quantity = &figure["y"]["quantity"];
        let series: Vec<&Value> = figure["series"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|series| series["quantity"] == *quantity)
            .collect();
        for bearer in BEARERS {
            let of_it = series.iter().find(|series| series["transport"] == bearer).expect(bearer);
            let point = &of_it["points"][0];
            assert_eq!(point["x"], 2.0);
            let [low, median, high] = ["low", "median", "high"].map(|key| point[key].as_f64().unwrap());
            assert!(0.0 < low && low <= median && median <= high, "{of_it}");
        }
    }
    let latency = &report["figures"][0]["series"][0]["points"][0];
    assert!(latency["median"].as_f64().unwrap() > 2000.0, "a message takes the delay at least: {latency}");
    assert_eq!(names(&report["claims"], "claim"), ["C2", "C6", "C8", "C11"]);
    for claim in report["claims"].as_array().unwrap() {
        assert_eq!(names(&claim["transports"], "transport"), ["iwarp", "roce", "star"]);
        for verdict in names(&claim["transports"], "verdict") {
            assert!(["holds", "cannot-be-shown", "does-not-hold"].contains(&verdict.as_str()), "{verdict}");
        }
    }
    for name in figures {
        let svg = fs::read_to_string(room.path().join(format!("pictures/{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("sockets-nonblocking"), "{name}");
    }
    let page = fs::read_to_string(room.path().join("page.html")).unwrap();
    assert!(page.matches("<div class=\"figure\">").count() >= figures.len());
    assert!(page.contains("C11") && page.contains("--delays 2ms"), "claims and the command");
}

#[test]
fn the_table_has_a_column_for_each_transport() {
    let room = room();
    let output = output(room.path(), "--quick --figure iwarp-latency-delay --delays 0");
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let header = printed.lines().find(|line| line.trim_start().starts_with("delay_ms")).unwrap();
    assert_eq!(header.split_whitespace().skip(1).collect::<Vec<_>>(), BEARERS);
    assert!(printed.contains("claims of the paper\n\nC2"), "{printed}");
}

#[test]
fn wrong_options_are_refused_in_one_line() {
    let room = room();
    for (arguments, expected, status) in [
        (
            "--delay 5ms",
            "the figures vary the delay of the path: set it with --delays, such as --delays 0,5ms",
            2,
        ),
        ("--delays 2s", "--delays takes delays of at most 1s", 2),
        ("--html no/page.html", "cannot write no/page.html: No such file or directory (os error 2)", 1),
        (
            "--svg pictures --html no/page.html",
            "cannot write no/page.html: No such file or directory (os error 2)",
            1,
        ),
        ("--svg no/pictures", "cannot create no/pictures: No such file or directory (os error 2)", 1),
    ] {
        assert_eq!(failure(&output(room.path(), arguments)), (expected.to_owned(), status), "{arguments}");
    }
    let (line, status) = failure(&output(room.path(), "--figure iwarp"));
    assert!(line.contains("iwarp-latency-delay") && status == 2, "{line}");
    assert!(!room.path().join("pictures").exists());
}

/// Returns true if a process has a thread of this name.
fn has_thread(process: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads
        .flatten()
        .any(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let room = room();
    fs::write(room.path().join("kept.html"), "before").unwrap();
    let child = command(room.path(), "--svg pictures --html page.html").spawn().unwrap();
    until("the driver of the last transport", || has_thread(child.id(), "nichrome-star"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let mut left: Vec<_> =
        fs::read_dir(room.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kept.html", "nichrome"]);
}
