//! Unmodified programs: rdma-core's examples, perftest, pyverbs' tests, communication libraries. The tables
//! list the tested programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod applications;
#[path = "../common/mod.rs"]
mod common;
mod connection_manager;
mod crates;
mod domains;
mod endings;
mod flush;
mod forks;
#[path = "../../../../tests/installed.rs"]
mod installed;
mod lifetimes;
mod manager_users;
mod message_passing;
mod multicast;
mod namespaces;
mod newer;
mod offers;
mod packages;
mod places;
mod refusals;
mod running;
mod star;
mod transfer_engines;
mod xrc;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use running::{THROUGH_MEMORY, both_ends, command, each_end, ended, needs, outputs};

/// Debian's package ibverbs-utils, with `-g 0`.
const PINGPONGS: &[&str] = &[
    "ibv_rc_pingpong -n 200",
    "ibv_rc_pingpong -n 50 -s 1 -c",
    "ibv_rc_pingpong -n 20 -s 1048576 -m 4096 -c",
    "ibv_rc_pingpong -n 100 -e",
    "ibv_rc_pingpong -n 100 -t",
    "ibv_rc_pingpong -n 100 -N",
    "ibv_uc_pingpong -n 200",
    "ibv_uc_pingpong -n 100 -e",
    "ibv_ud_pingpong -n 200 -s 1024",
    "ibv_ud_pingpong -n 100 -s 1024 -e",
    "ibv_srq_pingpong -n 200",
    "ibv_srq_pingpong -n 100 -e",
    "ibv_xsrq_pingpong -n 100",
    "ibv_xsrq_pingpong -n 100 -e",
];

/// Debian's package perftest, with `-F -x 0`.
const PERFTESTS: &[&str] = &[
    "ib_write_bw -n 100",
    "ib_read_bw -n 100",
    "ib_send_bw -n 100",
    "ib_atomic_bw -n 100",
    "ib_atomic_bw -n 100 -A CMP_AND_SWAP",
    "ib_write_lat -n 50",
    "ib_read_lat -n 50",
    "ib_send_lat -n 50",
    "ib_atomic_lat -n 50",
    "ib_atomic_lat -n 50 -A CMP_AND_SWAP",
    "ib_write_bw -n 10 -a",
    "ib_read_bw -n 10 -a",
    "ib_send_bw -n 10 -a",
    "ib_send_bw -n 100 -e",
    "ib_read_bw -n 100 -e",
    "ib_send_lat -n 50 -e",
    "ib_write_bw -n 100 -b",
    "ib_send_bw -n 100 -b",
    "ib_write_bw -n 20 -q 16",
    "ib_write_lat -n 50 -I 64 -s 64",
    "ib_send_lat -n 50 -I 200 -s 200",
    "ib_write_bw -n 50 -c UC",
    "ib_send_bw -n 50 -c UC",
    "ib_send_bw -n 50 -c UD -s 1024",
    "ib_send_lat -n 50 -c UD -s 64",
    "ib_send_bw -n 50 -r 64 --use-srq",
    "ib_send_bw -n 50 -c XRC",
    "ib_send_lat -n 50 -c XRC",
    "ib_write_bw -n 50 -c XRC",
    "ib_read_bw -n 50 -c XRC",
    "ib_atomic_bw -n 50 -c XRC",
];

/// Programs also run with 1 % loss in each direction: those of reliable connections.
const UNDER_LOSS: &[&str] = &[
    "ibv_rc_pingpong -n 200 -c",
    "ibv_srq_pingpong -n 100",
    "ib_write_bw -n 100",
    "ib_read_bw -n 100",
    "ib_send_bw -n 100",
    "ib_atomic_bw -n 100",
    "ib_write_lat -n 50",
    "ib_read_lat -n 50",
    "ib_send_lat -n 50",
    "ib_atomic_lat -n 50 -A CMP_AND_SWAP",
    "ib_write_bw -n 5 -a",
    "ib_write_bw -n 100 -b",
    "ib_write_bw -n 20 -q 16",
    "ib_send_bw -n 100 -e",
    "ib_send_lat -n 50 -I 200 -s 200",
    "ib_send_bw -n 100 -c XRC",
];

/// Programs also run over StaR, with a stateless server and with a stateless client, each with and without 1
/// % loss.
const OVER_STAR: &[&str] = &[
    "ibv_rc_pingpong -n 100 -c",
    "ibv_rc_pingpong -n 100 -e",
    "ibv_srq_pingpong -n 100",
    "ibv_srq_pingpong -n 100 -e",
    "ib_write_bw -n 100",
    "ib_read_bw -n 100",
    "ib_send_bw -n 100",
    "ib_send_lat -n 50",
    "ib_write_lat -n 50",
    "ib_write_bw -n 20 -q 16",
];

