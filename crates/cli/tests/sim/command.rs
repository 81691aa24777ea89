//! Runs `nichrome sim`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common;

/// An experiment with the shortest possible runs.
pub(crate) const SHORT: [&str; 5] = ["lro-netfpga-cpu", "--set", "duration=1ms", "--set", "warm-up=0"];

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.arg("sim").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn sim(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Returns the output of a command that must succeed and print nothing on standard error.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = sim(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--json"]].concat())).unwrap()
}

/// Returns the line on standard error, without its prefix, and the exit status.
pub(crate) fn failure(arguments: &[&str]) -> (String, i32) {
    common::failure(&sim(arguments))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the names of a folder's files, including hidden ones.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
