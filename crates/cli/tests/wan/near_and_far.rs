//! The key-value store of `crates/hca/examples/near_and_far`: a server on each host, and a client on the
//! right one.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::programs::copy_program;
use crate::run::{float, number, text};
use crate::unprivileged::{as_nobody, open_room};

/// Starts a server beside the client, and the client with both servers in its list.
const RIGHT: &str = "
./near_and_far serve $SELF:7301 &
server=$!
printf 'near %s:7301\\nfar %s:7300\\n' $SELF $PEER >book
./near_and_far ask --from $SELF --book book --keys 40 --gets 200 --json >report
status=$?
kill $server
exit $status";

/// Returns the path of the example, which is built with the tests of nichrome-hca.
fn example() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let path = this.parent().and_then(|deps| deps.parent()).unwrap().join("examples/near_and_far");
    assert!(path.exists(), "needs 'cargo build --package nichrome-hca --example near_and_far'");
    path
}

/// Returns the client's report on the near server and on the far one, which is beyond a path with these
/// impairments.
fn peers_over(path: &[&str]) -> [Value; 2] {
    let (room, nichrome) = open_room();
    copy_program(example(), room.file("near_and_far"));
    let hosts = ["--left", "./near_and_far serve $SELF:7300", "--right", RIGHT];
    let output =
        as_nobody(&room, &[&[&nichrome, "wan", "--seed", "1"], path, &hosts].concat()).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let report: Value = serde_json::from_slice(&fs::read(room.file("report")).unwrap()).unwrap();
    for peer in report["peers"].as_array().unwrap() {
        assert!(peer["error"].is_null() && number(&peer["put"], "count") > 10, "{report}");
        assert!(number(&peer["get"], "count") > 50, "{report}");
        let bins = peer["get"]["histogram"].as_array().unwrap();
        let counted: u64 = bins.iter().map(|bin| bin[1].as_u64().unwrap()).sum();
        assert_eq!(counted, number(&peer["get"], "count"));
    }
    [0, 1].map(|nth: usize| report["peers"][nth].clone())
}

#[test]
fn a_store_reaches_near_peers_by_roce_and_far_ones_by_iwarp() {
    let [near, far] = peers_over(&["--delay", "8ms"]);
    assert_eq!([&near["transport"], &far["transport"]], ["roce", "iwarp"]);
    assert!(float(&near, "round_trip_us") < 1000.0 && float(&far, "round_trip_us") >= 16_000.0);
    assert_eq!(float(&far, "loss"), 0.0);
    // A GET and a PUT are a round trip each.
    for request in ["get", "put"] {
        let [near, far] = [&near, &far].map(|peer| float(&peer[request], "p50_us"));
        assert!(near < 16_000.0 && (16_000.0..32_000.0).contains(&far), "{request}: {near} and {far}");
    }
}

#[test]
fn a_short_path_that_loses_packets_is_one_for_iwarp() {
    let [near, far] = peers_over(&["--delay", "50us", "--loss", "5%"]);
    assert_eq!([&near["transport"], &far["transport"]], ["roce", "iwarp"]);
    assert!(float(&far, "loss") > 0.0, "{far}");
}
