//! Reads the output of a command.

use std::process::Output;

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).unwrap()
}

/// Returns the single line that a failed run printed on standard error, without its prefix, and the exit
/// status.
pub(crate) fn failure(output: &Output) -> (String, i32) {
    let stderr = text(&output.stderr);
    let is_one_line = stderr.ends_with('\n') && stderr.lines().count() == 1;
    assert!(output.stdout.is_empty() && is_one_line, "{stderr}{}", text(&output.stdout));
    let line = stderr.trim_end().strip_prefix("nichrome: ").expect(&stderr);
    (line.to_owned(), output.status.code().unwrap())
}
