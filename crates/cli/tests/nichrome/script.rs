//! The script `nichrome` of the repository, which builds and runs the command.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::run::stdout;
use tempfile::tempdir;

/// A `cargo` that prints its folder and arguments to standard error, and builds a program that prints its
/// own.
const CARGO: &str = r#"#!/bin/sh
echo "in $(pwd): $*" >&2
echo '{"reason":"compiler-artifact","executable":null}'
printf '{"reason":"compiler-artifact","executable":"%s/built"}\n' "$(dirname "$0")"
"#;

#[test]
fn a_link_to_the_script_runs_the_command_of_its_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let parent = tempdir().unwrap();
    let folder = parent.path().join("with spaces");
    let [cargo, built, link] = ["cargo", "built", "linked"].map(|name| folder.join(name));
    fs::create_dir(&folder).unwrap();
    for (program, text) in [(&cargo, CARGO), (&built, "#!/bin/sh\necho \"in $(pwd): $*\"\n")] {
        fs::write(program, text).unwrap();
        fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    }
    symlink(root.join("nichrome"), &link).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = Command::new(&link)
        .args(["coalesce", "a b"])
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", "none")
        .current_dir(parent.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&output), format!("in {}: coalesce a b\n", parent.path().display()));
    // Builds in the repository: the caller's folder may have another toolchain and configuration.
    let builds = "build --release --bin nichrome --message-format json-render-diagnostics";
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("in {}: {builds}\n", root.display()));
}
