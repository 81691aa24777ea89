//! `scripts/run-tests`, which counts the tests of the executables of a list.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs an executable with this text, and returns whether the script succeeds, and its last output.
fn run(text: &str) -> (bool, String) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("with spaces");
    let [executable, list] = ["executable", "list"].map(|name| folder.join(name));
    fs::create_dir(&folder).unwrap();
    fs::write(&executable, text).unwrap();
    fs::set_permissions(&executable, Permissions::from_mode(0o755)).unwrap();
    fs::write(&list, format!("cli/none\t{}\t{}\n", folder.display(), executable.display())).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/run-tests");
    // TALLY would name the file in which the outer run of the script counts this test.
    let output = Command::new(script).arg("others").arg(&list).env_remove("TALLY").output().unwrap();
    let [printed, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    (output.status.success(), format!("{}\n{said}", printed.lines().last().unwrap_or_default()))
}

#[test]
fn an_executable_in_a_folder_whose_path_has_spaces_is_run() {
    let summary = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
    let (succeeds, said) = run(&format!("#!/bin/sh\necho '{summary}'\n"));
    assert!(succeeds && said == "3 passed, 0 failed, 0 skipped\n", "{said}");
}

#[test]
fn an_executable_that_a_test_has_ended_fails_whatever_its_status() {
    let (succeeds, said) = run("#!/bin/sh\nexit 0\n");
    assert!(!succeeds && said.starts_with("0 passed, 1 failed, 0 skipped\n"), "{said}");
    assert!(said.contains("cli/none: status 0, no summary"), "{said}");
}
