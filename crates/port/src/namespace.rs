//! Network namespaces (network_namespaces(7)), and user namespaces where root would be needed (user_namespaces(7)).
//!
//! A namespace lives as long as a descriptor, a thread or a process in it: nothing has to be removed. Interfaces,
//! sockets and child processes belong to the namespace of the thread that makes them.

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

/// The namespace of the calling thread.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// Denies user namespaces to programs whose AppArmor profile does not allow them (Ubuntu 23.10 and later).
const APPARMOR: &str = "kernel.apparmor_restrict_unprivileged_userns";

/// What programs in our namespaces may do there: interfaces, raw sockets, ports below 1,024.
const GRANTED: [CapabilitySet; 3] =
    [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::NET_BIND_SERVICE];

/// Why there is no namespace.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// The kernel does not let this user have one.
    #[error("the kernel refuses a {kind} namespace ({error}): {hint}")]
    Refused {
        /// `user`, `network` or `mount`.
        kind: &'static str,
        /// What it said.
        error: io::Error,
        /// What would allow it.
        hint: String,
    },
    /// The kernel does not let this user mount there.
    #[error("the kernel refuses a mount at {} ({error}): {hint}", path.display())]
    Mount {
        /// Where to mount.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
        /// What would allow it.
        hint: String,
    },
    /// Something else failed.
    #[error("cannot {what}: {error}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
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

/// A network namespace of our own.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Makes a namespace in which there is only a loopback interface, which is down. Needs `CAP_SYS_ADMIN`:
    /// [`become_able`] gives it to whoever has not.
    pub fn new() -> Result<Self, NamespaceError> {
        let before = Self::current()?;
        unshare(UnshareFlags::NEWNET).map_err(|error| refused("network", error))?;
        let made = Self::current();
        before.enter_for_good()?;
        made
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, NamespaceError> {
        let fd = open(CURRENT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        fd.map(Self).map_err(NamespaceError::failed("open this thread's network namespace"))
    }

    /// Moves this process, which must have one thread only, into the namespace that process `pid` holds as `descriptor`, and into
    /// that process's user namespace, if it is another. What the process executes has the capabilities that programs in our
    /// namespaces have.
    ///
    /// # Errors
    /// The process is gone, or is another user's.
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
        network.enter_for_good()
    }

    /// Runs `work` in the namespace: what it makes (sockets, interfaces, threads, child processes) is there. Any other
    /// thread stays where it is.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, NamespaceError> {
        let before = Self::current()?;
        self.enter_for_good()?;
        let _back = Back(&before);
        Ok(work())
    }

    /// Moves the calling thread into the namespace.
    pub fn enter_for_good(&self) -> Result<(), NamespaceError> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(NamespaceError::failed("enter a network namespace"))
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the thread back where it came from, even where the work panics.
struct Back<'a>(&'a NetworkNamespace);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        // The thread came from there, so it may go there.
        let _ = self.0.enter_for_good();
    }
}

/// Makes this process, which must still have one thread only, able to make network namespaces. Root is; anyone else
/// moves into a user namespace, keeps user and group, and gets, with all child processes, the capabilities for
/// networks inside it. The process leaves the machine's network then, for one of its own: from a user namespace there
/// is no way back into the machine's.
pub fn become_able() -> Result<(), NamespaceError> {
    if may_administer() {
        return match NetworkNamespace::current()?.enter_for_good() {
            // Root of a user namespace, but in the machine's network: there would be no way back.
            Err(_) => unshare(UnshareFlags::NEWNET).map_err(|error| refused("network", error)),
            Ok(()) => Ok(()),
        };
    }
    enter_user_namespace(UnshareFlags::NEWNET, "network")?;
    grant().map_err(NamespaceError::failed("pass capabilities on to child processes"))
}

/// Returns true if this process may make namespaces without a user namespace.
pub(crate) fn may_administer() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Moves this process, which must have one thread only, into a user namespace in which its user and group IDs are unchanged,
/// and into a namespace of another kind in it.
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

/// Lets child processes have capabilities although they are not root's.
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

/// What the kernel refused, with the setting that forbids it.
pub(crate) fn refused(kind: &'static str, error: impl Into<io::Error>) -> NamespaceError {
    let error = error.into();
    let hint = hint(kind, &error, |setting| fs::read_to_string(setting).ok());
    NamespaceError::Refused { kind, error, hint }
}

/// What would allow a namespace of this kind that was refused with `error`, by the settings as `read` gives them.
fn hint(kind: &str, error: &io::Error, read: impl Fn(&str) -> Option<String>) -> String {
    let is = |name: &str, value: &str| {
        read(&format!("/proc/sys/{}", name.replace('.', "/"))).is_some_and(|now| now.trim() == value)
    };
    // There are as many as this user namespace, or one around it, may have: unshare(2). Root is counted, too, but needs
    // no user namespace.
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
    use super::*;

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
