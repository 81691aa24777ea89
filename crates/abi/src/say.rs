//! Lines on standard error, which a program may share with others.

use std::io::{self, Write};

/// Prints lines. They leave in one write, so that those of several processes on one pipe or terminal do not mix.
pub(crate) fn say(lines: &str) {
    let text: String = lines.lines().map(|line| format!("nichrome: {line}\n")).collect();
    // Errors of standard error cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}
