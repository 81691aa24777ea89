//! Tests of users who may not make network namespaces as they are.

use std::env;
use std::process::Command;

use nichrome_port::NetworkNamespace;

/// Runs a test where network namespaces can be made: here, as root is able to, else once more in a process of its own and in a user
/// namespace, by unshare(1). `name` is the test's, with its modules: `module::name_of_the_test`.
///
/// # Panics
/// The test fails, or this user may not have user namespaces.
#[allow(clippy::panic)]
pub fn in_namespaces(name: &str, test: impl FnOnce()) {
    const WITHIN: &str = "NICHROME_LAB_WITHIN";
    if NetworkNamespace::new().is_ok() {
        return test();
    }
    assert!(env::var_os(WITHIN).is_none(), "{name}: no network namespaces, not even in a user namespace");
    let status = env::current_exe().and_then(|tests| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .arg(tests)
            .args([name, "--exact", "--nocapture"])
            .env(WITHIN, "1")
            .status()
    });
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{name}: {status}"),
        Err(error) => panic!("{name}: unshare(1), of util-linux, cannot be run: {error}"),
    }
}
