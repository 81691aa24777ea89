//! Runs tests in a user namespace if the user may not create network namespaces directly.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::{self, Command};

use nichrome_port::NetworkNamespace;

/// Environment variable of the new process: the path of the file to which a passed test writes its name.
const WITHIN: &str = "NICHROME_LAB_WITHIN";

/// Runs a test that creates network namespaces: directly for root, else again in a new process and user
/// namespace, by unshare(1). `name` is the test's name with its modules: `module::name_of_the_test`.
///
/// # Panics
/// The test fails, the executable has no test of this name that is not ignored, or the system denies user
/// namespaces.
pub fn in_namespaces(name: &str, test: impl FnOnce()) {
    if NetworkNamespace::new().is_ok() {
        test();
        if let Some(record) = env::var_os(WITHIN) {
            record_run(&record, name);
        }
        return;
    }
    assert!(env::var_os(WITHIN).is_none(), "{name}: no network namespaces, not even in a user namespace");
    in_user_namespace(name);
}

/// Runs the test `name` of this executable in a new process and user namespace.
#[allow(clippy::panic)]
fn in_user_namespace(name: &str) {
    let record = env::temp_dir().join(format!("nichrome-{}-{name}", process::id()));
    // A killed process with the same PID may have left the file.
    _ = fs::remove_file(&record);
    // Fails if the file exists: tests must not write to a file of another user.
    if let Err(error) = File::create_new(&record) {
        panic!("{name}: cannot create {}: {error}", record.display());
    }
    let status = env::current_exe().and_then(|tests| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .arg(tests)
            .args([name, "--exact", "--nocapture"])
            .env(WITHIN, &record)
            .status()
    });
    // libtest ends with status 0 also if no test has the name.
    let has_run = fs::read_to_string(&record).is_ok_and(|recorded| recorded == name);
    _ = fs::remove_file(&record);
    match status {
        Ok(status) if status.success() && has_run => {}
        Ok(status) if status.success() => {
            panic!("{name}: no test of this name has run: it needs the test's modules too")
        }
        Ok(status) => panic!("{name}: {status}"),
        Err(error) => panic!("{name}: unshare(1), of util-linux, cannot be run: {error}"),
    }
}

/// Writes the name of a passed test to the file that the waiting process checks.
#[allow(clippy::panic)]
fn record_run(record: &OsStr, name: &str) {
    let written =
        OpenOptions::new().write(true).open(record).and_then(|mut file| file.write_all(name.as_bytes()));
    if let Err(error) = written {
        panic!("{name}: cannot write {}: {error}", record.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_again_in_a_user_namespace() {
        const NAME: &str = "in_namespaces::tests::a_test_runs_again_in_a_user_namespace";
        if env::var_os(WITHIN).is_none() {
            return in_user_namespace(NAME);
        }
        in_namespaces(NAME, || ());
    }

    #[test]
    #[should_panic(expected = "no::such_test: no test of this name has run")]
    fn a_name_without_a_test_fails() {
        in_user_namespace("no::such_test");
    }
}
