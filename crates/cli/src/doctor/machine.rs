//! What the checks ask a machine.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Something that is tried in a child process, because trying changes the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(super) enum Trial {
    /// A user and a network namespace.
    Namespaces,
    /// A process namespace in those.
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
    /// A UDP socket on 127.0.0.1.
    Loopback,
}

/// Why something is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// What the kernel said.
    pub(super) error: String,
    /// What would allow it, if the error says that.
    pub(super) remedy: Option<String>,
}

/// A machine, as a process of this user finds it.
pub(super) trait Machine {
    /// Returns the text of a file of the system, without the newline at its end; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String>;

    /// Returns the names of a folder's entries, sorted; none if it cannot be read.
    fn entries(&self, folder: &str) -> Vec<String>;

    /// Tries something.
    fn attempt(&self, trial: Trial) -> Result<(), Refusal>;

    /// Returns the number of files that a process may have open; `None` without limit.
    fn open_files(&self) -> Option<u64>;

    /// Returns the number of bytes that a process may lock in memory; `None` without limit.
    fn locked_memory(&self) -> Option<u64>;

    /// Returns the folder of the libraries of `nichrome rdma run`.
    fn libraries(&self) -> Result<String, Refusal>;
}
