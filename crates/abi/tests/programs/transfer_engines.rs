//! Transfer libraries of training and inference, from Python packages: Mooncake, which uses verbs, NIXL,
//! which bundles its own UCX and libibverbs, and NCCL's transport for InfiniBand and RoCE.

use crate::applications::{Application, ucx};
use crate::packages::{Python, bytes_sent, run, source};
use crate::running::turn;

pub(crate) const MOONCAKE: Application = Application {
    name: "Mooncake",
    version: "0.3.13",
    package: "mooncake-transfer-engine-non-cuda",
    operations: "two processes: discovery, WRITE of 1 MiB (`./check --full`)",
    transport: "RC",
};

pub(crate) const NIXL: Application = Application {
    name: "NIXL",
    version: "1.5.1",
    package: "nixl-cu12",
    operations: "two agents with the backend UCX: WRITE of 1 MiB (`./check --full`)",
    transport: "UCX, rc_verbs",
};

pub(crate) const NCCL: Application = Application {
    name: "NCCL",
    version: "2.32.3",
    package: "nvidia-nccl-cu12",
    operations: "its transport NET/IB without a GPU, two processes: discovery, eight messages of 1 MiB (`./check --full`)",
    transport: "RC",
};

/// Runs a script of this folder, whose devices must send at least `least` bytes together.
fn transfers(script: &str, application: &Application, environment: &[(&str, &str)], least: u64) {
    let _turn = turn();
    let python = Python::of("NICHROME_PYTHON");
    python.check_version(application);
    let output = run(&python.program("python3"), &[&source(script)], environment);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("written\n"), "{stderr}");
    assert!(bytes_sent(&output.stderr).iter().sum::<u64>() >= least, "{stderr}");
}

#[test]
#[ignore = "needs Python packages of 50 MB, which ./check --full installs"]
fn mooncake_writes_to_its_peer() {
    transfers("mooncake_write.py", &MOONCAKE, &[], 1 << 20);
}

#[test]
#[ignore = "needs Python packages of 70 MB, which ./check --full installs"]
fn nixl_writes_to_its_peer() {
    transfers("nixl_write.py", &NIXL, &ucx("rc_v"), 1 << 20);
}

#[test]
#[ignore = "needs a Python package of 350 MB, which ./check --full installs"]
fn nccl_sends_to_its_peer() {
    for index in ["", "0", "3"] {
        let environment = [("NCCL_IB_GID_INDEX", index)];
        transfers("nccl_send.py", &NCCL, if index.is_empty() { &[] } else { &environment }, 8 << 20);
    }
}
