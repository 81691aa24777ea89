//! Programs between two network namespaces, which stand for two machines.

use crate::running::{command, ended, needs, turn};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/two_namespaces.sh");

const ONE_NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/one_network.sh");

const PROGRAMS: &[&str] = &[
    "ibv_rc_pingpong -g 0 -n 100 -c",
    "ibv_ud_pingpong -g 0 -n 100 -s 1024",
    "ib_write_bw -F -x 0 -n 100",
    "ib_read_lat -F -x 0 -n 50",
    "ib_send_bw -F -x 0 -n 100 -e",
    "ib_atomic_bw -F -x 0 -n 100",
];

#[test]
fn programs_run_between_two_namespaces() {
    needs("ib_write_bw", "perftest");
    needs("ibv_rc_pingpong", "ibverbs-utils");
    PROGRAMS.iter().for_each(|program| between_namespaces(program));
}

/// The command line of a program in a network namespace of its own, with this address and prefix length.
pub(crate) fn in_one_network(address: &str, program: &str) -> String {
    format!("unshare --user --map-root-user --net bash {ONE_NETWORK} {address} {program}")
}

/// Runs a program as server and as client in two namespaces.
pub(crate) fn between_namespaces(program: &str) {
    let _turn = turn();
    let line = format!("unshare --user --map-root-user --net bash {SCRIPT} {program}");
    let output = ended(command(&line, &[], &[]).spawn().unwrap(), program);
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program}:\n{}", String::from_utf8_lossy(&text));
}
