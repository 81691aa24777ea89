//! Crates that wrap libibverbs, with the tests that their packages have.

use std::process::Command;

use crate::applications::Application;
use crate::packages::{installed, run};
use crate::running::turn;

pub(crate) const SIDEWAY: Application = Application {
    name: "sideway",
    version: "0.4.3",
    package: "sideway",
    operations: "its own 68 tests; its examples show_gids and ibv_devinfo (`./check --full`)",
    transport: "RC, UD",
};

/// Where the packages are built.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/crates/target");

/// Runs cargo on a package and returns what it printed.
fn cargo(manifest: &str, arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    // Paths below the working folder would be printed relative to it.
    cargo.args(arguments).args(["--manifest-path", manifest, "--target-dir", TARGET]).current_dir("/tmp");
    let output = cargo.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    stderr
}

/// Builds tests of a package and returns the paths of the programs.
fn tests(manifest: &str, targets: &[&str]) -> Vec<String> {
    let printed = cargo(manifest, &[&["test", "--no-run"], targets].concat());
    let programs = printed.lines().filter(|line| line.trim_start().starts_with("Executable"));
    programs.filter_map(|line| Some(line.rsplit_once('(')?.1.strip_suffix(')')?.to_owned())).collect()
}

/// Returns the number of tests that passed, from the output of a test program.
fn passed(stdout: &[u8]) -> Option<usize> {
    let stdout = String::from_utf8_lossy(stdout);
    let (_, result) = stdout.rsplit_once("test result: ok. ")?;
    result.split(' ').next()?.parse().ok()
}

#[test]
#[ignore = "needs a crate, which ./check --full fetches"]
fn the_tests_of_sideway_pass() {
    let _turn = turn();
    let manifest = installed("NICHROME_SIDEWAY");
    assert!(manifest.contains(&format!("sideway-{}", SIDEWAY.version)), "{manifest}");
    let files = ["test_atomic", "test_cq", "test_mr_and_cq", "test_post_send", "test_qp"];
    let targets: Vec<_> =
        ["--lib"].into_iter().chain(files.iter().flat_map(|file| ["--test", file])).collect();
    let programs = tests(&manifest, &targets);
    assert_eq!(programs.len(), 1 + files.len());
    let passed =
        programs.iter().map(|program| passed(&run(program, &[], &[]).stdout).unwrap()).sum::<usize>();
    assert_eq!(passed, 68);
    cargo(&manifest, &["build", "--examples"]);
    for example in ["show_gids", "ibv_devinfo"] {
        let output = run(&format!("{TARGET}/debug/examples/{example}"), &[], &[]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("nichrome0"), "{example}");
    }
}
