//! The checks: each tests one property of the machine and names a remedy.

use nichrome_port::XdpConfig;
use serde::Serialize;

use super::machine::{DISABLE_IPV6, Machine, Refusal, Trial};

/// Size of a device's socket buffer, in bytes (`nichrome_port::udp`).
const SOCKET_ROOM: u64 = 8 << 20;

/// Descriptors of a program with some hundred iWARP connections.
const FILES: u64 = 1024;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// Works.
    Works,
    /// Works with restrictions.
    Limited,
    /// Does not work.
    Refused,
}

/// The subject of a check, in report order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Subject {
    UserNamespaces,
    ProcessNamespaces,
    MountNamespaces,
    Tap,
    Ipv6,
    RawSockets,
    NetworkAdministration,
    Xdp,
    LockedMemory,
    OpenFiles,
    SocketBuffers,
    Loopback,
    RealTimePriority,
    RdmaLibraries,
    RdmaHardware,
    Iperf3,
}

impl Subject {
    pub(super) const ALL: [Self; 16] = [
        Self::UserNamespaces,
        Self::ProcessNamespaces,
        Self::MountNamespaces,
        Self::Tap,
        Self::Ipv6,
        Self::RawSockets,
        Self::NetworkAdministration,
        Self::Xdp,
        Self::LockedMemory,
        Self::OpenFiles,
        Self::SocketBuffers,
        Self::Loopback,
        Self::RealTimePriority,
        Self::RdmaLibraries,
        Self::RdmaHardware,
        Self::Iperf3,
    ];

    /// Returns the name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::UserNamespaces => "user namespaces",
            Self::ProcessNamespaces => "process namespaces",
            Self::MountNamespaces => "mount namespaces",
            Self::Tap => "TAP interfaces",
            Self::Ipv6 => "IPv6",
            Self::RawSockets => "raw sockets",
            Self::NetworkAdministration => "network administration",
            Self::Xdp => "AF_XDP",
            Self::LockedMemory => "locked memory",
            Self::OpenFiles => "open files",
            Self::SocketBuffers => "socket buffers",
            Self::Loopback => "loopback interface",
            Self::RealTimePriority => "real-time priority",
            Self::RdmaLibraries => "RDMA libraries",
            Self::RdmaHardware => "RDMA hardware",
            Self::Iperf3 => "iperf3",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    #[serde(rename = "name")]
    pub(super) subject: Subject,
    pub(super) outcome: Outcome,
    /// The finding.
    pub(super) found: String,
    /// The change that would allow it, or lift the restriction.
    pub(super) remedy: Option<String>,
}

impl Check {
    fn works(subject: Subject, found: impl Into<String>) -> Self {
        Self { subject, outcome: Outcome::Works, found: found.into(), remedy: None }
    }

