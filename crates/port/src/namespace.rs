//! Network namespaces (network_namespaces(7)), and user namespaces for users without root
//! (user_namespaces(7)).
//!
//! A namespace lives as long as a descriptor, thread or process refers to it and needs no clean-up.
//! Interfaces, sockets and child processes belong to the namespace of the thread that creates them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    move_into_link_name_space, set_capabilities, unshare_unsafe,
};
use thiserror::Error;

/// The network namespace of the calling thread.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// Sysctl that denies user namespaces to programs without a matching AppArmor profile (Ubuntu 23.10 and
/// later).
const APPARMOR: &str = "kernel.apparmor_restrict_unprivileged_userns";

/// Capabilities of child processes within a namespace: interfaces, raw sockets, ports below 1,024.
const GRANTED: [CapabilitySet; 3] =
    [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::NET_BIND_SERVICE];

/// A failure to create or enter a namespace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The kernel denies the namespace to this user.
    #[error("the kernel refuses a {kind} namespace ({error}): {hint}")]
    Refused {
        /// `user`, `network` or `mount`.
        kind: &'static str,
        /// The kernel's error.
        error: io::Error,
        /// The setting or command that would allow it.
        hint: String,
    },
    /// The kernel denies the mount to this user.
    #[error("the kernel refuses a mount at {} ({error}): {hint}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
        /// The setting or command that would allow it.
        hint: String,
    },
    /// Another operation failed.
    #[error("cannot {what}: {error}")]
    Failed {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl NamespaceError {
    pub(crate) fn mount(path: &Path, error: io::Error) -> Self {
        let hint = hint("mount", &error, |setting| fs::read_to_string(setting).ok());
        Self::Mount { path: path.to_owned(), error, hint }
    }

    fn failed(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::Failed { what, error: error.into() }
    }
}

/// A network namespace.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Creates a namespace with a loopback interface, which is down. Requires `CAP_SYS_ADMIN`; see
    /// [`gain_network_admin`].
    pub fn new() -> Result<Self, NamespaceError> {
        let before = Self::current()?;
        // Fails if this thread could not return to its namespace.
        before.enter().map_err(|error| refused("network", error))?;
        unshare(UnshareFlags::NEWNET).map_err(|error| refused("network", error))?;
        let made = Self::current();
        before.enter_permanently()?;
        made
    }

    /// Returns the namespace of the calling thread.
    pub fn current() -> Result<Self, NamespaceError> {
        let fd = open(CURRENT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        fd.map(Self).map_err(NamespaceError::failed("open this thread's network namespace"))
    }

    /// Moves this process, which must be single-threaded, into the namespace that process `pid` holds as
    /// `descriptor`, and into that process's user namespace if it differs. Programs that this process
    /// executes keep the network capabilities of the namespace.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user.
    pub fn join(pid: u32, descriptor: RawFd) -> Result<(), NamespaceError> {
        let file = |name: String| {
            open(name.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(NamespaceError::failed("open the namespaces of another process"))
        };
        let theirs = format!("/proc/{pid}/ns/user");
        let is_other = fs::read_link(&theirs).ok() != fs::read_link("/proc/self/ns/user").ok();
        let user = is_other.then(|| file(theirs)).transpose()?;
        let network = Self(file(format!("/proc/{pid}/fd/{descriptor}"))?);
        if let Some(user) = user {
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(NamespaceError::failed("enter the user namespace of another process"))?;
            grant().map_err(NamespaceError::failed("pass capabilities on to child processes"))?;
        }
        network.enter_permanently()
    }

    /// Runs `work` with the calling thread in the namespace. Sockets, interfaces, threads and child processes
    /// that it creates belong to the namespace. Other threads are not affected.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, NamespaceError> {
        let before = Self::current()?;
        self.enter_permanently()?;
        let _return = ReturnOnDrop(&before);
        Ok(work())
    }

    /// Moves the calling thread into the namespace permanently.
    pub fn enter_permanently(&self) -> Result<(), NamespaceError> {
        self.enter().map_err(NamespaceError::failed("enter a network namespace"))
    }

    fn enter(&self) -> rustix::io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the thread to its previous namespace on drop, also after a panic.
struct ReturnOnDrop<'a>(&'a NetworkNamespace);

impl Drop for ReturnOnDrop<'_> {
    fn drop(&mut self) {
        // Cannot fail: the thread was in this namespace before.
        let _ = self.0.enter_permanently();
    }
}

/// Gives this process, which must be single-threaded, the right to create network namespaces. Root has it.
/// For another user, the process enters a user namespace with unchanged user and group IDs and gets network
/// capabilities inside it, inherited by child processes. It also leaves the machine's network namespace for a
/// new one and cannot return.
pub fn gain_network_admin() -> Result<(), NamespaceError> {
    if may_administer() {
        return match NetworkNamespace::current()?.enter_permanently() {
            // Root of a user namespace that is still in the machine's network namespace: without a new one,
            // it could not return.
            Err(_) => unshare(UnshareFlags::NEWNET).map_err(|error| refused("network", error)),
            Ok(()) => Ok(()),
        };
    }
    enter_user_namespace(UnshareFlags::NEWNET, "network")?;
    grant().map_err(NamespaceError::failed("pass capabilities on to child processes"))
}

