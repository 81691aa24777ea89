//! Programs that end in every way, and what they leave behind.

use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::Duration;

use crate::running::{command, ended, free_port, is_installed, turn, waits_for_a_client};

/// Runs `lifetimes.c`, which says what is wrong.
fn lifetimes(arguments: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/lifetimes.c");
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        assert!(std::env::var_os("CI").is_none(), "CI needs Debian's package libibverbs-dev");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lifetimes");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).args([&program, &source]).arg("-libverbs");
    assert!(cc.status().unwrap().success());
    let child = command(&format!("{} {arguments}", program.display()), &[], &[]).spawn().unwrap();
    let output = ended(child, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn contexts_that_are_closed_leave_nothing() {
    lifetimes("contexts 1000");
}

#[test]
fn memory_that_is_unmapped_while_it_is_registered_is_a_completion_in_error() {
    lifetimes("unmapped");
}

#[test]
fn a_child_that_uses_its_parents_objects_disturbs_nobody() {
    lifetimes("forked");
}

/// Lets a program be interrupted where whoever runs the tests cannot be: what a shell starts in the background is not.
fn interruptible(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: signal(2) may be called between fork and exec, and nothing else is.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Clock ticks that a process has had the processor for.
fn ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Both ends of a program of perftest, each with an environment of its own, which says its address; under way, which is
/// when the client looks for completions all the time.
pub(crate) fn pair(line: &str, [of_server, of_client]: [&[(&str, &str)]; 2]) -> [Child; 2] {
    let port = free_port();
    let more = ["-F", "-x", "0", "-p", &port];
    let start =
        |more: &[&str], environment| interruptible(&mut command(line, more, environment)).spawn().unwrap();
    let mut server = start(&more, of_server);
    while !waits_for_a_client(&port) {
        assert!(server.try_wait().unwrap().is_none(), "{:?}", server.wait_with_output());
        thread::sleep(Duration::from_millis(5));
    }
    let mut client = start(&[&more[..], &["127.0.0.1"]].concat(), of_client);
    while ticks(&client) < 30 {
        assert!(client.try_wait().unwrap().is_none(), "{:?}", client.wait_with_output());
        thread::sleep(Duration::from_millis(5));
    }
    [server, client]
}

pub(crate) fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

pub(crate) fn send(signal: libc::c_int, to: &Child) {
    // SAFETY: the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(to.id() as libc::pid_t, signal) }, 0);
}

/// A sender whose receiver is gone ends in an error. A receiver learns nothing of a sender that is gone, with hardware as
/// little: it ends when it is told to. The addresses are free again each time.
#[test]
fn who_is_interrupted_or_killed_ends_and_its_peer_too() {
    use std::os::unix::process::ExitStatusExt;

    if !is_installed("ib_send_bw", "perftest") {
        return;
    }
    for program in ["ib_send_bw", "ib_write_bw"] {
        for signal in [libc::SIGINT, libc::SIGKILL] {
            for victim in [0, 1] {
                let what = format!("{program}, {signal} to {victim}");
                let _turn = turn();
                let addresses: [&[_]; 2] =
                    [&[("NICHROME_IP", "127.77.0.1")], &[("NICHROME_IP", "127.77.0.2")]];
                let mut ends = pair(&format!("{program} -D 60"), addresses).map(Some);
                let [gone, left] = [victim, 1 - victim].map(|end| ends[end].take().unwrap());
                send(signal, &gone);
                let gone = ended(gone, &what);
                assert_eq!(gone.status.signal(), Some(signal), "{what}: {}", said(&gone));
                if victim == 1 {
                    send(libc::SIGINT, &left);
                }
                let left = ended(left, &what);
                assert!(!left.status.success(), "{what}: {}", said(&left));
            }
        }
    }
}
