//! Transfer engines of inference servers, from Python packages: Mooncake, which uses verbs, and NIXL, which bundles its own
//! UCX and libibverbs. `./check --full` installs the packages (120 MB) and sets `NICHROME_PYTHON` to their interpreter.

use std::process::Output;

use crate::applications::{Application, ucx};
use crate::running::{command, ended, turn};

pub(crate) const MOONCAKE: Application = Application {
    name: "Mooncake",
    version: "0.3.13",
    package: "mooncake-transfer-engine-non-cuda",
    operations: "two processes: discovery, WRITE of 1 MiB (`./check --full`)",
    transport: "RC",
};

pub(crate) const NIXL: Application = Application {
    name: "NIXL",
    version: "1.5.1",
    package: "nixl-cu12",
    operations: "two agents with the backend UCX: WRITE of 1 MiB (`./check --full`)",
    transport: "UCX, rc_verbs",
};

/// Runs a script and returns its standard error. Fails if the script fails, or the installed package does not have the
/// table's version.
fn run(script: &str, application: &Application, environment: &[(&str, &str)]) -> String {
    let _turn = turn();
    let python =
        std::env::var("NICHROME_PYTHON").expect("NICHROME_PYTHON names an interpreter with the packages");
    let version = format!("import importlib.metadata as m; print(m.version('{}'))", application.package);
    let output = ended(command(&python, &["-c", &version], &[]).spawn().unwrap(), "the version");
    let installed = String::from_utf8(output.stdout).unwrap();
    assert!(installed.starts_with(application.version), "{installed}, not {}", application.version);

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
    let script = format!("{folder}/{script}");
    let environment = [environment, &[("NICHROME_STATS", "1")]].concat();
    let output = ended(command(&python, &[&script], &environment).spawn().unwrap(), &script);
    let Output { status, stdout, stderr } = output;
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{stderr}");
    assert!(String::from_utf8_lossy(&stdout).ends_with("written\n"), "{stderr}");
    stderr
}

/// Returns the sum of the bytes that the devices of all processes sent, from their statistics.
fn bytes_sent(stderr: &str) -> u64 {
    let sent = stderr
        .lines()
        .filter_map(|line| line.split_once(" bytes sent")?.0.rsplit(' ').next()?.parse::<u64>().ok());
    sent.sum::<u64>()
}

#[test]
#[ignore = "needs Python packages of 50 MB, which ./check --full installs"]
fn mooncake_writes_to_its_peer() {
    let stderr = run("mooncake_write.py", &MOONCAKE, &[]);
    assert!(bytes_sent(&stderr) >= 1 << 20, "{stderr}");
}

#[test]
#[ignore = "needs Python packages of 70 MB, which ./check --full installs"]
fn nixl_writes_to_its_peer() {
    let stderr = run("nixl_write.py", &NIXL, &ucx("rc_v"));
    assert!(bytes_sent(&stderr) >= 1 << 20, "{stderr}");
}