/// Returns true if this process may create namespaces without a user namespace.
pub(crate) fn may_administer() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Moves this process, which must be single-threaded, into a new user namespace with unchanged user and group
/// IDs, and into a namespace of another kind owned by it.
pub(crate) fn enter_user_namespace(other: UnshareFlags, kind: &'static str) -> Result<(), NamespaceError> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).map_err(|error| refused("user", error))?;
    unshare(other).map_err(|error| refused(kind, error))?;
    let map = |file, line: String| fs::write(file, line).map_err(|error| refused("user", error));
    // Without this, a process could leave a group that denies it something (user_namespaces(7)).
    map("/proc/self/setgroups", "deny".into())?;
    map("/proc/self/uid_map", format!("{user} {user} 1"))?;
    map("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Makes child processes inherit the capabilities although their user is not root (ambient capabilities).
fn grant() -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable = GRANTED.into_iter().collect();
    set_capabilities(None, sets)?;
    GRANTED.into_iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

#[allow(unsafe_code)]
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: file descriptors stay shared: the flags are never CLONE_FILES.
    unsafe { unshare_unsafe(flags) }
}

/// Returns the error for a namespace that the kernel denies, with a hint.
pub(crate) fn refused(kind: &'static str, error: impl Into<io::Error>) -> NamespaceError {
    let error = error.into();
    let hint = hint(kind, &error, |setting| fs::read_to_string(setting).ok());
    NamespaceError::Refused { kind, error, hint }
}

/// Returns a hint that names the setting that denies a namespace of this kind. `read` returns a sysctl's
/// value.
fn hint(kind: &str, error: &io::Error, read: impl Fn(&str) -> Option<String>) -> String {
    let is = |name: &str, value: &str| {
        read(&format!("/proc/sys/{}", name.replace('.', "/"))).is_some_and(|now| now.trim() == value)
    };
    // ENOSPC: the limit of this user namespace or an ancestor is reached (unshare(2)). The limit applies to
    // root too, but root needs no user namespace.
    if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) {
        let (name, otherwise) = match kind {
            "user" => ("user.max_user_namespaces", ", or run this as root"),
            "mount" => ("user.max_mnt_namespaces", ""),
            _ => ("user.max_net_namespaces", ""),
        };
        let allowing = if is(name, "0") { 10_000 } else { 100_000 };
        return format!("'sudo sysctl {name}={allowing}' allows it{otherwise}");
    }
    let forbidding = [(APPARMOR, "1", "0"), ("kernel.unprivileged_userns_clone", "0", "1")];
    match forbidding.into_iter().find(|(name, value, _)| is(name, value)) {
        Some((name @ APPARMOR, _, allowing)) => format!(
            "an AppArmor profile for this program that says 'userns' allows it, as the one that 'nichrome doctor \
             --apparmor-profile' prints; so does 'sudo sysctl {name}={allowing}'; or run this as root"
        ),
        Some((name, _, allowing)) => {
            format!("'sudo sysctl {name}={allowing}' allows it, or run this as root")
        }
        None => "run this as root, or in a container with CAP_SYS_ADMIN \
                 or with a seccomp profile that allows unshare"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    /// As root of a user namespace, in the network namespace of another one.
    #[test]
    fn a_thread_that_could_not_return_does_not_leave_its_namespace() {
        const CHILD: &str = "NICHROME_TEST_NAMESPACE";
        let own = || fs::read_link(CURRENT).unwrap();
        if env::var_os(CHILD).is_none() {
            let name = "namespace::tests::a_thread_that_could_not_return_does_not_leave_its_namespace";
            let mut child = Command::new("unshare");
            child
                .args(["--user", "--map-root-user"])
                .arg(env::current_exe().unwrap())
                .args(["--exact", name]);
            let status = child.env(CHILD, "").status().expect("this test needs unshare(1), of util-linux");
            assert!(status.success());
            return;
        }
        let before = own();
        let error = NetworkNamespace::new().unwrap_err();
        assert_eq!(own(), before, "{error}");
        assert!(error.to_string().starts_with("the kernel refuses a network namespace"), "{error}");
    }

    #[test]
    fn the_setting_that_forbids_namespaces_is_named() {
        let with = |kind, error: Errno, name: &'static str, value: &'static str| {
            hint(kind, &error.into(), move |file| file.ends_with(name).then(|| format!("{value}\n")))
        };
        let apparmor = with("user", Errno::PERM, "kernel/apparmor_restrict_unprivileged_userns", "1");
        assert!(
            apparmor.contains("sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
            "{apparmor}"
        );
        assert!(apparmor.starts_with("an AppArmor profile"), "{apparmor}");
        assert!(with("user", Errno::PERM, "user/max_user_namespaces", "9").contains("seccomp"));
        assert!(hint("user", &Errno::PERM.into(), |_| None).contains("as root"));
        let used_up = |kind, name, value| with(kind, Errno::NOSPC, name, value);
        assert_eq!(
            used_up("user", "user/max_user_namespaces", "0"),
            "'sudo sysctl user.max_user_namespaces=10000' allows it, or run this as root"
        );
        for (value, allowing) in [("0", "10000"), ("96365", "100000")] {
            assert_eq!(
                used_up("network", "user/max_net_namespaces", value),
                format!("'sudo sysctl user.max_net_namespaces={allowing}' allows it")
            );
        }
    }
}
