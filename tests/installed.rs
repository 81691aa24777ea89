//! Runs installed programs as oracles, for tests of several crates.

use std::io::ErrorKind;
use std::process::{Command, Output};

/// Runs a program of a Debian package; panics if it is not installed or fails.
#[allow(clippy::panic, unreachable_pub)]
pub fn run(command: &mut Command, package: &str) -> Output {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{program} is not installed: apt-get install {package}")
        }
        Err(error) => panic!("{program}: {error}"),
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the lines that tshark prints; panics if a script that it loads has an error.
#[allow(clippy::unwrap_used, unreachable_pub)]
pub fn tshark(arguments: &[&str]) -> Vec<String> {
    let output = run(Command::new("tshark").args(arguments), "tshark");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("Lua"), "tshark: {errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
