//! Communication libraries that look for the device in `/sys` and `/dev` before they call libibverbs: UCX, OpenMPI, MPICH,
//! pyverbs. docs/verbs.md has a table of them, which a test compares with these constants.

use std::path::Path;
use std::process::Command;

use crate::running::{both_ends, command, ended, is_installed, turn};
use crate::transfer_engines::{MOONCAKE, NIXL};

/// A row of the table in docs/verbs.md.
pub(crate) struct Application {
    pub(crate) name: &'static str,
    /// Prefix of the package's version.
    pub(crate) version: &'static str,
    /// Package of Debian 12 or of Python.
    pub(crate) package: &'static str,
    /// The programs or operations that the test runs.
    pub(crate) operations: &'static str,
    pub(crate) transport: &'static str,
}

const UCX: Application = Application {
    name: "UCX",
    version: "1.13.1",
    package: "ucx-utils",
    operations: "`ucx_info -d`; `ucx_perftest`: tag, stream, active messages, put, get, atomics",
    transport: "rc_verbs, ud_verbs",
};

const OPENMPI: Application = Application {
    name: "OpenMPI",
    version: "4.1.4",
    package: "openmpi-bin",
    operations: "two ranks: a ring of messages, put, get, fetch-and-add (`pml ucx`, `osc ucx`)",
    transport: "UCX, rc_verbs",
};

const MPICH: Application = Application {
    name: "MPICH",
    version: "4.0.2",
    package: "mpich",
    operations: "two ranks: a ring of messages, put, get, fetch-and-add (`ch4:ucx`)",
    transport: "UCX, rc_verbs",
};

const PYVERBS: Application = Application {
    name: "pyverbs",
    version: "44.0",
    package: "python3-pyverbs",
    operations: "discovery: `rdma link show -j`, `/sys`, the list of devices; its own tests",
    transport: "RC, UC, UD, SRQ",
};

const OF_DEBIAN: [Application; 4] = [UCX, OPENMPI, MPICH, PYVERBS];

const OF_PYTHON: [Application; 2] = [MOONCAKE, NIXL];

/// Returns the variables that `nichrome rdma run` sets for UCX, and those that select the device and `transport`.
pub(crate) const fn ucx(transport: &'static str) -> [(&'static str, &'static str); 4] {
    [
        ("UCX_TLS", transport),
        ("UCX_NET_DEVICES", "nichrome0:1"),
        ("UCX_FENCE_MODE", "weak"),
        ("UCX_WARN_UNUSED_ENV_VARS", "n"),
    ]
}

#[test]
fn ucx_lists_the_device_with_both_transports() {
    if !is_installed("ucx_info", UCX.package) {
        return;
    }
    let output = ended(command("ucx_info -d", &[], &[]).spawn().unwrap(), "ucx_info");
    let text = String::from_utf8(output.stdout).unwrap();
    let of_device: Vec<_> =
        text.split("Memory domain: ").filter(|part| part.starts_with("nichrome0")).collect();
    assert_eq!(of_device.len(), 1, "{text}");
    for expected in
        ["Transport: rc_verbs", "Transport: ud_verbs", "Device: nichrome0:1", "put_short", "get_zcopy"]
    {
        assert!(of_device[0].contains(expected), "{expected} in {}", of_device[0]);
    }
}

#[test]
fn ucx_moves_messages_over_both_transports() {
    if is_installed("ucx_perftest", UCX.package) {
        for transport in ["rc_v", "ud_v"] {
            for test in ["tag_lat", "tag_bw", "stream_bw", "ucp_am_bw"] {
                for size in ["64", "65536"] {
                    let line = format!("ucx_perftest -t {test} -n 100 -w 10 -s {size}");
                    both_ends(&line, &[], &ucx(transport));
                }
            }
        }
    }
}

#[test]
fn ucx_accesses_remote_memory() {
    if is_installed("ucx_perftest", UCX.package) {
        for (test, size) in [
            ("ucp_put_lat", "8"),
            ("ucp_put_bw", "65536"),
            ("ucp_get", "65536"),
            ("ucp_add", "8"),
            ("ucp_fadd", "8"),
            ("ucp_swap", "8"),
            ("ucp_cswap", "8"),
        ] {
            both_ends(&format!("ucx_perftest -t {test} -n 100 -w 10 -s {size}"), &[], &ucx("rc_v"));
        }
    }
}

