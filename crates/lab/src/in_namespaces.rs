//! Runs tests in a user namespace if the user may not create network namespaces directly.

use std::env;
use std::process::Command;

use nichrome_port::NetworkNamespace;

/// Runs a test that creates network namespaces: directly for root, else again in a new process and user namespace, by
/// unshare(1). `name` is the test's name with its modules: `module::name_of_the_test`.
///
/// # Panics
/// The test fails, or the system denies user namespaces.
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
