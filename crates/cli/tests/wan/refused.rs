//! Invalid options and files are refused with one line.

use crate::run::{Room, failure, text};

#[test]
fn wrong_command_lines_are_refused_in_one_line() {
    let room = Room::new();
    let trace = room.file("trace");
    std::fs::write(&trace, "1\n").unwrap();
    for (arguments, expected) in [
        (&[][..], "nothing to do: give --right 'COMMAND', '-- COMMAND', --shell or --between IFACE IFACE"),
        (&["--delay", "-1ms"], "--delay: '-1ms' is not a valid time: expected a number with ns, us, ms or s"),
        (&["--delay", "2h"], "--delay: '2h' is not a valid time"),
        (&["--loss", "101%"], "--loss: '101%' is not a valid loss: expected a probability such as 1%"),
        (&["--duplicate", "-0.1"], "--duplicate: '-0.1' is not a valid probability"),
        (&["--corrupt", "nan"], "--corrupt: 'nan' is not a valid probability"),
        (&["--rate", "0"], "--rate: '0' is not a valid bandwidth"),
        (&["--rate", "-5mbit"], "--rate: '-5mbit' is not a valid bandwidth"),
        (&["--mtu", "67"], "--mtu: '67' is not a valid MTU: expected 68 to 65535 bytes"),
        (&["--limit", "0"], "--limit: '0' is not a valid number of packets: expected 1 to 16777216"),
        (&["--jitter", "file:"], "--jitter: the name of a file is missing"),
        (&["--trace", ""], "--trace: the name of a file is missing"),
        (
            &["--jitter", "measured.txt"],
            "--jitter: 'measured.txt' is not a valid jitter: expected a time such as 5ms, or a time after uniform:, normal:, \
             pareto: or pareto-normal:; at most 3600s; or file: followed by the name of a file of times",
        ),
        (
            &["--rate", "1mbit", "--trace", &trace],
            "to the left: rate and trace are both given: a path has one bottleneck, so one of them must be none",
        ),
        (&["--to-left", "loss"], "'loss' is not an impairment of one direction: write --to-left NAME=VALUE"),
        (
            &["--to-left", "lose=1%"],
            "--to-left lose: there is no such impairment: the impairments are delay, ",
        ),
        (
            &["--dealy", "1ms"],
            "unexpected argument '--dealy' found; tip: a similar argument exists: '--delay'",
        ),
        (
            &["--seed", "-4"],
            "invalid value '-4' for '--seed <NUMBER>': expected a whole number from 0 to 18446744073709551615",
        ),
        (
            &["--interface-mtu", "99999"],
            "invalid value '99999' for '--interface-mtu <BYTES>': expected a whole number of bytes from 576 to 65521",
        ),
        (&["--between", "eth0", "a/b"], "invalid value 'a/b' for '--between <IFACE> <IFACE>': "),
        (&["--between", "eth0", "eth0"], "--between needs two interfaces, and got eth0 twice"),
        (&["--capture", "-", "--right", "true"], "--capture needs the name of a file"),
        (
            &["--plot", "-", "--right", "true"],
            "invalid value '-' for '--plot <FILE.svg>': expected the name of a file",
        ),
        (
            &["--between", "eth0", "eth1", "--interface-mtu", "1500"],
            "the argument '--between <IFACE> <IFACE>' cannot be used with '--interface-mtu <BYTES>'",
        ),
        (&["--left", "true", "--shell"], "the argument '--left <COMMAND>' cannot be used with '--shell'"),
        (
            &["--delay", "1ms", "true"],
            "unknown command 'true': a command goes behind two dashes, '-- true'; ",
        ),
        (
            &["--delay", "1ms", "ping", "$PEER"],
            "unknown command 'ping': a command goes behind two dashes, '-- ping $PEER'; ",
        ),
        (
            &["sow"],
            "unknown command 'sow': a command goes behind two dashes, '-- sow'; there are also set, show and exec",
        ),
        (&["set"], "nothing to set: name an impairment, such as --loss 1%"),
    ] {
        let (line, status) = failure(&room.run(arguments));
        assert!(line.starts_with(expected), "{arguments:?}: {line}");
        assert_eq!(status, 2, "{line}");
    }
    assert!(room.is_tidy());
}