/// Builds ring.c and runs it with two ranks.
fn ring(compiler: &str, launcher: &str) {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ring");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/ring.c");
    assert!(Command::new(compiler).arg("-o").arg(&program).arg(source).status().unwrap().success());
    let environment = [&ucx("rc_v,self")[..], &[("NICHROME_STATS", "1")]].concat();
    let output =
        ended(command(launcher, &[program.to_str().unwrap()], &environment).spawn().unwrap(), launcher);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{launcher}: {stderr}");
    // The statistics of each rank's device. The ring sends over 5 MB; any other use of the device sends less.
    let sent =
        stderr.lines().filter_map(|line| line.split_once(" bytes sent")?.0.rsplit(' ').next()?.parse().ok());
    let devices: Vec<u64> = sent.filter(|bytes| *bytes > 5_000_000).collect();
    assert_eq!(devices.len(), 2, "{stderr}");
}

#[test]
fn openmpi_runs_over_ucx() {
    if is_installed("mpirun.openmpi", OPENMPI.package) && is_installed("mpicc.openmpi", "libopenmpi-dev") {
        let options = "--allow-run-as-root --oversubscribe -n 2 --mca pml ucx --mca osc ucx";
        ring("mpicc.openmpi", &format!("mpirun.openmpi {options}"));
    }
}

#[test]
fn mpich_runs_over_ucx() {
    if is_installed("mpirun.mpich", MPICH.package) && is_installed("mpicc.mpich", "libmpich-dev") {
        ring("mpicc.mpich", "mpirun.mpich -n 2");
    }
}

/// How later releases of pyverbs' tests find a device with a network interface.
const DISCOVERY: &str = "\
import json, subprocess
from pyverbs import device
links = json.loads(subprocess.check_output(['rdma', 'link', 'show', '-j']))
named = {link['ifname']: link['netdev'] for link in links}
for found in device.get_device_list():
    name = found.name.decode()
    with device.Context(name=name) as context:
        entry = context.query_gid_ex(1, 0)
        index = open('/sys/class/net/' + named[name] + '/ifindex').read()
        assert entry.ndev_ifindex == int(index), entry
        pkey = open('/sys/class/infiniband/' + name + '/ports/1/pkeys/0').read()
        assert int(pkey, 16) == context.query_pkey(1, 0), pkey
    print(name, named[name])
";

#[test]
fn pyverbs_finds_the_device() {
    if !Path::new("/usr/lib/python3/dist-packages/pyverbs").exists() {
        assert!(std::env::var_os("CI").is_none(), "CI needs Debian's package {}", PYVERBS.package);
        return;
    }
    let output = ended(command("/usr/bin/python3 -c", &[DISCOVERY], &[]).spawn().unwrap(), "pyverbs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nichrome0 lo\n");
}

#[test]
fn the_table_in_the_documentation_lists_the_tested_applications() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verbs.md");
    let document = std::fs::read_to_string(document).unwrap();
    for Application { name, version, operations, transport, .. } in OF_DEBIAN.iter().chain(&OF_PYTHON) {
        let row = format!("| {name} | {version} | {operations} | {transport} | passes |");
        assert!(document.lines().any(|line| line == row), "docs/verbs.md must have this row:\n{row}");
    }
    let rows = document.lines().skip_while(|line| !line.starts_with("| program | version |")).skip(2);
    assert_eq!(
        rows.take_while(|line| line.starts_with('|')).count(),
        OF_DEBIAN.len() + OF_PYTHON.len(),
        "the table has a row that no test runs"
    );
    let is_debian_12 =
        std::fs::read_to_string("/etc/debian_version").is_ok_and(|version| version.starts_with("12"));
    for Application { version, package, .. } in OF_DEBIAN.iter().filter(|_| is_debian_12) {
        let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().unwrap();
        let installed = String::from_utf8(output.stdout).unwrap();
        assert!(
            installed.is_empty() || installed.starts_with(version),
            "{package} is {installed}, not {version}"
        );
    }
}
