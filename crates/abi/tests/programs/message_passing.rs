//! MPI: the packages of Debian, and newer ones of Python, which bundle their own UCX.

use std::process::Command;

use crate::applications::{Application, ucx};
use crate::namespaces::in_one_network;
use crate::packages::{Python, bytes_sent, installed, run, source};
use crate::running::{needs, turn};

pub(crate) const OPENMPI: Application = Application {
    name: "OpenMPI",
    version: "4.1.4",
    package: "openmpi-bin",
    operations: "two ranks: a ring of messages, put, get, fetch-and-add (`pml ucx`, `osc ucx`)",
    transport: "UCX, rc_verbs",
};

pub(crate) const OPENMPI_OVER_LIBFABRIC: Application = Application {
    name: "OpenMPI",
    version: "4.1.4",
    package: "openmpi-bin",
    operations: "as above, over libfabric's `verbs;ofi_rxm` (`mtl ofi`), in a network namespace",
    transport: "connection manager; RC; iWARP",
};

pub(crate) const MPICH: Application = Application {
    name: "MPICH",
    version: "4.0.2",
    package: "mpich",
    operations: "two ranks: a ring of messages, put, get, fetch-and-add (`ch4:ucx`)",
    transport: "UCX, rc_verbs",
};

pub(crate) const NEW_OPENMPI: Application = Application {
    name: "OpenMPI",
    version: "5.0.11",
    package: "openmpi",
    operations: "as above, with its UCX 1.20.1 (`./check --full`)",
    transport: "UCX, rc_verbs",
};

pub(crate) const NEW_MPICH: Application = Application {
    name: "MPICH",
    version: "5.0.2",
    package: "mpich",
    operations: "as above, with its UCX and `MPIR_CVAR_NOLOCAL=1` (`./check --full`)",
    transport: "UCX, rc_verbs",
};

pub(crate) const MPI4PY: Application = Application {
    name: "mpi4py",
    version: "4.1.2",
    package: "mpi4py",
    operations: "its tests of point-to-point and collective operations with buffers, except partitioned ones on freed \
                 communicators, on OpenMPI 5.0.11, two ranks (`./check --full`)",
    transport: "UCX, rc_verbs",
};

/// Options of both releases of OpenMPI.
const WITH_UCX: &str = "--allow-run-as-root --oversubscribe -n 2 --mca pml ucx --mca osc ucx";

const WITH_LIBFABRIC: &str = "--oversubscribe -n 2 --mca pml cm --mca mtl ofi --mca btl self --mca osc pt2pt \
                              --mca mtl_ofi_provider_include verbs;ofi_rxm";

/// Builds ring.c and runs it with two ranks.
fn ring(compiler: &str, launcher: &str, environment: &[(&str, &str)]) {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ring");
    assert!(Command::new(compiler).arg("-o").arg(&program).arg(source("ring.c")).status().unwrap().success());
    let output = run(launcher, &[program.to_str().unwrap()], environment);
    // The ring sends over 5 MB; any other use of the device sends less.
    let devices = bytes_sent(&output.stderr).into_iter().filter(|bytes| *bytes > 5_000_000).count();
    assert_eq!(devices, 2, "{launcher}: {}", String::from_utf8_lossy(&output.stderr));
}

fn ring_over_ucx(compiler: &str, launcher: &str, environment: &[(&str, &str)]) {
    ring(compiler, launcher, &[&ucx("rc_v,self")[..], environment].concat());
}

#[test]
fn openmpi_runs_over_ucx() {
    needs("mpirun.openmpi", OPENMPI.package);
    needs("mpicc.openmpi", "libopenmpi-dev");
    ring_over_ucx("mpicc.openmpi", &format!("mpirun.openmpi {WITH_UCX}"), &[]);
}

/// libfabric leaves out addresses of the loopback interface.
#[test]
fn openmpi_runs_over_libfabric() {
    needs("mpirun.openmpi", OPENMPI_OVER_LIBFABRIC.package);
    needs("mpicc.openmpi", "libopenmpi-dev");
    let root = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
    for transport in ["roce", "iwarp"] {
        let environment = [&root[..], &[("NICHROME_TRANSPORT", transport)]].concat();
        let launcher = in_one_network("10.9.0.1/24", &format!("mpirun.openmpi {WITH_LIBFABRIC}"));
        ring("mpicc.openmpi", &launcher, &environment);
    }
}

#[test]
fn mpich_runs_over_ucx() {
    needs("mpirun.mpich", MPICH.package);
    needs("mpicc.mpich", "libmpich-dev");
    ring_over_ucx("mpicc.mpich", "mpirun.mpich -n 2", &[]);
}

#[test]
#[ignore = "needs a Python package, which ./check --full installs"]
fn a_newer_openmpi_runs_over_its_own_ucx() {
    let python = Python::of("NICHROME_PYTHON");
    python.check_version(&NEW_OPENMPI);
    ring_over_ucx(&python.program("mpicc"), &format!("{} {WITH_UCX}", python.program("mpirun")), &[]);
}

/// Ranks on one machine would otherwise use shared memory.
#[test]
#[ignore = "needs a Python package, which ./check --full installs"]
fn a_newer_mpich_runs_over_its_own_ucx() {
    let python = Python::of("NICHROME_PYTHON_MPICH");
    python.check_version(&NEW_MPICH);
    let launcher = format!("{} -n 2", python.program("mpirun"));
    ring_over_ucx(&python.program("mpicc"), &launcher, &[("MPIR_CVAR_NOLOCAL", "1")]);
}

#[test]
#[ignore = "needs Python packages, which ./check --full installs"]
fn the_tests_of_mpi4py_pass() {
    let _turn = turn();
    let python = Python::of("NICHROME_PYTHON");
    python.check_version(&MPI4PY);
    let launcher = format!("{} {WITH_UCX}", python.program("mpirun"));
    let tests = installed("NICHROME_MPI4PY_TESTS");
    for module in ["test_p2p_buf", "test_cco_buf"] {
        // OpenMPI writes to freed memory after partitioned operations on communicators that are freed: see
        // docs/verbs.md.
        let [one, other] = ["PartSelfDup", "PartWorldDup"];
        let arguments = [&python.program("python3"), &tests, "-q", "-i", module, "-x", one, "-x", other];
        let output = run(&launcher, &arguments, &ucx("rc_v,self"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.lines().filter(|line| line.starts_with("OK")).count(), 2, "{module}: {stderr}");
        let devices = bytes_sent(&output.stderr).into_iter().filter(|bytes| *bytes > 100_000).count();
        assert_eq!(devices, 2, "{module}: {stderr}");
    }
}
