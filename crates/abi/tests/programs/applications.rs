//! Communication libraries that look for the device in `/sys` and `/dev` before they call libibverbs: UCX,
//! libfabric, pyverbs. docs/verbs.md has a table of all applications, which a test compares with the
//! constants of these tests.

use std::process::Command;

use crate::connection_manager::OF_LIBRDMACM;
use crate::crates::SIDEWAY;
use crate::manager_users;
use crate::message_passing::{MPI4PY, MPICH, NEW_MPICH, NEW_OPENMPI, OPENMPI, OPENMPI_OVER_LIBFABRIC};
use crate::newer::OF_NEWER_DEBIAN;
use crate::running::{both_ends, command, ended, needs};
use crate::transfer_engines::{MOONCAKE, NCCL, NIXL};

/// A row of the table in docs/verbs.md.
pub(crate) struct Application {
    pub(crate) name: &'static str,
    /// Prefix of the package's version.
    pub(crate) version: &'static str,
    /// Package of Debian or of Python, or crate.
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

const PYVERBS: Application = Application {
    name: "pyverbs",
    version: "44.0",
    package: "python3-pyverbs",
    operations: "discovery: `rdma link show -j`, `/sys`, the list of devices; its own tests",
    transport: "RC, UC, UD, SRQ",
};

const LIBFABRIC: Application = Application {
    name: "libfabric",
    version: "1.17.0",
    package: "libfabric-bin",
    operations: "`fi_info -p verbs`: discovery",
    transport: "UD",
};

const OF_DEBIAN: [Application; 6] = [UCX, OPENMPI, OPENMPI_OVER_LIBFABRIC, MPICH, PYVERBS, LIBFABRIC];

const OF_PYTHON: [Application; 6] = [NEW_OPENMPI, NEW_MPICH, MPI4PY, MOONCAKE, NIXL, NCCL];

const CRATES: [Application; 1] = [SIDEWAY];

/// Returns the variables that `nichrome rdma run` sets for UCX, and those that select the device and
/// `transport`.
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
    needs("ucx_info", UCX.package);
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
    needs("ucx_perftest", UCX.package);
    for transport in ["rc_v", "ud_v"] {
        for test in ["tag_lat", "tag_bw", "stream_bw", "ucp_am_bw"] {
            for size in ["64", "65536"] {
                let line = format!("ucx_perftest -t {test} -n 100 -w 10 -s {size}");
                both_ends(&line, &[], &ucx(transport));
            }
        }
    }
}

#[test]
fn ucx_accesses_remote_memory() {
    needs("ucx_perftest", UCX.package);
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

#[test]
fn libfabric_lists_the_device() {
    needs("fi_info", LIBFABRIC.package);
    let output = ended(command("fi_info -p verbs", &[], &[]).spawn().unwrap(), "fi_info");
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["domain: nichrome0-dgram", "type: FI_EP_DGRAM", "protocol: FI_PROTO_IB_UD"] {
        assert!(text.contains(expected), "{expected} in {text}");
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
    let output = ended(command("/usr/bin/python3 -c", &[DISCOVERY], &[]).spawn().unwrap(), "pyverbs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nichrome0 lo\n");
}

#[test]
fn the_table_in_the_documentation_lists_the_tested_applications() {
    let all: Vec<_> = OF_DEBIAN
        .iter()
        .chain(&OF_LIBRDMACM)
        .chain(&manager_users::OF_LIBRDMACM)
        .chain(&OF_NEWER_DEBIAN)
        .chain(&OF_PYTHON)
        .chain(&CRATES)
        .collect();
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verbs.md");
    let document = std::fs::read_to_string(document).unwrap();
    for Application { name, version, operations, transport, .. } in &all {
        let row = format!("| {name} | {version} | {operations} | {transport} | passes |");
        assert!(document.lines().any(|line| line == row), "docs/verbs.md must have this row:\n{row}");
    }
    let rows = document.lines().skip_while(|line| !line.starts_with("| program | version |")).skip(2);
    assert_eq!(
        rows.take_while(|line| line.starts_with('|')).count(),
        all.len(),
        "the table has a row that no test runs"
    );
    let is_debian_12 =
        std::fs::read_to_string("/etc/debian_version").is_ok_and(|version| version.starts_with("12"));
    let of_debian = OF_DEBIAN.iter().chain(&OF_LIBRDMACM).chain(&manager_users::OF_LIBRDMACM);
    for Application { version, package, .. } in of_debian.filter(|_| is_debian_12) {
        let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().unwrap();
        let installed = String::from_utf8(output.stdout).unwrap();
        assert!(
            installed.is_empty() || installed.starts_with(version),
            "{package} is {installed}, not {version}"
        );
    }
}
