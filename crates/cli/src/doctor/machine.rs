//! The machine as seen by the checks.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The setting of a network namespace that its new interfaces inherit: 0 if they have IPv6.
pub(super) const DISABLE_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// A trial, performed in a child process because it changes the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(super) enum Trial {
    /// User and network namespace.
    Namespaces,
    /// A process namespace within a user and network namespace.
    ProcessNamespace,
    /// A mount namespace, in a user namespace unless root.
    MountNamespace,
    /// A TAP interface in a network namespace.
    Tap,
    /// An AF_PACKET socket in this network.
    RawSocket,
    /// An operation that needs CAP_NET_ADMIN in this network.
    NetworkAdministration,
    /// An XDP program and an AF_XDP socket on a TAP interface.
    Xdp,
    /// IPv6 in a new network namespace.
    Ipv6,
    /// A UDP socket on 127.0.0.1.
    Loopback,
    /// A thread with real-time priority.
    RealTime,
    /// The program iperf3.
    Iperf3,
}

/// A refused operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// The kernel's error.
    pub(super) error: String,
    /// The remedy, if the error names one.
    pub(super) remedy: Option<String>,
}

/// The properties of a machine that checks read; tests replace it.
pub(super) trait Machine {
    /// Returns the text of a file of the system, without the newline at its end; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String>;

    /// Returns the names of a folder's entries, sorted; none if it cannot be read.
    fn entries(&self, folder: &str) -> Vec<String>;

    /// Performs a trial.
    fn attempt(&self, trial: Trial) -> Result<(), Refusal>;

    /// Returns the number of files that a process may have open; `None` without limit.
    fn open_files(&self) -> Option<u64>;

    /// Returns the number of bytes that a process may lock in memory; `None` without limit.
    fn locked_memory(&self) -> Option<u64>;

    /// Returns the folder of the libraries of `nichrome rdma run`.
    fn libraries(&self) -> Result<String, Refusal>;
}
