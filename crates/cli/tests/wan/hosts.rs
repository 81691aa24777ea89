//! The two hosts of a path, their programs and their impairments.

use std::process::{Command, Stdio};

use crate::run::{Room, drops, failure, float, number, python, text};

#[test]
fn both_commands_are_labelled_and_the_right_one_decides() {
    let output = Room::new().run(&[
        "--left",
        "echo here I am; echo oops >&2; sleep 60",
        "--right",
        "sleep 0.2; echo me too; printf unfinished; exit 7",
    ]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "left  | here I am\nright | me too\nright | unfinished\n");
    assert!(text(&output.stderr).starts_with("left  | oops\n"));
}

#[test]
fn the_right_program_starts_when_the_left_one_listens_however_long_that_takes() {
    python("echo");
    let busy = "import socket, time; start = time.monotonic()\nwhile time.monotonic() < start + 11: pass\n\
                server = socket.create_server(('10.0.0.1', 7000)); print('listens', flush=True); server.accept()";
    let connect = "import socket; socket.create_connection(('10.0.0.1', 7000)); print('connected')";
    let output = Room::new().run(&[
        "--left",
        &format!("python3 -c \"{busy}\""),
        "--right",
        &format!("python3 -c \"{connect}\""),
    ]);
    let reported = text(&output.stderr);
    assert_eq!(text(&output.stdout), "left  | listens\nright | connected\n", "{reported}");
    assert!(reported.contains("nichrome: the left program is busy and does not listen yet"), "{reported}");
}

#[test]
fn nothing_runs_on_the_right_where_the_left_command_cannot_be_started() {
    let output = Room::new().run(&["--left", "not-a-command", "--right", "echo ran"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("", Some(127)));
    assert!(text(&output.stderr).contains("nichrome: the command on the left could not be started"));
}

#[test]
fn each_host_gets_the_addresses_and_reaches_the_other() {
    let room = Room::new();
    let print = "echo $SELF $SELF6 $PEER $PEER6";
    let output =
        room.run(&["--left", &format!("{print}; sleep 60"), "--right", &format!("sleep 0.3; {print}")]);
    assert_eq!(
        text(&output.stdout),
        "left  | 10.0.0.1 fd00::1 10.0.0.2 fd00::2\nright | 10.0.0.2 fd00::2 10.0.0.1 fd00::1\n"
    );
    for peer in ["$PEER", "$PEER6"] {
        let send = python(&format!("send {peer} 10"));
        let (summary, printed) = room.summary(&["--left", &python("echo"), "--right", &send]);
        assert!(printed.contains("right | 1 2 3 4 5 6 7 8 9 10\n"), "{printed}");
        for direction in ["to_left", "to_right"] {
            assert_eq!(number(&summary[direction], "packets_delivered"), 10, "{summary}");
        }
    }
}

#[test]
fn interfaces_that_are_too_small_for_ipv6_have_ipv4() {
    let output = Room::new().run(&["--interface-mtu", "1279", "--", "echo", "$PEER", "[$PEER6]"]);
    assert_eq!(text(&output.stdout), "10.0.0.1 []\n");
    let expected =
        "nichrome: warning: the hosts have IPv4 only: IPv6 needs an interface MTU of 1280 bytes (RFC 8200)\n";
    assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
}

/// A kernel without IPv6 has no settings for it.
#[test]
fn a_kernel_without_ipv6_has_a_path_with_ipv4() {
    let room = Room::new();
    let (left, right) = (python("echo"), python("send $PEER 3; echo [$PEER6]"));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.args(["mount -t tmpfs none /proc/sys/net && exec \"$0\" wan --left \"$1\" --right \"$2\""]);
    command.args([env!("CARGO_BIN_EXE_nichrome"), &left, &right]).stdin(Stdio::null());
    room.prepare(&mut command);
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "right | 1 2 3\nright | []\n", "{}", text(&output.stderr));
    let expected = "nichrome: warning: the hosts have IPv4 only: this kernel has no IPv6\n";
    assert!(
        text(&output.stderr).starts_with(expected) && output.status.success(),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_command_after_dashes_runs_on_the_right_with_the_variables_put_in() {
    let room = Room::new();
    let output = room.run(&["--", "printf", "%s %s", "${PEER}", "[$PEER6]"]);
    assert_eq!(text(&output.stdout), "10.0.0.1 [fd00::1]");
    let output = room.run(&["--json", "--", "echo", "not on the standard output"]);
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());
    assert_eq!(text(&output.stderr), "not on the standard output\n");
}

#[test]
fn a_shell_reaches_the_command_and_decides_when_it_ends() {
    let room = Room::new();
    let script = room.file("shell");
    std::fs::write(&script, format!("#!/bin/sh\n{}\n", python("send $PEER 3"))).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output =
        room.command(&["--shell", "--right", &python("echo")]).env("SHELL", &script).output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("1 2 3\n", Some(0)));
}

