//! The record for `nichrome rdma doctor`: the verbs that lead to a connection, as a program calls them.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::process;

use crate::configuration::DOCTOR;

/// Records that the program calls a verb, if the environment names a file for it. Failures are ignored.
pub(crate) fn record(verb: &str) {
    let Some(path) = env::var_os(DOCTOR) else { return };
    if let Ok(mut file) = OpenOptions::new().append(true).open(path) {
        // One call: lines of several processes do not mix.
        let _ = file.write_all(format!("{} verb {verb}\n", process::id()).as_bytes());
    }
}
