//! TCP transfers over a path that loses, duplicates, corrupts and reorders packets.

use crate::run::{Room, drops, number, printed_here, python};

/// Bytes of a transfer.
const LEN: u64 = 100_000_000;

fn arrives_whole(peer: &str) {
    let (serve, fetch) = (python(&format!("serve {LEN}")), python(&format!("fetch {peer} {LEN}")));
    let path =
        ["--delay", "100us", "--loss", "2%", "--duplicate", "2%", "--corrupt", "1%", "--reorder", "1%"];
    let (summary, printed) =
        Room::new().summary(&[&path[..], &["--left", &serve, "--right", &fetch]].concat());
    assert!(printed.contains(&format!("right | {}\n", printed_here(&format!("expect {LEN}")))), "{printed}");
    let direction = &summary["to_right"];
    assert!(number(direction, "packets") * 1448 > LEN, "packets are longer than the MTU: {direction}");
    for name in ["duplicated", "corrupted", "reordered"] {
        assert!(number(direction, name) > 0, "{direction}");
    }
    let share = drops(direction, "loss") as f64 / number(direction, "packets") as f64;
    assert!((0.01..0.03).contains(&share), "{direction}");
}

#[test]
fn a_transfer_over_ipv4_arrives_whole() {
    arrives_whole("$PEER");
}

#[test]
fn a_transfer_over_ipv6_arrives_whole() {
    arrives_whole("$PEER6");
}
