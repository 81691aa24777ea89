//! Programs that tests copy to where other users may run them.

use std::path::Path;
use std::process::Command;

/// Copies a program by a process of its own. A copy made by this one would be open for writing in each child that another
/// test starts meanwhile, and Linux runs no file that is (ETXTBSY).
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg("--").args([from.as_ref(), to.as_ref()]).status().unwrap();
    assert!(copied.success(), "cp {} {}", from.as_ref().display(), to.as_ref().display());
}
