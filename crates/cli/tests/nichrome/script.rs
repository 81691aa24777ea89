//! The script `nichrome` of the repository, which builds and runs the command.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::run::stdout;
use tempfile::tempdir;

#[test]
fn a_link_to_the_script_runs_the_command_of_its_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = tempdir().unwrap();
    let [cargo, link] = ["cargo", "linked"].map(|name| folder.path().join(name));
    symlink("/bin/echo", &cargo).unwrap();
    symlink(root.join("nichrome"), &link).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(&link).arg("--version").env("PATH", path).output().unwrap();
    let runs = format!("run --quiet --release --manifest-path {}/Cargo.toml --bin nichrome", root.display());
    assert_eq!(stdout(&output).lines().last(), Some(&*format!("{runs} -- --version")), "{output:?}");
}