#[test]
fn the_exit_status_is_that_of_a_lone_shell() {
    let room = Room::new();
    let script = room.file("shell");
    std::fs::write(&script, "#!/bin/sh\nexit 4\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let status = |arguments: &[&str]| room.command(arguments).env("SHELL", &script).output().unwrap().status;
    assert_eq!(status(&["--shell"]).code(), Some(4));
    assert_eq!(status(&["--shell", "--right", "sleep 60"]).code(), Some(0));
}

#[test]
fn the_exit_status_of_a_program_stays_if_nothing_reads_the_summary() {
    let room = Room::new();
    let status = |program: &str| {
        let mut child =
            room.command(&["--json", "--", "sh", "-c", program]).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        child.wait().unwrap().code()
    };
    assert_eq!(["exit 7", "true"].map(status), [Some(7), Some(0)]);
}

#[test]
fn measured_delays_are_no_shorter_than_configured() {
    let room = Room::new();
    let (left, right) = (python("echo"), python("send $PEER 50"));
    let (summary, _) =
        room.summary(&["--delay", "20ms", "--to-left", "delay=5ms", "--left", &left, "--right", &right]);
    for (direction, configured) in [("to_right", 20_000.0), ("to_left", 5_000.0)] {
        let direction = &summary[direction];
        let [p50, p99, max] =
            ["delay_p50_us", "delay_p99_us", "delay_max_us"].map(|name| float(direction, name));
        assert_eq!(float(direction, "delay_asked_us"), configured);
        assert!(configured <= p50 && p50 <= p99 && p99 <= max, "{direction}");
        assert!(
            number(direction, "bytes") >= 50 * (14 + 28 + 1) && float(direction, "gbps") > 0.0,
            "{direction}"
        );
    }
}

#[test]
fn a_direction_without_delivered_packets_has_no_delays() {
    let room = Room::new();
    let (left, right) = (python("echo"), python("send $PEER 2"));
    let arguments = ["--to-right", "loss=100%", "--left", &left, "--right", &right];
    let (summary, _) = room.summary(&arguments);
    let delays = |name: &str| {
        let keys = summary[name].as_object().unwrap().keys();
        keys.filter(|key| key.starts_with("delay_")).cloned().collect::<Vec<_>>()
    };
    let all = ["asked", "p50", "p99", "max", "error_p50", "error_p99", "error_max"]
        .map(|name| format!("delay_{name}_us"));
    assert_eq!((number(&summary["to_right"], "packets"), delays("to_right")), (2, Vec::new()), "{summary}");
    assert_eq!(delays("to_left"), all, "{summary}");
    let text = text(&room.run(&arguments).stderr);
    let measured = text.lines().find(|line| line.contains("measured delay, p50")).unwrap();
    assert!(measured.contains(" – ") && measured.ends_with("s"), "{text}");
}

/// A burst stays in order: the drawn delays are as configured, and the extra delay to keep the order is
/// reported separately.
#[test]
fn drawn_jitter_is_reported_apart_from_the_delay_of_order() {
    let right = python("send $PEER 300");
    let options = ["--delay", "20ms", "--jitter", "5ms", "--left", &python("echo"), "--right", &right];
    let (summary, _) = Room::new().summary(&options);
    let of = |name: &str| summary["to_right"][name].as_f64().unwrap();
    assert!((19_000.0..21_000.0).contains(&of("delay_drawn_mean_us")), "{summary}");
    assert!(of("delay_drawn_max_us") <= 25_000.0 && of("kept_in_order_mean_us") > 1_000.0, "{summary}");
    let (summary, _) = Room::new().summary(&["--delay", "1ms", "--right", "true"]);
    assert!(summary["to_right"].get("delay_drawn_mean_us").is_none(), "{summary}");
}

#[test]
fn exactly_the_packets_of_a_list_are_lost() {
    let room = Room::new();
    let (left, right) = (python("echo"), python("send $PEER 10"));
    let (summary, printed) =
        room.summary(&["--to-left", "loss=packets:2,5-7", "--left", &left, "--right", &right]);
    assert!(printed.contains("right | 1 3 4 8 9 10\n"), "{printed}");
    assert_eq!((drops(&summary["to_left"], "loss"), drops(&summary["to_right"], "loss")), (4, 0));
    assert_eq!(number(&summary["to_left"], "packets_delivered"), 6);
}

#[test]
fn the_same_seed_makes_the_same_choices() {
    let room = Room::new();
    let (left, right) = (python("echo"), python("send $PEER 100"));
    let arrived = |seed: &str| {
        let arguments = ["--to-left", "loss=30%", "--seed", seed, "--left", &left, "--right", &right];
        room.summary(&arguments).1
    };
    assert_eq!(arrived("7"), arrived("7"));
    assert_ne!(arrived("7"), arrived("8"));
}

#[test]
fn options_override_the_impairments_of_a_file() {
    let room = Room::new();
    let file = room.file("dsl.toml");
    std::fs::write(&file, "delay = \"30ms\"\nloss = \"packets:1\"\n[to-right]\ndelay = \"3ms\"\n").unwrap();
    let (left, right) = (python("echo"), python("send $PEER 5"));
    let arguments = ["--config", &file, "--loss", "none", "--left", &left, "--right", &right];
    let (summary, printed) = room.summary(&arguments);
    assert!(printed.contains("right | 1 2 3 4 5\n"), "{printed}");
    assert_eq!(float(&summary["to_left"], "delay_asked_us"), 30_000.0);
    assert_eq!(float(&summary["to_right"], "delay_asked_us"), 3_000.0);
    std::fs::write(&file, "delay = \"30ms\"\nlos = 1\n").unwrap();
    let (line, status) = failure(&room.run(&["--config", &file, "--right", "true"]));
    assert!(line.contains("los: there is no such impairment") && status == 1, "{line}");
}

#[test]
fn paths_in_a_file_are_relative_to_it() {
    let room = Room::new();
    std::fs::create_dir(room.file("paths")).unwrap();
    for (name, content) in [
        ("dsl.toml", "trace = \"dsl.trace\"\n[to-left]\njitter = \"file:measured\"\n"),
        ("dsl.trace", "1\n2\n"),
        ("measured", "1ms\n2ms\n3ms\n"),
    ] {
        std::fs::write(room.path().join("paths").join(name), content).unwrap();
    }
    let output = room
        .command(&["--config", "paths/dsl.toml", "--json", "--right", "true"])
        .current_dir(room.path())
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["to_right"]["impairments"]["trace"], "2 lines, 12.00mbit on average");
    assert_eq!(summary["to_left"]["impairments"]["jitter"], "3 samples");
}

