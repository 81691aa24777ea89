//! `nichrome demo` in a shell with job control.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::needs_namespaces;

/// Several of the measurements of `demo --quick`, of which each reports its errors when it ends.
const STOPPING: Duration = Duration::from_secs(4);

#[test]
fn a_stopped_demo_continues() {
    needs_namespaces!("demo::a_stopped_demo_continues");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    let mut demo =
        command.args(["demo", "--quick"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&demo);
    let start = Instant::now();
    while start.elapsed() < STOPPING && demo.try_wait().unwrap().is_none() {
        for signal in [Signal::STOP, Signal::CONT] {
            kill_process(pid, signal).unwrap();
            thread::sleep(Duration::from_millis(50));
        }
    }
    let running = demo.try_wait().unwrap().is_none();
    demo.kill().unwrap();
    let output = demo.wait_with_output().unwrap();
    assert!(running, "{}", String::from_utf8_lossy(&output.stderr));
}
