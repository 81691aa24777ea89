//! Tests of `libnichrome-devices.so`: the device in `/sys` and `/dev`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};

/// Runs a program with both libraries preloaded.
fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).envs(common::environment()).envs(environment.iter().copied());
    command.output().unwrap()
}

fn shell(script: &str, environment: &[(&str, &str)]) -> String {
    let output = run(Path::new("/bin/sh"), &["-c", script], environment);
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_c_library_function_that_takes_a_path_finds_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("paths");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/devices/paths.c");
    // Fortified programs call other functions (__open_2, __realpath_chk).
    for fortified in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2"]] {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-o"]).arg(&program).arg(source).args(fortified);
        assert!(compiler.status().unwrap().success());
        let output = run(&program, &[], &[("NICHROME_IP", "127.0.0.9")]);
        assert!(output.status.success(), "{fortified:?}:\n{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn attributes_agree_with_the_verbs() {
    let attribute = |name: &str| {
        let script = format!("cat /sys/class/infiniband/nichrome0/{name}");
        shell(&script, &[("NICHROME_IFACE", "lo")]).trim_end().to_owned()
    };
    let queried = shell("ibv_devinfo -v", &[("NICHROME_IFACE", "lo")]);
    let field = |name: &str| {
        let line = queried.lines().find(|line| line.trim_start().starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap()
    };
    assert_eq!(field("node_guid"), attribute("node_guid"));
    assert_eq!(field("sys_image_guid"), attribute("sys_image_guid"));
    assert_eq!(field("fw_ver"), attribute("fw_ver"));
    assert_eq!(field("link_layer"), attribute("ports/1/link_layer"));
    assert_eq!(field("phys_state"), "LINK_UP (5)");
    assert_eq!(attribute("ports/1/phys_state"), "5: LinkUp");
    assert_eq!(field("state"), "PORT_ACTIVE (4)");
    assert_eq!(attribute("ports/1/state"), "4: ACTIVE");
    assert!(field("active_speed").starts_with("25.0 Gbps"));
    assert!(attribute("ports/1/rate").starts_with("25 Gb/sec"));
    assert_eq!(field("GID[  0]"), "::ffff:127.0.0.1, RoCE v2");
    assert_eq!(attribute("ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:7f00:0001");
    assert_eq!(attribute("ports/1/gid_attrs/types/0"), "RoCE v2");
    assert_eq!(attribute("ports/1/gid_attrs/ndevs/0"), "lo");
    assert_eq!(attribute("ports/1/pkeys/0"), "0xffff");
}

#[test]
fn an_rnic_has_the_gid_table_of_siw() {
    let environment = [("NICHROME_IFACE", "lo"), ("NICHROME_TRANSPORT", "iwarp")];
    let attribute = |name: &str| {
        let script = format!("cat /sys/class/infiniband/nichrome0/{name}");
        shell(&script, &environment).trim_end().to_owned()
    };
    assert_eq!(attribute("node_type"), "4: RNIC");
    assert_eq!(attribute("ports/1/gids/0"), "0200:7f00:0001:0000:0000:0000:0000:0000");
    assert_eq!(attribute("ports/1/gid_attrs/types/0"), "IB/RoCE v1");
    assert_eq!(attribute("ports/1/cap_mask"), "0x00090000");
    let queried = shell("ibv_devinfo -v", &environment);
    let len = queried.lines().find_map(|line| line.trim().strip_prefix("gid_tbl_len:"));
    assert_eq!(len.map(str::trim), Some("1"), "{queried}");
    assert!(queried.contains("iWARP (1)"), "{queried}");
}

#[test]
fn listings_of_parent_folders_are_unchanged() {
    let seen = shell("ls -a /sys/class /dev /sys/devices/platform", &[]);
    let output = Command::new("/bin/sh").args(["-c", "ls -a /sys/class /dev /sys/devices/platform"]).output();
    assert_eq!(seen, String::from_utf8(output.unwrap().stdout).unwrap());
}

#[test]
fn rdma_link_shows_the_device_and_forwards_other_commands() {
    let shown: Vec<_> = ["rdma link show -j", "rdma -j link"].map(|line| shell(line, &[])).into();
    for shown in shown {
        assert!(shown.starts_with("[{\"ifindex\":0,\"ifname\":\"nichrome0\",\"port\":1,"), "{shown}");
        assert!(shown.ends_with("\"netdev\":\"lo\",\"netdev_index\":1}]\n"), "{shown}");
    }
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("rdma");
    std::fs::write(&other, "#!/bin/sh\necho other $*\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&other).status().unwrap().success());
    let script = format!("PATH=$PATH:{}; rdma dev show", folder.path().display());
    let path = format!("{}/bin:{}", common::library().parent().unwrap().display(), folder.path().display());
    assert_eq!(shell(&script, &[("PATH", &format!("{path}:/usr/bin:/bin"))]), "other dev show\n");
}

#[test]
fn common_programs_run_with_the_library() {
    for line in ["bash -c true", "/usr/bin/python3 -c pass", "perl -e 1", "/usr/bin/env true", "dash -c :"] {
        assert_eq!(shell(line, &[]), "");
    }
}
