//! What cannot be done is told in one line.

use crate::run::{Room, failure};

#[test]
fn wrong_command_lines_are_told_in_one_line() {
    let room = Room::new();
    for (arguments, told) in [
        (&[][..], "nothing to do: give --right 'COMMAND', '-- COMMAND', --shell or --between IFACE IFACE"),
        (&["--delay", "-1ms"], "--delay: '-1ms' is no time: it is a number with ns, us, ms or s"),
        (&["--delay", "2h"], "--delay: '2h' is no time"),
        (&["--loss", "101%"], "--loss: '101%' is no loss: it is a probability such as 1%"),
        (&["--duplicate", "-0.1"], "--duplicate: '-0.1' is no probability"),
        (&["--corrupt", "nan"], "--corrupt: 'nan' is no probability"),
        (&["--rate", "0"], "--rate: '0' is no bandwidth"),
        (&["--rate", "-5mbit"], "--rate: '-5mbit' is no bandwidth"),
        (&["--mtu", "67"], "--mtu: '67' is no MTU: it is from 68 to 65535 bytes"),
        (&["--limit", "0"], "--limit: '0' is no number of packets: it is from 1 to 16777216"),
        (&["--rate", "1mbit", "--trace", "/dev/null"], "--trace: /dev/null: "),
        (&["--jitter", "file:/nonexistent"], "--jitter: cannot read /nonexistent: No such file or directory"),
        (&["--to-left", "loss"], "'loss' is no impairment of one direction: write --to-left NAME=VALUE"),
        (&["--to-left", "lose=1%"], "--to-left lose: there is no such impairment: there are delay, "),
        (
            &["--dealy", "1ms"],
            "unexpected argument '--dealy' found; tip: a similar argument exists: '--delay'",
        ),
        (&["--seed", "-4"], "invalid value '-4' for '--seed <NUMBER>'"),
        (
            &["--interface-mtu", "99999"],
            "invalid value '99999' for '--interface-mtu <BYTES>': 99999 is not in",
        ),
        (&["--between", "eth0", "a/b"], "invalid value 'a/b' for '--between <IFACE> <IFACE>': "),
        (&["--between", "eth0", "eth0"], "--between needs two interfaces, and got eth0 twice"),
        (&["--capture", "-", "--right", "true"], "--capture needs the name of a file"),
        (&["--left", "true", "--shell"], "the argument '--left <COMMAND>' cannot be used with '--shell'"),
        (&["set"], "nothing to set: name an impairment, such as --loss 1%"),
    ] {
        let (line, status) = failure(&room.run(arguments));
        assert!(line.starts_with(told), "{arguments:?}: {line}");
        assert_eq!(status, 2, "{line}");
    }
    assert!(room.is_tidy());
}

#[test]
fn files_that_cannot_be_written_are_told_before_anything_runs() {
    let room = Room::new();
    let ran = room.file("ran");
    for option in ["--capture", "--plot"] {
        let output = room.run(&[option, "/nonexistent/file", "--right", &format!("touch {ran}")]);
        let told = "cannot write /nonexistent/file: No such file or directory (os error 2)";
        assert_eq!(failure(&output), (told.into(), 1));
    }
    let output = room.run(&["--config", "/nonexistent.toml", "--right", &format!("touch {ran}")]);
    assert!(failure(&output).0.starts_with("cannot read /nonexistent.toml: No such file"));
    assert!(!room.path().join("ran").exists() && room.is_tidy());
}

#[test]
fn interfaces_that_are_not_there_are_named() {
    let output = Room::new().run(&["--between", "none0", "none1"]);
    assert_eq!(failure(&output), ("there is no interface called none0 ('ip link' lists them)".into(), 1));
}
