//! `nichrome demo`: its measurements with impairments, and signals of a shell with job control.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::lab::needs_namespaces;

/// Duration of several measurements of `demo --quick`, each of which reports its errors when it ends.
const STOPPING: Duration = Duration::from_secs(4);

#[test]
fn only_what_passes_the_impaired_path_is_measured_with_impairments() {
    needs_namespaces!("demo::only_what_passes_the_impaired_path_is_measured_with_impairments");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    let output = command.args(["demo", "--quick", "--delay", "1ms", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let profiles: Vec<_> =
        report["runs"].as_array().unwrap().iter().filter_map(|run| run["profile"].as_str()).collect();
    assert!(profiles.contains(&"gro") && !profiles.contains(&"kernel-gro"), "{profiles:?}");
    assert_eq!(report["unsegmented"], json!([]), "{report}");
}

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
