//! Builds the libraries and sets the environment in which programs load them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the libraries, once, and returns the path of `libibverbs.so.1`. If NICHROME_LIBRARY names it, the
/// libraries are built already.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(library) = std::env::var_os("NICHROME_LIBRARY") {
            return library.into();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-libibverbs");
        let output = Command::new(script).arg("test").output().expect("scripts/build-libibverbs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

/// Returns the variables that `nichrome rdma run` sets for every program.
#[allow(dead_code, reason = "not all tests run programs")]
pub(crate) fn environment() -> [(&'static str, String); 3] {
    let folder = library().parent().expect("the library is in a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    [
        ("LD_LIBRARY_PATH", folder.to_string()),
        ("LD_PRELOAD", format!("{folder}/libnichrome-devices.so:{folder}/libibverbs.so.1")),
        ("PATH", format!("{folder}/bin:{path}")),
    ]
}
