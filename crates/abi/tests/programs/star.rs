//! Programs over StaR whose peer is killed.

use std::time::{Duration, Instant};

use crate::lifetimes::{output_text, pair, send};
use crate::running::{ended, needs, turn};

const STAR: (&str, &str) = ("NICHROME_TRANSPORT", "star");

/// Time limit for a program to give up its silent peer. With perftest's timers it takes two seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// Kills the stateful end, which executes requests for the stateless one; these must complete in error.
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
    assert!(!left.status.success(), "{line}: {}", output_text(&left));
    assert!(output_text(&left).contains("Completion with error"), "{line}: {}", output_text(&left));
    ended(gone, line);
}

#[test]
fn a_stateless_program_ends_in_error_when_its_stateful_peer_is_killed() {
    needs("ib_send_bw", "perftest");
    // perftest's client sends; with -b both ends do.
    stateful_end_is_killed("ib_write_bw -D 60", "peer", 0);
    stateful_end_is_killed("ib_send_bw -D 60", "peer", 0);
    stateful_end_is_killed("ib_send_bw -b -D 60", "self", 1);
}

#[test]
fn a_restarted_stateless_program_drops_packets_for_its_predecessor() {
    needs("ib_write_bw", "perftest");
    let _turn = turn();
    let stats = ("NICHROME_STATS", "1");
    let server = [STAR, stats, ("NICHROME_STATELESS", "self"), ("NICHROME_IP", "127.77.2.1")];
    let client = |address| [STAR, ("NICHROME_IP", address)];
    // The old client retransmits for some three seconds.
    let [old_server, old_client] = pair("ib_write_bw -u 15 -D 60", [&server, &client("127.77.2.2")]);
    send(libc::SIGKILL, &old_server);
    ended(old_server, "the old server");
    let [new_server, new_client] = pair("ib_write_bw -D 2", [&server, &client("127.77.2.3")]);
    for (end, what) in [(new_client, "the new client"), (new_server, "the new server")] {
        let end = ended(end, what);
        assert!(end.status.success(), "{what}: {}", output_text(&end));
        let dropped = output_text(&end).lines().any(|line| {
            line.contains("dropped: invalid check or tag") && !line.contains(" 0 dropped: invalid check")
        });
        assert_eq!(dropped, what == "the new server", "{what}: {}", output_text(&end));
    }
    let old_client = ended(old_client, "the old client");
    assert!(!old_client.status.success(), "{}", output_text(&old_client));
    assert!(output_text(&old_client).contains("Completion with error"), "{}", output_text(&old_client));
}
