//! Programs on StaR whose peer is killed.

use std::time::{Duration, Instant};

use crate::lifetimes::{pair, said, send};
use crate::running::{ended, is_installed, turn};

const STAR: (&str, &str) = ("NICHROME_TRANSPORT", "star");

/// By then a peer that is silent was given up: with perftest's timers after two seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// The stateful end dies with the work of the other in its hands: then that fails.
fn stateful_end_is_killed(line: &str, stateless: &str, victim: usize) {
    let _turn = turn();
    let server = [STAR, ("NICHROME_STATELESS", stateless), ("NICHROME_IP", "127.77.1.1")];
    let client = [STAR, ("NICHROME_IP", "127.77.1.2")];
    let mut ends = pair(line, [&server, &client]).map(Some);
    let [gone, left] = [victim, 1 - victim].map(|end| ends[end].take().unwrap());
    send(libc::SIGKILL, &gone);
    let start = Instant::now();
    let left = ended(left, line);
    assert!(start.elapsed() < PATIENCE, "{line}: {:?}", start.elapsed());
    assert!(!left.status.success(), "{line}: {}", said(&left));
    assert!(said(&left).contains("Completion with error"), "{line}: {}", said(&left));
    ended(gone, line);
}

#[test]
fn a_program_without_state_whose_sends_nobody_does_any_more_ends_in_error() {
    if is_installed("ib_send_bw", "perftest") {
        // The program that sends is perftest's client; both do with -b.
        stateful_end_is_killed("ib_write_bw -D 60", "peer", 0);
        stateful_end_is_killed("ib_send_bw -D 60", "peer", 0);
        stateful_end_is_killed("ib_send_bw -b -D 60", "self", 1);
    }
}

#[test]
fn a_stateless_program_that_is_started_anew_refuses_what_was_meant_for_the_one_before() {
    if !is_installed("ib_write_bw", "perftest") {
        return;
    }
    let _turn = turn();
    let stats = ("NICHROME_STATS", "1");
    let server = [STAR, stats, ("NICHROME_STATELESS", "self"), ("NICHROME_IP", "127.77.2.1")];
    let client = |address| [STAR, ("NICHROME_IP", address)];
    // It sends again what was lost for some three seconds.
    let [old_server, old_client] = pair("ib_write_bw -u 15 -D 60", [&server, &client("127.77.2.2")]);
    send(libc::SIGKILL, &old_server);
    ended(old_server, "the old server");
    let [new_server, new_client] = pair("ib_write_bw -D 2", [&server, &client("127.77.2.3")]);
    for (end, what) in [(new_client, "the new client"), (new_server, "the new server")] {
        let end = ended(end, what);
        assert!(end.status.success(), "{what}: {}", said(&end));
        let dropped = said(&end).lines().any(|line| {
            line.contains("dropped, whose check was wrong")
                && !line.contains(" 0 dropped, whose check was wrong")
        });
        assert_eq!(dropped, what == "the new server", "{what}: {}", said(&end));
    }
    let old_client = ended(old_client, "the old client");
    assert!(!old_client.status.success(), "{}", said(&old_client));
    assert!(said(&old_client).contains("Completion with error"), "{}", said(&old_client));
}
