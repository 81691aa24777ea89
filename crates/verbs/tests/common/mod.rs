//! The library as programs load it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library, and says where it is.
pub(crate) fn library() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-libibverbs");
    let output = Command::new(script).output().expect("scripts/build-libibverbs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}
