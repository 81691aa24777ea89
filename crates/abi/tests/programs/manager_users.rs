//! Libraries and programs that connect by librdmacm: uDAPL, UCX's rdmacm, QEMU's migration.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::applications::{Application, ucx};
use crate::connection_manager::{IWARP, Pair, SERVER, run};
use crate::namespaces::between_namespaces;
use crate::packages::{self, bytes_sent, source};
use crate::running::{needs, turn};

const DAPL: Application = Application {
    name: "uDAPL",
    version: "2.1.10",
    package: "dapl2-utils",
    operations: "dtest, dtestcm, dtestsrq, dtestx, dapltest",
    transport: "connection manager; RC; iWARP",
};

const UCX_SOCKADDR: Application = Application {
    name: "UCX",
    version: "1.13.1",
    package: "libucx-dev",
    operations: "ucp_client_server with `UCX_SOCKADDR_TLS_PRIORITY=rdmacm`: streams, tags, active messages",
    transport: "connection manager; rc_verbs",
};

const QEMU: Application = Application {
    name: "QEMU",
    version: "1:7.2",
    package: "qemu-system-x86",
    operations: "`migrate rdma:` of a guest with 64 MiB, with and without `rdma-pin-all`",
    transport: "connection manager; RC; iWARP",
};

const ISER: Application = Application {
    name: "tgt with libiscsi 1.19.0",
    version: "1:1.0.85",
    package: "tgt",
    operations: "iSER: `iscsi-inq`, `iscsi-readcapacity16`",
    transport: "connection manager; RC; iWARP",
};

const FI_PINGPONG: Application = Application {
    name: "libfabric's fi_pingpong",
    version: "1.17.0",
    package: "libfabric-bin",
    operations: "between two network namespaces: `verbs` with endpoints of messages and of datagrams, `verbs;ofi_rxm`",
    transport: "connection manager; RC, UD",
};

pub(crate) const OF_LIBRDMACM: [Application; 5] = [DAPL, UCX_SOCKADDR, QEMU, ISER, FI_PINGPONG];

/// uDAPL's adapter: clients of dtest open the one that their server names.
const ADAPTER: &str = "nichrome u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"127.77.0.2 0\" \"\"\n";

const TESTS_OF_DAPL: &[Pair<'_>] = &[
    Pair("dtest -P nichrome -s -B 50", "dtest -P nichrome -B 50 -h @"),
    Pair("dtestcm -P nichrome -s -c 100", "dtestcm -P nichrome -c 100 -h @"),
    Pair("dtestsrq -P nichrome -s", "dtestsrq -P nichrome -h @"),
    Pair("dtestx -P nichrome -s", "dtestx -P nichrome -h @"),
    Pair(
        "!dapltest -T S -D nichrome",
        "dapltest -T T -s @ -D nichrome -i 20 -t 2 -w 2 -V client SR 256 1 server SR 256 1 client RR 4096 2 server RW 4096 2",
    ),
    Pair("!dapltest -T S -D nichrome", "dapltest -T P -s @ -D nichrome -i 100 RW 4096 2"),
];

#[test]
fn the_tests_of_dapl_run() {
    needs("dtest", DAPL.package);
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("dat.conf");
    fs::write(&configuration, ADAPTER).unwrap();
    let environment = [("DAT_OVERRIDE", configuration.to_str().unwrap()), ("NICHROME_IP", SERVER)];
    TESTS_OF_DAPL.iter().for_each(|pair| run(pair, &environment));
    // uDAPL has its extensions, of which dtestx is the test, for InfiniBand and RoCE only.
    let can = |Pair(server, _): &&Pair<'_>| !server.starts_with("dtestx");
    TESTS_OF_DAPL.iter().filter(can).for_each(|pair| run(pair, &[&environment[..], &[IWARP]].concat()));
}

#[test]
fn ucx_connects_by_addresses_of_sockets() {
    let example = Path::new("/usr/share/doc/libucx-dev/examples/ucp_client_server.c");
    assert!(example.exists(), "the tests need Debian's package {}", UCX_SOCKADDR.package);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ucp_client_server");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(&program).arg(example).args(["-lucp", "-lucs"]);
    assert!(compiler.status().unwrap().success());
    let environment = [&ucx("rc_v")[..], &[("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm")]].concat();
    for interface in ["stream", "tag", "am"] {
        for size in [16, 100_000] {
            let line = format!("{} -c {interface} -s {size} -i 10", program.display());
            let (server, client) = (format!("!{line} -l @"), format!("{line} -a @"));
            run(&Pair(&server, &client), &environment);
        }
    }
}

#[test]
fn qemu_migrates_a_guest() {
    needs("qemu-system-x86_64", QEMU.package);
    let _turn = turn();
    for transport in ["roce", "iwarp"] {
        for pinned in ["unpinned", "pinned"] {
            let environment = [("NICHROME_TRANSPORT", transport)];
            let script = [source("qemu_migrate.py"), pinned.to_owned()];
            let output =
                packages::run("/usr/bin/python3", &script.each_ref().map(String::as_str), &environment);
            // With `rdma-pin-all` QEMU sends every page. Without, it omits pages of zeros, which are most of
            // this guest's.
            let least = if pinned == "pinned" { 64 << 20 } else { 256 << 10 };
            let sent = bytes_sent(&output.stderr);
            assert!(sent.iter().any(|bytes| *bytes >= least), "{transport}, {pinned}: {sent:?}");
        }
    }
}

/// tgtd receives signals by signalfd: a signal must not end the process by reaching a thread of the adapter.
#[test]
fn a_disk_is_served_over_iser() {
    needs("iscsi-inq", "libiscsi-bin");
    assert!(Path::new("/usr/sbin/tgtd").exists(), "the tests need Debian's package {}", ISER.package);
    let _turn = turn();
    for transport in ["roce", "iwarp"] {
        packages::run("/usr/bin/python3", &[&source("iser.py")], &[("NICHROME_TRANSPORT", transport)]);
    }
}

/// A process with endpoints of datagrams ends by connecting to its own name server over the loopback
/// interface.
#[test]
fn libfabric_connects_between_two_namespaces() {
    needs("fi_pingpong", FI_PINGPONG.package);
    for endpoint in ["verbs -e msg", "verbs -e dgram", "verbs;ofi_rxm -e rdm"] {
        between_namespaces(&format!("fi_pingpong -p {endpoint}"));
    }
}
