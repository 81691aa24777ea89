//! tshark as an oracle, for tests of several crates.

use std::io;
use std::process::Command;

/// The lines that tshark prints; `None` where there is no tshark and it need not be there.
#[allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, unreachable_pub)]
pub fn tshark(arguments: &[&str]) -> Option<Vec<String>> {
    match Command::new("tshark").args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "CI needs tshark: apt-get install tshark");
            eprintln!("skipped: there is no tshark (apt-get install tshark)");
            None
        }
        Err(error) => panic!("tshark: {error}"),
    }
}
