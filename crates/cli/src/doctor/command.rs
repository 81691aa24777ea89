//! The effect of the checks on each command.

use serde::Serialize;

use super::check::{Check, Outcome, Subject};

/// The requirements of a command.
struct Needs {
    command: &'static str,
    /// True if it is expected to work for every user.
    without_root: bool,
    /// The command fails without these.
    necessary: &'static [Subject],
    /// The command is restricted without these.
    useful: &'static [Subject],
}

const COMMANDS: [Needs; 14] = [
    Needs {
        command: "coalesce, segment, sim, bench lro, bench checksum",
        without_root: true,
        necessary: &[],
        useful: &[],
    },
    Needs { command: "bench sim", without_root: true, necessary: &[], useful: &[] },
    Needs {
        command: "demo",
        without_root: true,
        necessary: &[Subject::UserNamespaces, Subject::Tap],
        useful: &[Subject::RealTimePriority],
    },
    Needs {
        command: "wan",
        without_root: true,
        necessary: &[Subject::UserNamespaces, Subject::Tap],
        useful: &[Subject::ProcessNamespaces, Subject::Ipv6, Subject::RealTimePriority],
    },
    Needs {
        command: "wan --between",
        without_root: false,
        necessary: &[Subject::RawSockets, Subject::NetworkAdministration],
        useful: &[Subject::RealTimePriority],
    },
    Needs {
        command: "nic up",
        without_root: false,
        necessary: &[Subject::RawSockets, Subject::NetworkAdministration, Subject::Tap],
        useful: &[Subject::Xdp, Subject::LockedMemory, Subject::RealTimePriority],
    },
    Needs {
        command: "rdma run",
        without_root: true,
        necessary: &[Subject::Loopback, Subject::RdmaLibraries],
        useful: &[Subject::SocketBuffers, Subject::OpenFiles],
    },
    Needs {
        command: "rdma run --mount",
        without_root: true,
        necessary: &[Subject::Loopback, Subject::RdmaLibraries, Subject::MountNamespaces],
        useful: &[Subject::SocketBuffers, Subject::OpenFiles],
    },
    Needs {
        command: "rdma run --packets",
        without_root: false,
        necessary: &[Subject::Loopback, Subject::RdmaLibraries, Subject::RawSockets],
        useful: &[Subject::SocketBuffers, Subject::OpenFiles],
    },
    Needs {
        command: "rdma bw, rdma lat, rdma pingpong",
        without_root: true,
        necessary: &[Subject::Loopback],
        useful: &[Subject::SocketBuffers, Subject::OpenFiles],
    },
    Needs {
        command: "rdma connect, bench star",
        without_root: true,
        necessary: &[Subject::Loopback],
        useful: &[Subject::SocketBuffers, Subject::OpenFiles],
    },
    Needs {
        command: "bench rdma",
        without_root: true,
        necessary: &[Subject::Loopback],
        useful: &[Subject::SocketBuffers, Subject::OpenFiles, Subject::Iperf3],
    },
    Needs {
        command: "bench wan",
        without_root: true,
        necessary: &[Subject::UserNamespaces, Subject::Tap, Subject::Iperf3],
        useful: &[Subject::RealTimePriority],
    },
    Needs {
        command: "bench overip",
        without_root: true,
        necessary: &[Subject::UserNamespaces, Subject::Tap],
        useful: &[Subject::RealTimePriority],
    },
];

/// Whether a command works on this machine.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Command {
    pub(super) command: &'static str,
    pub(super) outcome: Outcome,
    pub(super) without_root: bool,
    /// The checks that refuse or limit it.
    pub(super) because: Vec<Subject>,
}

impl Command {
    /// Judges all commands by the checks.
    pub(super) fn all(checks: &[Check]) -> Vec<Self> {
        COMMANDS.iter().map(|needs| Self::judge(needs, checks)).collect()
    }

    fn judge(needs: &Needs, checks: &[Check]) -> Self {
        let missing = |subjects: &[Subject]| -> Vec<Subject> {
            let failed = checks.iter().filter(|check| check.outcome != Outcome::Works);
            failed.map(|check| check.subject).filter(|subject| subjects.contains(subject)).collect()
        };
        let refused = missing(needs.necessary);
        let (outcome, because) = if refused.is_empty() {
            let limited = missing(needs.useful);
            (if limited.is_empty() { Outcome::Works } else { Outcome::Limited }, limited)
        } else {
            (Outcome::Refused, refused)
        };
        Self { command: needs.command, outcome, without_root: needs.without_root, because }
    }
}