/// Programs also run over iWARP. Without `ib_send_bw`, which fails on an RNIC unless it uses the connection
/// manager: its server sends credits before it brings its queue pair to RTS, and with -b it frees its domain
/// before the region of the credits.
const OVER_IWARP: &[&str] = &[
    "ibv_rc_pingpong -n 200 -c",
    "ibv_rc_pingpong -n 50 -s 1 -c",
    "ibv_rc_pingpong -n 20 -s 1048576 -m 4096 -c",
    "ibv_rc_pingpong -n 100 -e",
    "ibv_srq_pingpong -n 200",
    "ib_write_bw -n 100",
    "ib_write_bw -n 10 -a",
    "ib_write_bw -n 100 -b",
    "ib_write_bw -n 20 -q 16",
    "ib_read_bw -n 10 -a",
    "ib_read_bw -n 100 -e",
    "ib_atomic_bw -n 100",
    "ib_write_lat -n 50",
    "ib_read_lat -n 50",
    "ib_send_lat -n 50",
    "ib_send_lat -n 50 -I 200 -s 200",
    "ib_atomic_lat -n 50 -A CMP_AND_SWAP",
];

/// Programs of [`OVER_IWARP`] that also run with the FPDU's CRC: each operation once.
const OVER_IWARP_WITH_CRC: &[&str] = &[
    "ibv_rc_pingpong -n 200 -c",
    "ibv_rc_pingpong -n 100 -e",
    "ib_write_bw -n 10 -a",
    "ib_read_bw -n 10 -a",
    "ib_atomic_bw -n 100",
    "ib_send_lat -n 50 -I 200 -s 200",
];

/// Programs run under valgrind, which must find no error and no leak.
const UNDER_VALGRIND: &[&str] = &[
    "valgrind -q --error-exitcode=9 --leak-check=full ibv_rc_pingpong -n 50 -c",
    "valgrind -q --error-exitcode=9 --leak-check=full ibv_ud_pingpong -n 50 -s 1024",
    "valgrind -q --error-exitcode=9 --leak-check=full ibv_srq_pingpong -n 50 -e",
];

fn options(line: &str) -> &'static [&'static str] {
    if line.starts_with("ibv_") { &["-g", "0"] } else { &["-F", "-x", "0"] }
}

