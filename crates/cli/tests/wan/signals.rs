//! A path leaves no processes, namespaces or sockets behind, however it ends.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::run::{Room, Started, TIMEOUT, processes, text};

/// Returns the network namespaces that the programs print.
fn namespaces(path: &Started) -> [PathBuf; 2] {
    ["left  | in ", "right | in "].map(|mark| path.wait_for(mark).into())
}

/// Returns a shell command that prints its namespace, starts a daemon without parent, terminal and inherited
/// output, and continues with `then`.
fn with_daemon(then: &str) -> String {
    format!("(setsid sleep 4711 </dev/null >/dev/null 2>&1 &); echo in $(readlink /proc/self/ns/net); {then}")
}

/// Returns the processes in these namespaces.
fn in_namespaces(namespaces: &[PathBuf; 2]) -> Vec<String> {
    let is_in = |namespace: PathBuf| namespaces.contains(&namespace);
    processes(|process| fs::read_link(process.join("ns/net")).is_ok_and(is_in))
}

fn assert_gone(room: &Room, namespaces: &[PathBuf; 2]) {
    let left = in_namespaces(namespaces);
    assert!(left.is_empty(), "{left:?}");
    assert!(room.is_tidy());
}

/// Fails unless hosts have process namespaces: the kernel refuses them in containers that hide parts of
/// /proc.
fn assert_processes_are_confined() {
    let of_host = text(&Room::new().run(&["--", "sh", "-c", "readlink /proc/self/ns/pid"]).stdout);
    let ours = fs::read_link("/proc/self/ns/pid").unwrap();
    assert_ne!(of_host.trim(), ours.to_str().unwrap(), "this system allows no process namespaces");
}

#[test]
fn a_signal_ends_programs_daemons_and_namespaces() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let room = Room::new();
        let sleep = with_daemon("sleep 4711");
        let path = room.start(&["--left", &sleep, "--right", &sleep]);
        let namespaces = namespaces(&path);
        assert!(!room.is_tidy(), "the control socket is there");
        path.signal(signal);
        path.wait_for("throughput");
        assert_eq!(path.end(), status);
        assert_gone(&room, &namespaces);
    }
}

#[test]
fn the_end_of_the_right_program_ends_everything() {
    let room = Room::new();
    let path = room.start(&["--left", &with_daemon("sleep 4711"), "--right", &with_daemon("exit 3")]);
    let namespaces = namespaces(&path);
    assert_eq!(path.end(), 3);
    assert_gone(&room, &namespaces);
}

#[test]
fn programs_that_ignore_sigterm_are_killed() {
    let room = Room::new();
    let stubborn = "trap '' TERM INT HUP; sh -c 'while :; do sleep 1; done' & ";
    let path = room.start(&["--left", &with_daemon(stubborn), "--right", &with_daemon("sleep 4711")]);
    let namespaces = namespaces(&path);
    path.signal(Signal::INT);
    assert_eq!(path.end(), 130);
    assert_gone(&room, &namespaces);
}

#[test]
fn a_program_that_a_signal_kills_has_the_shells_exit_status() {
    let output = Room::new().run(&["--right", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
}

#[test]
fn a_command_that_cannot_be_started_leaves_nothing() {
    let room = Room::new();
    let file = room.file("go");
    let left = with_daemon(&format!("while [ ! -e {file} ]; do sleep 0.05; done; not-a-command"));
    let right = with_daemon(&format!("touch {file}; sleep 4711"));
    let path = room.start(&["--left", &left, "--right", &right]);
    let namespaces = namespaces(&path);
    path.wait_for("nichrome: the command on the left could not be started (exit status: 127)");
    assert_eq!(path.end(), 127);
    assert_gone(&room, &namespaces);
    for (program, why, status) in
        [("not-a-command", "No such file or directory", 127), ("/", "Permission denied", 126)]
    {
        let path = room.start(&["--left", &with_daemon("sleep 4711"), "--", program]);
        path.wait_for(&format!("nichrome: cannot start '{program}' on the right: {why}"));
        assert_eq!(path.end(), status);
        assert!(room.is_tidy());
    }
}

#[test]
fn programs_on_the_hosts_do_not_outlive_a_killed_command() {
    assert_processes_are_confined();
    let room = Room::new();
    let stubborn = with_daemon("trap '' TERM INT HUP; sleep 4711; sleep 4711");
    let path = room.start(&["--left", &stubborn, "--right", &stubborn]);
    let namespaces = namespaces(&path);
    assert!(in_namespaces(&namespaces).len() >= 4);
    path.signal(Signal::KILL);
    let until = Instant::now() + TIMEOUT;
    while !in_namespaces(&namespaces).is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(in_namespaces(&namespaces), Vec::<String>::new());
}

#[test]
fn a_host_sees_its_own_processes_only() {
    assert_processes_are_confined();
    let list = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done";
    let output = Room::new().run(&["--left", "exec sleep 4711", "--right", list]);
    let seen = text(&output.stdout);
    assert!(seen.contains("nichrome wan") && !seen.contains("right | sleep 4711"), "{seen}");
}

#[test]
fn a_signal_ends_the_wait_of_the_right_program_for_the_left_one() {
    let room = Room::new();
    let file = room.file("ran");
    let path = room.start(&["--left", "echo up; while :; do :; done", "--right", &format!("touch {file}")]);
    path.wait_for("left  | up");
    path.signal(Signal::TERM);
    assert_eq!(path.end(), 143);
    assert!(!room.path().join("ran").exists() && room.is_tidy());
}
