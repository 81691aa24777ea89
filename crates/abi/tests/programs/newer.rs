//! Programs of Debian's next release. `./check --full` runs tests of other modules in its root file system:
//! `scripts/newer-debian`.

use std::process::Command;

use crate::applications::Application;

const EXAMPLES: Application = Application {
    name: "rdma-core's pingpongs",
    version: "65",
    package: "ibverbs-utils",
    operations: "those above, with and without 1 % loss (`./check --full`)",
    transport: "RC, UC, UD, SRQ, XRC",
};

const OF_LIBRDMACM: Application = Application {
    name: "rdma-core's examples of librdmacm",
    version: "65",
    package: "rdmacm-utils",
    operations: "those above except cmtime, over RoCE, with and without packet loss (`./check --full`)",
    transport: "connection manager; RC, UD, multicast",
};

const PERFTEST: Application = Application {
    name: "perftest",
    version: "25.01",
    package: "perftest",
    operations: "those above, with and without 1 % loss (`./check --full`)",
    transport: "RC, UC, UD, SRQ, XRC",
};

const PYVERBS: Application = Application {
    name: "pyverbs",
    version: "65",
    package: "python3-pyverbs",
    operations: "discovery; its own tests (`./check --full`)",
    transport: "RC, UC, UD, SRQ, XRC",
};

const LIBFABRIC: Application = Application {
    name: "libfabric",
    version: "2.1",
    package: "libfabric-bin",
    operations: "`fi_info -p verbs`: discovery (`./check --full`)",
    transport: "UD",
};

pub(crate) const OF_NEWER_DEBIAN: [Application; 5] = [EXAMPLES, OF_LIBRDMACM, PERFTEST, PYVERBS, LIBFABRIC];

#[test]
#[ignore = "runs in the root of scripts/newer-debian: ./check --full"]
fn the_newer_packages_are_those_of_the_documentation() {
    for Application { version, package, .. } in OF_NEWER_DEBIAN {
        let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().unwrap();
        let installed = String::from_utf8(output.stdout).unwrap();
        assert!(installed.starts_with(version), "{package} is {installed}: docs/verbs.md says {version}");
    }
}
