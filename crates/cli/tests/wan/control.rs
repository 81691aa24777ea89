//! `nichrome wan set`, `show` and `exec` on a running path.

use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
use serde_json::{Value, json};

use crate::run::{Room, Started, failure, float, number, python, text};

/// Starts a path over which datagrams go back and forth.
fn pinging(room: &Room) -> Started {
    let path = room.start(&["--delay", "1ms", "--left", &python("echo"), "--right", &python("ping $PEER")]);
    path.wait_for("right | ");
    path
}

#[test]
fn impairments_are_changed_while_the_path_is_in_use() {
    let room = Room::new();
    let path = pinging(&room);
    let output = room.run(&["set", "--to-left", "delay=200ms", "--to-right", "delay=100ms"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    while path.wait_for("right | ").parse::<f64>().unwrap() < 300.0 {}
    let shown: Value = serde_json::from_slice(&room.run(&["show", "--json"]).stdout).unwrap();
    assert!(
        number(&shown["to_right"], "packets") > 0 && float(&shown["to_right"], "delay_max_us") >= 100_000.0
    );
    assert_eq!(shown["to_right"]["impairments"], json!({ "delay": "100ms" }));
    assert!(room.run(&["set", "--loss", "1%", "--to-left", "rate=8mbit"]).status.success());
    let shown = text(&room.run(&["show"]).stdout);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for line in ["to the right to the left", "--delay 100ms 200ms", "--loss 1% 1%", "--rate – 8mbit"] {
        assert!(shown.lines().any(|shown| words(shown) == words(line)), "{line}: {shown}");
    }
    let warned = room.run(&["set", "--to-right", "queue=5p"]);
    let expected = "nichrome: warning: --queue does nothing without --rate or --trace\n";
    assert_eq!((text(&warned.stderr).as_str(), warned.status.code()), (expected, Some(0)));
    let warned = room.run(&["set", "--loss", "0.5"]);
    let expected = "nichrome: warning: --loss 0.5 is 50 %; a number of percent is 0.5%\n";
    assert_eq!((text(&warned.stderr).as_str(), warned.status.code()), (expected, Some(0)));
    let (line, status) = failure(&room.run(&["set", "--loss", "200%"]));
    assert!(line.starts_with("--loss: '200%' is not a valid loss"), "{line}");
    assert_eq!(status, 2);
    let codel = room.run(&["set", "--rate", "1mbit", "--aqm", "codel"]);
    assert!(codel.status.success(), "{}", text(&codel.stderr));
    let mark = room.run(&["set", "--ecn", "mark"]);
    assert!(mark.status.success(), "it goes with what is in force: {}", text(&mark.stderr));
    let (line, status) = failure(&room.run(&["set", "--aqm", "none"]));
    assert!(line.contains("ecn is mark, but the queue is tail-drop") && status == 1, "{line}");
    let (line, status) = failure(&room.run(&["set", "--trace", "/nonexistent"]));
    assert!(line.starts_with("--trace: cannot read /nonexistent") && status == 1, "{line}");
}

/// The content of a pipe, and of standard input, exists for `wan set` only.
#[test]
fn files_of_impairments_are_read_by_the_command_that_names_them() {
    let room = Room::new();
    let _path = pinging(&room);
    let program = env!("CARGO_BIN_EXE_nichrome");
    // 2 MB.
    let script = format!(
        "{program} wan set --trace <(yes 1 | head -1000000) && echo 5ms | {program} wan set --jitter file:/dev/stdin && \
         {program} wan show --json"
    );
    let mut bash = Command::new("timeout");
    bash.args(["100", "bash", "-c", &script]).stdin(Stdio::null());
    room.prepare(&mut bash);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    for direction in ["to_left", "to_right"] {
        let impairments = &shown[direction]["impairments"];
        assert_eq!(impairments["trace"], "1000000 lines, 12000000.00mbit on average", "{shown}");
        assert!(impairments["jitter"].is_string(), "{shown}");
    }
}

/// `wan set` waits for the writer of a FIFO, and the path does not.
#[test]
fn a_path_answers_while_wan_set_waits_for_a_file() {
    let room = Room::new();
    let _path = pinging(&room);
    let fifo = room.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut set = room.command(&["set", "--trace", &fifo]).spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(room.run(&["show"]).status.success());
    std::fs::write(&fifo, "1\n").unwrap();
    assert!(set.wait().unwrap().success());
}

#[test]
fn a_path_that_does_not_run_is_reported() {
    let room = Room::new();
    let nobody = ("no 'nichrome wan' of this user is running".to_owned(), 1);
    assert_eq!(failure(&room.run(&["show"])), nobody);
    assert_eq!(failure(&room.run(&["set", "--loss", "1%"])), nobody);
    assert_eq!(failure(&room.run(&["set", "--loss", "101%"])).1, 2);
    let (line, status) = failure(&room.run(&["show", "--run", "4711"]));
    assert!(
        line.starts_with("process 4711 does not run 'nichrome wan' as this user") && status == 1,
        "{line}"
    );
}

#[test]
fn an_option_selects_one_of_several_paths() {
    let room = Room::new();
    let paths = [pinging(&room), pinging(&room)];
    let (line, _) = failure(&room.run(&["set", "--loss", "1%"]));
    assert!(line.starts_with("several 'nichrome wan' are running: choose one with --run ("), "{line}");
    for path in &paths {
        assert!(line.contains(&path.pid().to_string()), "{line}");
        assert!(room.run(&["set", "--loss", "1%", "--run", &path.pid().to_string()]).status.success());
    }
}

#[test]
fn the_socket_of_a_killed_path_is_ignored() {
    let room = Room::new();
    std::fs::create_dir(room.path().join("nichrome")).unwrap();
    drop(UnixListener::bind(room.path().join("nichrome/wan-4711.sock")).unwrap());
    let path = pinging(&room);
    assert!(room.run(&["show", "--run", &path.pid().to_string()]).status.success());
    assert!(room.run(&["show"]).status.success());
}

/// Between bind(2) and listen(2), a socket refuses connections as that of a killed process does.
#[test]
fn the_socket_of_a_path_that_is_about_to_listen_is_kept() {
    let room = Room::new();
    let folder = room.path().join("nichrome");
    std::fs::create_dir(&folder).unwrap();
    // No process has the highest number.
    let [starting, killed] = [std::process::id(), u32::MAX].map(|pid| folder.join(format!("wan-{pid}.sock")));
    let bound = [&starting, &killed].map(|file| {
        let bound = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&bound, &SocketAddrUnix::new(file).unwrap()).unwrap();
        bound
    });
    assert_eq!(failure(&room.run(&["show"])).0, "no 'nichrome wan' of this user is running");
    assert_eq!([starting, killed].map(|file| file.exists()), [true, false]);
    drop(bound);
}

#[test]
fn more_programs_run_on_the_hosts_of_a_path_in_use() {
    let room = Room::new();
    let _path = pinging(&room);
    for (host, peer) in [("left", "10.0.0.2"), ("right", "10.0.0.1")] {
        let output =
            room.run(&["exec", host, "--", "sh", "-c", "echo $PEER ${SELF} $SELF6; exit 7", "$PEER"]);
        let printed = text(&output.stdout);
        assert!(printed.starts_with(peer) && printed.contains(" fd00::"), "{printed}");
        assert_eq!(output.status.code(), Some(7));
    }
    let interfaces = text(&room.run(&["exec", "right", "--", "cat", "/proc/self/net/dev"]).stdout);
    let names: Vec<_> = interfaces.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert!(names.contains(&"wan") && names.contains(&"lo"), "{interfaces}");
    let missing = room.run(&["exec", "left", "--", "/nonexistent"]);
    let (line, status) = failure(&missing);
    assert!(line.starts_with("cannot run '/nonexistent': ") && status == 127, "{line}");
}