#[test]
fn none_removes_an_impairment_of_the_file() {
    let room = Room::new();
    let file = room.file("all.toml");
    let trace = room.file("trace");
    std::fs::write(&trace, "1\n").unwrap();
    let impairments = [
        ("delay", "1ms"),
        ("jitter", "1ms"),
        ("jitter-order", "reorder"),
        ("loss", "1%"),
        ("duplicate", "1%"),
        ("corrupt", "1%"),
        ("reorder", "1%"),
        ("trace", trace.as_str()),
        ("queue", "5p"),
        ("aqm", "codel"),
        ("ecn", "mark"),
        ("mtu", "1400"),
        ("limit", "5"),
        ("order", "mtu,loss,corrupt,duplicate,rate,reorder,delay"),
    ];
    let lines = impairments.map(|(name, value)| format!("{name} = \"{value}\"\n"));
    std::fs::write(&file, lines.concat()).unwrap();
    let names = impairments.map(|(name, _)| format!("--{name}"));
    let nothing = names.iter().flat_map(|name| [name.as_str(), "none"]);
    let arguments: Vec<&str> =
        ["--config", &file].into_iter().chain(nothing).chain(["--right", "true"]).collect();
    assert_eq!(room.summary(&arguments).0["to_right"]["impairments"], serde_json::json!({}));
    let (summary, _) = room.summary(&["--config", &file, "--right", "true"]);
    assert_eq!(summary["to_right"]["impairments"].as_object().unwrap().len(), impairments.len());
}

#[test]
fn a_picture_is_drawn() {
    let room = Room::new();
    let file = room.file("path.svg");
    let (left, right) = (python("echo"), python("send $PEER 5"));
    room.summary(&["--delay", "1ms", "--plot", &file, "--left", &left, "--right", &right]);
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("Measured delay") && svg.contains("Throughput"));
}