#[test]
fn ibv_devinfo_shows_the_device() {
    needs("ibv_devinfo", "ibverbs-utils");
    let output = command("ibv_devinfo -v", &[], &[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["nichrome0", "PORT_ACTIVE (4)", "Ethernet", "::ffff:127."] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn a_variable_that_says_nothing_valid_is_named_in_one_line() {
    needs("ibv_devinfo", "ibverbs-utils");
    for (variable, expected) in [
        (("NICHROME_LOS", "1%"), "did you mean NICHROME_LOSS?"),
        (("NICHROME_STATS", "yes"), "NICHROME_STATS=yes: the value is 0 or 1"),
        (("NICHROME_IFACE", "nosuch0"), "NICHROME_IFACE=nosuch0: this machine has no such interface"),
    ] {
        let output = command("ibv_devinfo", &[], &[variable]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected) && !output.status.success(), "{text}");
    }
}

#[test]
fn the_examples_of_rdma_core_run() {
    needs("ibv_rc_pingpong", "ibverbs-utils");
    PINGPONGS.iter().for_each(|line| both_ends(line, options(line), &[]));
}

/// Programs written for other adapters expect the address's RoCE v2 GID at a fixed index.
#[test]
fn gid_indices_up_to_3_are_the_same_address() {
    needs("ib_write_bw", "perftest");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    both_ends("ibv_ud_pingpong -n 50 -s 1024", &["-g", "1"], &[]);
    both_ends("ib_write_bw -n 50", &["-F", "-x", "3"], &[]);
    // Without an index, perftest searches /sys for a RoCE v2 GID.
    both_ends("ib_write_bw -n 50", &["-F"], &[]);
}

#[test]
fn perftest_runs() {
    needs("ib_write_bw", "perftest");
    PERFTESTS.iter().for_each(|line| both_ends(line, options(line), &[]));
}

#[test]
fn programs_run_with_packet_loss() {
    needs("ib_write_bw", "perftest");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    let environment = [("NICHROME_LOSS", "1%"), ("NICHROME_SEED", "1")];
    UNDER_LOSS.iter().for_each(|line| both_ends(line, options(line), &environment));
}

/// Queue pairs of each end of a program.
fn queue_pairs(line: &str) -> u64 {
    if line.starts_with("ibv_srq_pingpong") || line.ends_with("-q 16") { 16 } else { 1 }
}

#[test]
fn programs_run_through_memory() {
    needs("ib_write_bw", "perftest");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    let environment = [THROUGH_MEMORY, ("NICHROME_STATS", "1")];
    for line in UNDER_LOSS {
        for end in outputs(line, options(line), [&environment; 2]) {
            let text = String::from_utf8_lossy(&end.stderr);
            let counts = text.split_once(" packets sent, ").and_then(|(sent, rest)| {
                Some((sent.rsplit_once(' ')?.1.parse().ok()?, rest.split_once(' ')?.0.parse().ok()?))
            });
            // The last ACK of each queue pair is sent four times, and takes the socket if the peer has ended.
            let unlinked = 4 * queue_pairs(line) + 6;
            let is_linked =
                counts.is_some_and(|(all, linked): (u64, u64)| linked > 0 && all - linked < unlinked);
            assert!(end.status.success() && is_linked, "{line}: {text}");
        }
    }
}

#[test]
fn programs_run_where_one_side_keeps_no_state() {
    needs("ib_write_bw", "perftest");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    let star = [("NICHROME_TRANSPORT", "star")];
    for stateless in ["self", "peer"] {
        let server = [star[0], ("NICHROME_STATELESS", stateless)];
        OVER_STAR.iter().for_each(|line| each_end(line, options(line), [&server, &star]));
        let loss = ("NICHROME_LOSS", "1%");
        let (server, client) = ([server[0], server[1], loss], [star[0], loss]);
        OVER_STAR.iter().for_each(|line| each_end(line, options(line), [&server, &client]));
    }
}

#[test]
fn programs_run_over_iwarp() {
    needs("ib_write_bw", "perftest");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    // GID 0 of an RNIC is its hardware address, which contains its IPv4 address; the others are its IP
    // address.
    let choices = [("0", &["-F"][..], OVER_IWARP), ("1", &["-F", "-x", "1"], OVER_IWARP_WITH_CRC)];
    for (crc, of_perftest, lines) in choices {
        let environment = [("NICHROME_TRANSPORT", "iwarp"), ("NICHROME_CRC", crc)];
        for line in lines {
            let options = if line.starts_with("ibv_") { &["-g", "1"][..] } else { of_perftest };
            both_ends(line, options, &environment);
        }
    }
}

/// On an RNIC the server of ib_send_bw grants credits, which it posts before its queue pair is in RTS.
/// perftest does not deregister their region, cannot free its protection domain, and fails at its end, on any
/// RNIC.
#[test]
fn ib_send_bw_transfers_over_iwarp() {
    needs("ib_send_bw", "perftest");
    let environment: &[(&str, &str)] = &[("NICHROME_TRANSPORT", "iwarp")];
    for line in ["ib_send_bw -n 1000", "ib_send_bw -n 1000 -b", "ib_send_bw -n 1000 --use-srq"] {
        for output in outputs(line, &["-F", "-x", "1"], [environment; 2]) {
            let text = String::from_utf8_lossy(&output.stdout);
            let has_result = text.lines().any(|line| line.split_whitespace().take(2).eq(["65536", "1000"]));
            assert!(has_result, "{line}: {text}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn valgrind_finds_nothing() {
    needs("valgrind", "valgrind");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    UNDER_VALGRIND.iter().for_each(|line| both_ends(line, &["-g", "0"], &[]));
}

/// Copies the tests of pyverbs, some of them compressed, to a folder and returns the names of their modules.
fn unpack_pyverbs_tests(folder: &Path) -> Vec<String> {
    let shipped = Path::new("/usr/share/doc/rdma-core/tests");
    assert!(shipped.exists(), "the tests need Debian's packages python3-pyverbs and rdma-core");
    fs::create_dir(folder).unwrap();
    let mut modules = Vec::new();
    for entry in fs::read_dir(shipped).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        if plain != name {
            let unpacked = File::create(folder.join(plain)).unwrap();
            assert!(Command::new("gunzip").arg("-c").arg(&path).stdout(unpacked).status().unwrap().success());
        } else if path.is_file() {
            fs::copy(&path, folder.join(name)).unwrap();
        }
        modules.extend(plain.strip_suffix(".py").filter(|name| name.starts_with("test_")).map(str::to_owned));
    }
    modules
}

/// Debian ships them in rdma-core's documentation folder. Tests of other adapters' features are skipped.
#[test]
fn the_tests_of_pyverbs_pass() {
    let folder = tempfile::tempdir().unwrap();
    let modules = unpack_pyverbs_tests(&folder.path().join("tests"));
    let mut passed = 0;
    for module in &modules {
        let line = "/usr/bin/python3 tests/run_tests.py --dev nichrome0 --gid 0 -v";
        let mut command = command(line, &[&format!("tests.{module}")], &[]);
        let output = ended(command.current_dir(folder.path()).spawn().unwrap(), module);
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{module}: {log}");
        assert!(log.contains(" ... ok") || log.contains("skipped"), "{module} has no tests: {log}");
        passed += log.lines().filter(|line| line.ends_with(" ... ok")).count();
    }
    assert!(passed >= 100, "{passed} tests passed, the others were skipped");
}
