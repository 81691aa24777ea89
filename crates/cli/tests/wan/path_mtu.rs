//! Packets longer than the path MTU: their senders get an ICMP error and send shorter ones.

use crate::run::{Room, drops, number, printed_here, python};

#[test]
fn a_transfer_over_a_narrow_path_arrives_whole() {
    const LEN: u64 = 5_000_000;
    for peer in ["$PEER", "$PEER6"] {
        let (serve, fetch) = (python(&format!("serve {LEN}")), python(&format!("fetch {peer} {LEN}")));
        let (summary, printed) =
            Room::new().summary(&["--mtu", "1400", "--delay", "1ms", "--left", &serve, "--right", &fetch]);
        assert!(printed.contains(&printed_here(&format!("expect {LEN}"))), "{printed}");
        let direction = &summary["to_right"];
        let answers = number(direction, "too_big_sent");
        assert!(answers > 0 && answers <= drops(direction, "mtu"), "{direction}");
        assert!(drops(direction, "mtu") * 10 < number(direction, "packets"), "{direction}");
    }
}

/// RFC 8200 section 5: every link carries IPv6 packets of 1,280 bytes.
#[test]
fn ipv6_packets_of_1280_bytes_pass_a_narrower_path() {
    let probe = |peer: &str, len: u32| python(&format!("probe {peer} {len}"));
    let right = format!("{}; {}; {}", probe("$PEER6", 1232), probe("$PEER6", 1233), probe("$PEER", 1000));
    let (_, printed) = Room::new().summary(&["--mtu", "1000", "--left", &python("echo"), "--right", &right]);
    let lines = ["it came back", "Message too long 1280", "Message too long 1000"];
    assert_eq!(printed, lines.map(|line| format!("right | {line}\n")).concat());
    const LEN: u64 = 1_000_000;
    let (serve, fetch) = (python(&format!("serve {LEN}")), python(&format!("fetch $PEER6 {LEN}")));
    let (_, printed) = Room::new().summary(&["--mtu", "600", "--left", &serve, "--right", &fetch]);
    assert!(printed.contains(&printed_here(&format!("expect {LEN}"))), "{printed}");
}

#[test]
fn the_kernel_learns_the_mtu_of_the_path() {
    for peer in ["$PEER", "$PEER6"] {
        let probe = |len: u32| python(&format!("probe {peer} {len}"));
        let right = format!("{}; {}; {}", probe(1300), probe(1420), probe(1300));
        let (summary, printed) = Room::new().summary(&[
            "--mtu",
            "1400",
            "--delay",
            "1ms",
            "--left",
            &python("echo"),
            "--right",
            &right,
        ]);
        let lines = ["it came back", "Message too long 1400", "it came back"];
        assert_eq!(printed, lines.map(|line| format!("right | {line}\n")).concat());
        assert_eq!(number(&summary["to_left"], "too_big_sent"), 1, "{summary}");
    }
}

/// As a router does (RFC 791 section 2.3). Linux answers echo requests without DF.
#[test]
fn ipv4_packets_without_df_arrive_in_fragments() {
    let right = python("fragmentable $PEER 1400");
    let (summary, printed) =
        Room::new().summary(&["--mtu", "600", "--left", &python("echo"), "--right", &right]);
    assert_eq!(printed, "right | it came back\n");
    for direction in ["to_right", "to_left"] {
        let direction = &summary[direction];
        assert_eq!((number(direction, "fragmented"), number(direction, "fragments")), (1, 3), "{direction}");
        assert_eq!((drops(direction, "mtu"), number(direction, "too_big_sent")), (0, 0), "{direction}");
    }
}
