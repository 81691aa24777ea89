//! `nichrome wan` by users who are not root, and by users without the required rights.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::Value;

use crate::programs::copy_program;
use crate::run::{Room, Started, failure, number, python, text};

/// Creates a folder that all users can access, with the command in it.
pub(crate) fn open_room() -> (Room, String) {
    let room = Room::new();
    let nichrome = room.file("nichrome-command");
    copy_program(env!("CARGO_BIN_EXE_nichrome"), &nichrome);
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wan/transfer.py"), room.file("transfer.py"))
        .unwrap();
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o777)).unwrap();
    (room, nichrome)
}

/// Returns a command that runs as another user if this user is root.
pub(crate) fn as_nobody(room: &Room, words: &[&str]) -> Command {
    let other: &[&str] = if geteuid().is_root() {
        &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    } else {
        &["env"]
    };
    let mut command = Command::new(other[0]);
    command.args(&other[1..]).args(words).current_dir(room.path()).stdin(Stdio::null());
    room.prepare(&mut command);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command
}

#[test]
fn users_who_are_not_root_have_hosts_and_a_path_too() {
    let (room, nichrome) = open_room();
    python("echo");
    let (left, right) = ("python3 transfer.py echo", "id -u; python3 transfer.py send $PEER6 3");
    let output = as_nobody(&room, &[&nichrome, "wan", "--delay", "1ms", "--left", left, "--right", right])
        .output()
        .unwrap();
    let user = if geteuid().is_root() { "65534".into() } else { geteuid().as_raw().to_string() };
    assert_eq!(text(&output.stdout), format!("right | {user}\nright | 1 2 3\n"), "{}", text(&output.stderr));
    assert!(output.status.success() && room.is_tidy());
}

#[test]
fn users_who_are_not_root_change_their_paths() {
    let (room, nichrome) = open_room();
    let path = Started::new(&mut as_nobody(&room, &[&nichrome, "wan", "--right", "echo up; sleep 60"]));
    path.wait_for("right | up");
    let output = as_nobody(&room, &[&nichrome, "wan", "set", "--delay", "1ms"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn users_who_are_not_root_have_a_page_in_the_network_that_they_came_from() {
    let (room, nichrome) = open_room();
    let words = [&nichrome, "wan", "--web", "0", "--right", "echo up; sleep 60"];
    let path = Started::new(&mut as_nobody(&room, &words));
    let url = path.wait_for("nichrome: page at http://");
    path.wait_for("right | up");
    let address = url.trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /state HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// The limit of 0 applies to a new user namespace; other processes are not affected.
#[test]
fn a_refused_namespace_is_reported_with_the_setting_that_allows_it() {
    let (room, nichrome) = open_room();
    let without = "setpriv --bounding-set -all --inh-caps -all --ambient-caps -all";
    let script =
        format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {without} {nichrome} wan --right true");
    let output =
        as_nobody(&room, &["unshare", "--user", "--map-root-user", "sh", "-c", &script]).output().unwrap();
    let (line, status) = failure(&output);
    assert!(line.starts_with("the kernel refuses a user namespace ("), "{line}");
    assert!(
        line.ends_with("'sudo sysctl user.max_user_namespaces=10000' allows it, or run this as root"),
        "{line}"
    );
    assert!(status == 1 && room.is_tidy());
}

/// The limit applies to the user of the outer namespace; that user's inner namespace has the capabilities.
#[test]
fn a_refused_network_namespace_is_reported_with_the_setting_that_allows_it() {
    let (room, nichrome) = open_room();
    for (without, allowing) in
        [("setpriv --bounding-set -all --inh-caps -all --ambient-caps -all", 100_000), ("", 10_000)]
    {
        let script = format!(
            "echo 0 > /proc/sys/user/max_net_namespaces && exec {without} {nichrome} wan --right true"
        );
        let output = as_nobody(&room, &["unshare", "--user", "--map-root-user", "sh", "-c", &script])
            .output()
            .unwrap();
        let (line, status) = failure(&output);
        assert!(line.starts_with("the kernel refuses a network namespace ("), "{line}");
        let setting = format!("'sudo sysctl user.max_net_namespaces={allowing}' allows it");
        assert!(line.ends_with(&setting), "{line}");
        assert!(status == 1 && room.is_tidy());
    }
}

/// At every limit of threads and processes, nothing panics and nothing is left.
#[test]
fn a_failure_to_start_threads_is_one_line() {
    let (room, nichrome) = open_room();
    let capture = room.file("path.pcapng");
    let few = |most: usize| {
        let limit = format!("--nproc={most}");
        let command = ["prlimit", &limit, &nichrome, "wan", "--capture", &capture, "--right", "true"];
        as_nobody(&room, &command).output().unwrap()
    };
    for output in (0..16).map(few).filter(|output| !output.status.success()) {
        let stderr = text(&output.stderr);
        // A path continues without the thread of its control socket; that is a warning.
        let errors: Vec<_> = stderr.lines().filter(|line| !line.starts_with("nichrome: warning: ")).collect();
        assert!(errors.len() == 1 && errors[0].starts_with("nichrome: cannot "), "{stderr}");
        assert!(errors[0].ends_with("Resource temporarily unavailable (os error 11)"), "{stderr}");
        assert!(output.status.code() == Some(1) && room.is_tidy(), "{stderr}");
    }
    assert!(!few(0).status.success());
}

#[test]
fn a_full_disk_ends_the_capture_but_not_the_summary() {
    let (room, nichrome) = open_room();
    let (left, right) = ("python3 transfer.py serve 1000000", "python3 transfer.py fetch $PEER 1000000");
    let script = format!(
        "mkdir full && mount -t tmpfs -o size=64k none full && \
         exec {nichrome} wan --json --capture full/path.pcapng --left '{left}' --right '{right}'"
    );
    let words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script];
    let output = as_nobody(&room, &words).output().unwrap();
    let stderr = text(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
    assert!(number(&summary["to_right"], "bytes_delivered") > 1_000_000, "{summary}");
    let last = "nichrome: cannot write full/path.pcapng: No space left on device (os error 28)\n";
    assert!(stderr.ends_with(last) && output.status.code() == Some(1), "{stderr}");
}

#[test]
fn interfaces_of_the_machine_are_refused_with_the_capability_that_is_missing() {
    let (room, nichrome) = open_room();
    // The script has the capabilities to create the interfaces, and drops them before it starts the path.
    let script = format!(
        "ip link add eth7 up type veth peer name eth8 && ip link set eth8 up && \
         exec setpriv --bounding-set -all --inh-caps -all {nichrome} wan --between eth7 eth8"
    );
    let words = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", &script];
    let output = as_nobody(&room, &words).output().unwrap();
    let (line, status) = failure(&output);
    assert!(line.contains("CAP_NET_RAW"), "{line}");
    assert_eq!(status, 1);
}