#[test]
fn files_that_cannot_be_written_are_reported_before_the_programs_start() {
    let room = Room::new();
    let ran = room.file("ran");
    for option in ["--capture", "--plot"] {
        let output = room.run(&[option, "/nonexistent/file", "--right", &format!("touch {ran}")]);
        let expected = "cannot write /nonexistent/file: No such file or directory (os error 2)";
        assert_eq!(failure(&output), (expected.into(), 1));
    }
    let output = room.run(&["--config", "/nonexistent.toml", "--right", &format!("touch {ran}")]);
    assert!(failure(&output).0.starts_with("/nonexistent.toml: cannot read it: No such file"));
    for (option, file, expected) in [
        ("--trace", "/dev/null", "--trace: /dev/null: "),
        ("--jitter", "file:/nonexistent", "--jitter: cannot read /nonexistent: No such file or directory"),
    ] {
        let (line, status) = failure(&room.run(&[option, file, "--right", &format!("touch {ran}")]));
        assert!(line.starts_with(expected) && status == 1, "{line}");
    }
    for option in ["--config", "--trace"] {
        let output = room.run(&[option, "/dev/zero", "--right", &format!("touch {ran}")]);
        assert!(failure(&output).0.contains("it is longer than 67108864 bytes"), "{output:?}");
    }
    assert!(!room.path().join("ran").exists() && room.is_tidy());
}

#[test]
fn errors_in_a_file_name_the_file() {
    let room = Room::new();
    let file = room.file("path.toml");
    for (text, expected) in [
        ("delay = 40\n", "delay: '40' is not a valid time: expected a number with ns, us, ms or s"),
        ("delay = \"40ms\nloss = 1\n", "line 1: invalid basic string"),
        ("delay = [\"40ms\"]\n", "delay must be a text or a number, such as \"40ms\""),
        (
            "[to-rigt]\nloss = \"1%\"\n",
            "there is no table [to-rigt]: the tables are [to-right] and [to-left]",
        ),
        ("to-left = \"1%\"\n", "to-left must be a table, [to-left]"),
        (
            "[to-left]\nlos = \"1%\"\n",
            "to-left.los: there is no such impairment: the impairments are delay, ",
        ),
        ("[to-right]\nloss = true\n", "to-right.loss must be a text or a number, such as \"40ms\""),
        ("loss = 0.1\nloss = 0.2\n", "line 2: duplicate key"),
        ("jitter = \"file:\"\n", "jitter: the name of a file is missing"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (line, status) = failure(&room.run(&["--config", &file, "--right", "true"]));
        assert!(line.starts_with(&format!("{file}: {expected}")) && status == 1, "{text}: {line}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    let warned = |arguments: &[&str]| {
        let output = Room::new().run(&[arguments, &["--", "true"]].concat());
        text(&output.stderr)
            .lines()
            .find_map(|line| Some(line.strip_prefix("nichrome: warning: ")?.to_owned()))
    };
    let does_nothing = Some("--aqm does nothing without --rate or --trace".to_owned());
    assert_eq!(warned(&["--aqm", "codel"]), does_nothing);
    assert_eq!(warned(&["--aqm", "codel", "--to-left", "rate=1mbit"]), None);
    assert_eq!(warned(&["--to-right", "aqm=codel", "--to-left", "rate=1mbit"]), does_nothing);
    assert_eq!(warned(&["--aqm", "none", "--jitter-order", "none"]), None);
    // netem reads 0.5 as 0.5 %.
    let percent = Some("--loss 0.5 is 50 %; a number of percent is 0.5%".to_owned());
    assert_eq!(warned(&["--loss", "0.5"]), percent);
    let exact = Some("--loss 0.29 is 29 %; a number of percent is 0.29%".to_owned());
    assert_eq!(warned(&["--loss", "0.29"]), exact);
    assert_eq!(
        warned(&["--to-left", "reorder=0.25:1ms"]).map(|warning| warning.contains("is 25 %")),
        Some(true)
    );
    for loss in ["50%", "0.01", "0", "packets:1"] {
        assert_eq!(warned(&["--loss", loss]), None);
    }
}

#[test]
fn missing_interfaces_are_named() {
    let output = Room::new().run(&["--between", "none0", "none1"]);
    assert_eq!(failure(&output), ("there is no interface called none0 ('ip link' lists them)".into(), 1));
}
