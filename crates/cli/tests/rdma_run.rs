//! `nichrome rdma run` and `nichrome rdma devices`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that nothing asks for: it is handed on as it is.
fn with_library(folder: &Path) -> PathBuf {
    let library = folder.join("libibverbs.so.1");
    std::fs::write(&library, "").unwrap();
    library
}

fn run(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", "run", "--library"]).arg(library).args(arguments).output().unwrap()
}

/// The only line on the standard error output.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn the_program_is_told_what_the_options_say_and_its_status_is_the_commands() {
    let script = "echo $NICHROME_TRANSPORT $NICHROME_IP $NICHROME_LOSS $NICHROME_STATS; exit 7";
    let output = run(&[
        "--transport",
        "roce",
        "--ip",
        "127.0.0.9",
        "--loss",
        "1%",
        "--stats",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "roce 127.0.0.9 1% 1\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_program_that_cannot_take_the_library_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    let name = program.to_str().unwrap();
    let told = complaint(&run(&["--", name]));
    assert!(told.contains("statically linked"), "{told}");

    let mut bytes = std::fs::read("/bin/true").unwrap();
    bytes[18] = 0xB7;
    std::fs::write(&program, bytes).unwrap();
    let told = complaint(&run(&["--", name]));
    assert!(told.contains("another processor"), "{told}");

    let text = "const char *s = \"/sys/class/infiniband_verbs\"; int main(void) { return *s == 0; }\n";
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("cc").arg("-o").args([&program, &source]).status().unwrap().success());
    let told = complaint(&run(&["--", name]));
    assert!(told.contains("libibverbs of its own linked in"), "{told}");

    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let told = complaint(&run(&["--", name]));
    assert!(told.contains("set-user-ID"), "{told}");
}

#[test]
fn wrong_values_are_refused_before_the_program_runs() {
    for (arguments, status) in [
        (&["--loss", "1x", "--", "true"][..], 2),
        (&["--path-mtu", "1500", "--", "true"], 2),
        (&["--transport", "tcp", "--", "true"], 2),
        (&["--ip", "127.0.0.9", "--iface", "lo", "--", "true"], 2),
        (&["--lose", "1%", "--", "true"], 2),
        (&["--"], 2),
        (&["--", "no-such-program"], 1),
    ] {
        let output = run(arguments);
        complaint(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn places_for_devices_are_listed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    let output = command.args(["rdma", "devices", "--json"]).output().unwrap();
    let places: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = places.as_array().unwrap().iter().any(|place| place["gid"] == "::ffff:127.0.0.1");
    assert!(found, "{places}");
}
