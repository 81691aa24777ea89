//! `nichrome rdma run --mount`, as root, as another user, and without permission of the kernel.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../abi/tests/common/mod.rs"]
mod common;
#[path = "../common/programs.rs"]
mod programs;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::geteuid;
use tempfile::TempDir;

use self::programs::copy_program;

/// Creates a folder that all users can access, with the command, its libraries, and a statically linked
/// program that looks for the device.
fn room() -> TempDir {
    let room = tempfile::tempdir().unwrap();
    fs::set_permissions(room.path(), Permissions::from_mode(0o777)).unwrap();
    copy_program(env!("CARGO_BIN_EXE_nichrome"), room.path().join("nichrome"));
    let libraries = common::library().parent().unwrap();
    let copied = Command::new("cp").arg("-r").args([libraries, &room.path().join("libibverbs")]).status();
    assert!(copied.unwrap().success());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rdma_mount/finds.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-static", "-o"]).arg(room.path().join("finds")).arg(source);
    assert!(compiler.status().unwrap().success());
    room
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `./nichrome rdma` with these arguments, by a command `before` that may change the user.
fn nichrome(room: &TempDir, before: &[&str], arguments: &[&str]) -> Output {
    let words = [before, &["./nichrome", "rdma"], arguments].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(room.path()).output().unwrap()
}

/// Returns the prefix of a command that runs as another user if this user is root; otherwise no prefix.
fn as_nobody() -> &'static [&'static str] {
    if geteuid().is_root() {
        &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    } else {
        &[]
    }
}

#[test]
fn a_statically_linked_program_finds_the_device_by_any_path() {
    let room = room();
    let refused = nichrome(&room, &[], &["run", "--", "./finds"]);
    assert!(text(&refused.stderr).contains("or use --mount"), "{}", text(&refused.stderr));
    for before in [&[], as_nobody()] {
        let run = ["run", "--mount", "--ip", "127.0.0.9", "--", "./finds"];
        let output = nichrome(&room, before, &run);
        assert_eq!(
            text(&output.stdout),
            "0000:0000:0000:0000:0000:ffff:7f00:0009\n",
            "{}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr), "");
        assert!(output.status.success());
    }
    assert!(!Path::new("/sys/class/infiniband/nichrome0").exists(), "the mounts are the program's");
}

#[test]
fn statically_and_dynamically_linked_programs_find_the_same_rnic() {
    let room = room();
    let device = ["run", "--mount", "--transport", "iwarp", "--ip", "127.0.0.9", "--"];
    let found = |program: &[&str]| {
        let output = nichrome(&room, as_nobody(), &[&device, program].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let gid = found(&["./finds"]);
    assert_eq!(gid, "0200:7f00:0009:0000:0000:0000:0000:0000\n");
    assert_eq!(found(&["cat", "/sys/class/infiniband/nichrome0/ports/1/gids/0"]), gid);
}

#[test]
fn the_doctor_shows_the_mounted_device_too() {
    let output = nichrome(&room(), as_nobody(), &["doctor", "--mount", "--", "./finds"]);
    assert_eq!(text(&output.stdout), "0000:0000:0000:0000:0000:0000:0000:0000\n", "{}", text(&output.stderr));
}

#[test]
fn the_user_and_the_verbs_are_unchanged_in_the_namespace() {
    let room = room();
    for before in [&[], as_nobody()] {
        let words = [before, &["id", "-u"]].concat();
        let user = Command::new(words[0]).args(&words[1..]).output().unwrap();
        let output = nichrome(&room, before, &["run", "--mount", "--", "id", "-u"]);
        assert_eq!(text(&output.stdout), text(&user.stdout), "{}", text(&output.stderr));
        let output = nichrome(&room, before, &["run", "--mount", "--", "ibv_devinfo"]);
        assert!(text(&output.stdout).contains("nichrome0"), "{}", text(&output.stderr));
    }
}

/// The limit applies to a new user namespace only.
#[test]
fn a_forbidden_namespace_is_reported_in_one_line() {
    let without = "setpriv --bounding-set -all --inh-caps -all --ambient-caps -all";
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec {without} ./nichrome rdma run --mount -- true"
    );
    let room = room();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", &script]).current_dir(room.path());
    let output = command.output().unwrap();
    let error = text(&output.stderr);
    assert!(error.starts_with("nichrome: --mount: the kernel refuses a user namespace ("), "{error}");
    assert!(error.contains("sysctl user.max_user_namespaces="), "{error}");
    assert_eq!((error.lines().count(), output.status.code()), (1, Some(1)), "{error}");
}
