//! Records for `nichrome rdma doctor` which verbs the program calls to find and open the device and set up
//! connections.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::process;

use crate::cancellation::Uncancelled;
use crate::configuration::DOCTOR;

/// Records a verb, or `open_rdma_cm` for the connection manager's device file: appends a line to the file
/// that `NICHROME_DOCTOR` names, if it is set. Failures are ignored.
pub(crate) fn record(verb: &str) {
    let Some(path) = env::var_os(DOCTOR) else { return };
    let _uncancelled = Uncancelled::begin();
    if let Ok(mut file) = OpenOptions::new().append(true).open(path) {
        // One write(2) per line: the lines of concurrent processes do not interleave.
        let _ = file.write_all(format!("{} verb {verb}\n", process::id()).as_bytes());
    }
}
