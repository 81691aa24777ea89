//! Programs from Python packages and from crates, which `./check --full` installs and names by environment
//! variables.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::applications::Application;
use crate::running::{command, ended};

/// An environment with Python packages.
pub(crate) struct Python {
    bin: PathBuf,
}

impl Python {
    /// Returns the environment whose interpreter `variable` names.
    pub(crate) fn of(variable: &str) -> Self {
        let interpreter = PathBuf::from(installed(variable));
        Self { bin: interpreter.parent().expect("an interpreter is in a folder").to_owned() }
    }

    /// Returns the path of a program of the environment.
    pub(crate) fn program(&self, name: &str) -> String {
        self.bin.join(name).to_str().unwrap().to_owned()
    }

    /// Fails if the installed package does not have the table's version.
    pub(crate) fn check_version(&self, application: &Application) {
        let script = format!("import importlib.metadata as m; print(m.version('{}'))", application.package);
        let python = self.program("python3");
        let output = ended(command(&python, &["-c", &script], &[]).spawn().unwrap(), "the version");
        let installed = String::from_utf8(output.stdout).unwrap();
        assert!(installed.starts_with(application.version), "{installed}, not {}", application.version);
    }
}

/// Returns the path that `variable` holds.
pub(crate) fn installed(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("./check --full sets {variable}"))
}

/// Returns the path of a test or C source of this folder.
pub(crate) fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    folder.join(name).to_str().unwrap().to_owned()
}

/// Runs a program, which must succeed, and returns its output. Its devices print their statistics.
pub(crate) fn run(line: &str, more: &[&str], environment: &[(&str, &str)]) -> Output {
    let environment = [environment, &[("NICHROME_STATS", "1")]].concat();
    let output = ended(command(line, more, &environment).spawn().unwrap(), line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the bytes that each device sent, from the statistics in a standard error output.
pub(crate) fn bytes_sent(stderr: &[u8]) -> Vec<u64> {
    let stderr = String::from_utf8_lossy(stderr);
    let sent = stderr
        .lines()
        .filter_map(|line| line.split_once(" bytes sent")?.0.rsplit(' ').next()?.parse::<u64>().ok());
    sent.collect()
}
