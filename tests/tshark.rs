//! tshark as an oracle, for tests of several crates.

use std::process::Command;

/// Returns the lines that tshark prints.
#[allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]
pub fn tshark(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("tshark").args(arguments).output().expect("the tests need tshark");
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
