//! Process namespaces with the kernel of this machine.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::{ProcessNamespace, gain_network_admin};

fn namespace() -> ProcessNamespace {
    gain_network_admin().unwrap();
    ProcessNamespace::new().unwrap_or_else(|error| panic!("{error}"))
}

fn start(namespace: &ProcessNamespace, line: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
    namespace.spawn(&mut command).unwrap()
}

fn output(namespace: &ProcessNamespace, line: &str) -> String {
    String::from_utf8(start(namespace, line).wait_with_output().unwrap().stdout).unwrap()
}

/// Returns the process IDs, in this namespace, of a process's children.
fn children_of(pid: i32) -> Vec<String> {
    let file = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    file.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn processes_see_their_own_and_no_others() {
    let namespace = namespace();
    let seen = output(
        &namespace,
        "for p in /proc/[0-9]*; do echo ${p#/proc/}; done; [ -d /proc/$$ ] && echo itself",
    );
    let mut lines: Vec<_> = seen.lines().collect();
    assert_eq!((lines.pop(), lines.len()), (Some("itself"), 2), "{seen}");
    assert!(lines.contains(&"1"), "{seen}");
}

#[test]
fn a_directory_and_exit_statuses_are_as_elsewhere() {
    let namespace = namespace();
    assert_eq!(output(&namespace, "pwd -P").trim(), std::env::current_dir().unwrap().to_str().unwrap());
    assert_eq!(start(&namespace, "exit 7").wait().unwrap().code(), Some(7));
    assert!(namespace.spawn(&mut Command::new("/nonexistent")).is_err());
}

#[test]
fn orphans_are_reaped_and_end_with_the_namespace() {
    let namespace = namespace();
    let init = namespace.init().as_raw_nonzero().get();
    let orphans =
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 4711; sleep 4711' >/dev/null &); (sleep 0 >/dev/null &)";
    assert_eq!(output(&namespace, orphans), "");
    let until = Instant::now() + Duration::from_secs(60);
    // A process that has ended is no child any more.
    while children_of(init).len() != 1 && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let [orphan] = children_of(init).try_into().unwrap();
    drop(namespace);
    while fs::exists(format!("/proc/{orphan}/stat")).unwrap() {
        assert!(Instant::now() < until, "{orphan} is there");
        thread::sleep(Duration::from_millis(5));
    }
}