    fn limited(subject: Subject, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, outcome: Outcome::Limited, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Returns a refusal with its own remedy, or `otherwise`.
    fn refused(subject: Subject, refusal: Refusal, otherwise: &str) -> Self {
        let remedy = refusal.remedy.unwrap_or_else(|| otherwise.to_owned());
        Self { subject, outcome: Outcome::Refused, found: refusal.error, remedy: Some(remedy) }
    }

    /// Returns the result of a trial.
    fn tried(subject: Subject, machine: &impl Machine, trial: Trial, allowed: &str, remedy: &str) -> Self {
        match machine.attempt(trial) {
            Ok(()) => Self::works(subject, allowed),
            Err(refusal) => Self::refused(subject, refusal, remedy),
        }
    }

    /// Checks one subject.
    pub(super) fn of(subject: Subject, machine: &impl Machine) -> Self {
        const AS_ROOT: &str =
            "run the command as root; in a container, with --cap-add NET_ADMIN --cap-add NET_RAW";
        let tried = |trial, allowed, remedy| Self::tried(subject, machine, trial, allowed, remedy);
        match subject {
            Subject::UserNamespaces => tried(Trial::Namespaces, "allowed", "run the command as root"),
            Subject::ProcessNamespaces => tried(
                Trial::ProcessNamespace,
                "allowed",
                "in a container, run it with --security-opt systempaths=unconfined: parts of its /proc are hidden",
            ),
            Subject::MountNamespaces => tried(Trial::MountNamespace, "allowed", "run the command as root"),
            Subject::Tap => tap(machine),
            Subject::Ipv6 => ipv6(machine),
            Subject::RawSockets => tried(Trial::RawSocket, "allowed in this network", AS_ROOT),
            Subject::NetworkAdministration => {
                tried(Trial::NetworkAdministration, "allowed in this network", AS_ROOT)
            }
            Subject::Xdp => tried(
                Trial::Xdp,
                "allowed",
                "run the command as root, on Linux 5.9 or later with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL; \
                 in a container, with --cap-add NET_ADMIN --cap-add NET_RAW --cap-add BPF",
            ),
            Subject::LockedMemory => locked_memory(machine),
            Subject::OpenFiles => open_files(machine),
            Subject::SocketBuffers => socket_buffers(machine),
            Subject::Loopback => {
                tried(Trial::Loopback, "127.0.0.1 is available", "set it up: 'sudo ip link set lo up'")
            }
            Subject::RealTimePriority => match machine.attempt(Trial::RealTime) {
                Ok(()) => Self::works(subject, "allowed"),
                Err(Refusal { error, .. }) => Self::limited(
                    subject,
                    format!("{error}: programs delay the threads of cards and paths"),
                    "'ulimit -r 1', allowed by the line 'USER - rtprio 1' in /etc/security/limits.d/nichrome.conf; in a \
                     unit, LimitRTPRIO=1; in a container, --ulimit rtprio=1",
                ),
            },
            Subject::RdmaLibraries => match machine.libraries() {
                Ok(folder) => Self::works(subject, folder),
                Err(refusal) => Self::refused(
                    subject,
                    refusal,
                    "run scripts/build-libibverbs in a clone of the source, or install the Debian package or the Python one",
                ),
            },
            Subject::RdmaHardware => hardware(machine),
            Subject::Iperf3 => tried(Trial::Iperf3, "installed", "install Debian's package iperf3"),
        }
    }
}

fn tap(machine: &impl Machine) -> Check {
    let subject = Subject::Tap;
    if machine.attempt(Trial::Namespaces).is_err() {
        return match machine.read("/proc/misc") {
            Some(devices) if devices.lines().any(|line| line.ends_with(" tun")) => {
                Check::works(subject, "supported by the kernel; not tested: no user namespace")
            }
            _ => Check::refused(subject, no_driver(), NO_TUN),
        };
    }
    Check::tried(subject, machine, Trial::Tap, "allowed in network namespaces", NO_TUN)
}

const NO_TUN: &str =
    "'sudo modprobe tun && sudo chmod 666 /dev/net/tun'; in a container, run it with --device /dev/net/tun";

fn no_driver() -> Refusal {
    Refusal { error: "the kernel has no driver 'tun'".into(), remedy: None }
}

/// Checks IPv6 in a new network namespace. New ones do not inherit this namespace's setting: they have the
/// kernel's built-in one, unless `devconf_inherit_init_net` is 1 or 3.
fn ipv6(machine: &impl Machine) -> Check {
    let subject = Subject::Ipv6;
    if machine.read(DISABLE_IPV6).is_none() {
        return Check::limited(subject, "the kernel has none", "boot the kernel without ipv6.disable=1");
    }
    if machine.attempt(Trial::Namespaces).is_err() {
        return Check::works(subject, "supported by the kernel; not tested: no user namespace");
    }
    match machine.attempt(Trial::Ipv6) {
        Ok(()) => Check::works(subject, "new network namespaces have it"),
        Err(Refusal { error, .. }) => Check::limited(
            subject,
            error,
            "'sudo sysctl net.ipv6.conf.default.disable_ipv6=0' if net.core.devconf_inherit_init_net is 1 or 3, else boot \
             the kernel without ipv6.disable_ipv6=1",
        ),
    }
}

fn locked_memory(machine: &impl Machine) -> Check {
    let subject = Subject::LockedMemory;
    match machine.locked_memory() {
        None => Check::works(subject, "no limit"),
        Some(bytes) if bytes >= XdpConfig::default().locked_bytes() => {
            Check::works(subject, format!("up to {} KB", bytes >> 10))
        }
        Some(bytes) => Check::limited(
            subject,
            format!("up to {} KB, less than a queue of AF_XDP locks", bytes >> 10),
            "'ulimit -l unlimited' as root, or LimitMEMLOCK=infinity in the unit; root itself is not limited",
        ),
    }
}

fn open_files(machine: &impl Machine) -> Check {
    let subject = Subject::OpenFiles;
    match machine.open_files() {
        None => Check::works(subject, "no limit"),
        Some(files) if files >= FILES => Check::works(subject, format!("up to {files}")),
        Some(files) => Check::limited(subject, format!("up to {files}"), format!("'ulimit -n {FILES}'")),
    }
}

fn socket_buffers(machine: &impl Machine) -> Check {
    let subject = Subject::SocketBuffers;
    let limit = machine.read("/proc/sys/net/core/rmem_max").and_then(|text| text.parse::<u64>().ok());
    let enough = limit.is_some_and(|limit| limit >= SOCKET_ROOM);
    if enough || machine.attempt(Trial::NetworkAdministration).is_ok() {
        return Check::works(subject, format!("{} MB, as a device asks for", SOCKET_ROOM >> 20));
    }
    let found =
        limit.map_or_else(|| "the limit is unknown".to_owned(), |limit| format!("up to {} KB", limit >> 10));
    Check::limited(
        subject,
        format!("{found}: bursts may be lost, and are retransmitted"),
        format!("'sudo sysctl net.core.rmem_max={SOCKET_ROOM}'"),
    )
}

fn hardware(machine: &impl Machine) -> Check {
    let devices = machine.entries("/sys/class/infiniband").join(", ");
    let found = if devices.is_empty() {
        "none, and none is needed".to_owned()
    } else {
        format!("{devices}: programs under 'nichrome rdma run' find nichrome0 instead")
    };
    Check::works(Subject::RdmaHardware, found)
}
