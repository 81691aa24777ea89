//! Transfer engines of inference servers, as their Python packages ship them: Mooncake, which uses verbs, and NIXL, which
//! brings a UCX and a libibverbs of its own. The packages have 120 MB: `./check --full` installs them, and names their
//! interpreter in `NICHROME_PYTHON`.

use std::process::Output;

use crate::applications::{Application, ucx};
use crate::running::{command, ended, turn};

pub(crate) const MOONCAKE: Application = Application {
    name: "Mooncake",
    version: "0.3.13",
    package: "mooncake-transfer-engine-non-cuda",
    what: "two processes: discovery, WRITE of 1 MiB (`./check --full`)",
    transport: "RC",
};

pub(crate) const NIXL: Application = Application {
    name: "NIXL",
    version: "1.5.1",
    package: "nixl-cu12",
    what: "two agents with the backend UCX: WRITE of 1 MiB (`./check --full`)",
    transport: "UCX, rc_verbs",
};

/// Runs a script, and returns what it printed if it succeeded and the installed package has the version of the table.
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
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{said}");
    assert!(String::from_utf8_lossy(&stdout).ends_with("written\n"), "{said}");
    said
}

/// The bytes that the devices of all processes sent.
fn bytes_sent(said: &str) -> u64 {
    let sent = said
        .lines()
        .filter_map(|line| line.split_once(" bytes sent")?.0.rsplit(' ').next()?.parse::<u64>().ok());
    sent.sum::<u64>()
}

#[test]
#[ignore = "needs Python packages of 50 MB, which ./check --full installs"]
fn mooncake_writes_to_its_peer() {
    let said = run("mooncake_write.py", &MOONCAKE, &[]);
    assert!(bytes_sent(&said) >= 1 << 20, "{said}");
}

#[test]
#[ignore = "needs Python packages of 70 MB, which ./check --full installs"]
fn nixl_writes_to_its_peer() {
    let said = run("nixl_write.py", &NIXL, &ucx("rc_v"));
    assert!(bytes_sent(&said) >= 1 << 20, "{said}");
}
