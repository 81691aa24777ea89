//! The lifetimes of processes, contexts and memory: exits, kills, forks, unmapped regions.

use std::process::{Child, Command, Output};
use std::thread;
use std::time::Duration;

use crate::namespaces::in_one_network;
use crate::running::{
    THROUGH_MEMORY, c_program, c_program_by, c_program_with, command, ended, free_port, is_listening, needs,
    turn,
};

/// Compiles and runs `lifetimes.c`.
fn lifetimes(arguments: &str) {
    c_program("lifetimes.c", arguments);
}

#[test]
fn closed_contexts_leave_no_descriptors_threads_or_memory() {
    lifetimes("contexts");
}

#[test]
fn a_closed_context_takes_its_queue_pairs_and_regions_with_it() {
    lifetimes("left");
}

#[test]
fn access_to_an_unmapped_region_completes_in_error() {
    lifetimes("unmapped");
}

#[test]
fn a_forked_child_does_not_disturb_its_parents_connections() {
    lifetimes("forked");
}

#[test]
fn a_child_forked_amid_verbs_of_another_thread_can_use_verbs() {
    lifetimes("forked amid verbs");
}

#[test]
fn a_program_may_become_a_daemon_before_it_needs_an_adapter() {
    c_program("daemon.c", "");
}

#[test]
fn a_forked_child_leaves_its_parent_the_events() {
    lifetimes("events");
}

#[test]
fn a_cancelled_thread_leaves_the_device_usable() {
    let transport = |name| ("NICHROME_TRANSPORT", name);
    // The capture is no regular file: it is written by another function.
    let captured = ("NICHROME_CAPTURE", "/dev/null");
    for line in [transport("roce"), transport("star"), transport("iwarp"), THROUGH_MEMORY, captured] {
        c_program_with("lifetimes.c", "cancelled", &[line]);
    }
    let from_interfaces = in_one_network("10.9.0.1/24", "env NICHROME_PACKETS=1 ");
    c_program_by(&from_interfaces, "lifetimes.c", &["cancelled"]);
}

#[test]
fn a_signal_of_bad_access_that_is_sent_has_the_effect_that_it_has_without_a_device() {
    lifetimes("signals");
}

#[test]
fn a_fault_of_the_programs_own_has_the_effect_on_its_handler_that_it_has_without_a_device() {
    lifetimes("faults");
}

/// Restores the default action of SIGINT in the program. Shells ignore it for background jobs, and the tests
/// may be one.
fn interruptible(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: only signal(2) is called between fork and exec, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Returns a process's CPU time in clock ticks.
fn ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Starts both ends of a perftest program, each with its own environment, which sets its address. Returns
/// once the client has used 30 clock ticks of CPU time: it is polling for completions.
pub(crate) fn pair(line: &str, [of_server, of_client]: [&[(&str, &str)]; 2]) -> [Child; 2] {
    let port = free_port();
    let more = ["-F", "-x", "0", "-p", &port];
    let start =
        |more: &[&str], environment| interruptible(&mut command(line, more, environment)).spawn().unwrap();
    let mut server = start(&more, of_server);
    while !is_listening(&port) {
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

/// Returns standard output and standard error as text.
pub(crate) fn output_text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

pub(crate) fn send(signal: libc::c_int, to: &Child) {
    // SAFETY: the process is a child that has not been waited for, so its ID is still its own.
    assert_eq!(unsafe { libc::kill(to.id() as libc::pid_t, signal) }, 0);
}

/// A sender whose receiver is killed completes in error. A receiver does not notice that its sender is
/// killed, as with hardware, so the test interrupts it. Each round reuses the addresses.
#[test]
fn a_killed_program_frees_its_address_and_its_peer_ends() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        kill_each_end("ib_send_bw", signal, ("NICHROME_LOCAL", "sockets"));
        kill_each_end("ib_write_bw", signal, ("NICHROME_LOCAL", "sockets"));
    }
    kill_each_end("ib_write_bw", libc::SIGKILL, THROUGH_MEMORY);
}

fn kill_each_end(program: &str, signal: libc::c_int, path: (&str, &str)) {
    use std::os::unix::process::ExitStatusExt;

    needs(program, "perftest");
    for victim in [0, 1] {
        let what = format!("{program}, {signal} to {victim}, {path:?}");
        let _turn = turn();
        let addresses: [&[_]; 2] =
            [&[("NICHROME_IP", "127.77.0.1"), path], &[("NICHROME_IP", "127.77.0.2"), path]];
        let mut ends = pair(&format!("{program} -D 60"), addresses).map(Some);
        let [gone, left] = [victim, 1 - victim].map(|end| ends[end].take().unwrap());
        send(signal, &gone);
        let gone = ended(gone, &what);
        assert_eq!(gone.status.signal(), Some(signal), "{what}: {}", output_text(&gone));
        if victim == 1 {
            send(libc::SIGINT, &left);
        }
        let left = ended(left, &what);
        assert!(!left.status.success(), "{what}: {}", output_text(&left));
    }
}
