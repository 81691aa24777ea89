//! Copies programs into folders that other users can access.

use std::path::Path;
use std::process::Command;

/// Copies a program by a separate process. In this process, the copy's descriptor would be open for writing
/// in children that other tests start meanwhile, and Linux does not execute such a file (ETXTBSY).
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg("--").args([from.as_ref(), to.as_ref()]).status().unwrap();
    assert!(copied.success(), "cp {} {}", from.as_ref().display(), to.as_ref().display());
}
