//! Process namespaces (pid_namespaces(7)): all processes in one end with the process that created it.
//!
//! The namespace's init process only waits for the end of its creator, which closes a socket between the two.
//! When init ends, the kernel kills all processes of the namespace, including daemons.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::{self, ScopedJoinHandle};
use std::{mem, ptr};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::namespace::{NamespaceError, unshare};

/// The process namespace of future children of the calling thread.
const OF_CHILDREN: &str = "/proc/thread-self/ns/pid_for_children";

/// A process namespace. Its processes are killed when this is dropped or this process ends.
#[derive(Debug)]
pub struct ProcessNamespace {
    fd: OwnedFd,
    init: Pid,
    /// Closing it ends the init process.
    _life: UnixStream,
}

impl ProcessNamespace {
    /// Creates a namespace. Requires `CAP_SYS_ADMIN`, as a network namespace does, and permission to mount
    /// /proc: with the parent's /proc, programs would see the wrong processes. Containers that mask parts of
    /// /proc deny the mount.
    pub fn new() -> Result<Self, NamespaceError> {
        // The calling thread cannot create threads after unshare(CLONE_NEWPID), so a short-lived thread does
        // it.
        on_another_thread(Self::create)
            .map_err(|error| NamespaceError::Failed { what: "create a process namespace", error })
    }

    fn create() -> io::Result<Self> {
        let (mut life, inits) = UnixStream::pair()?;
        unshare(UnshareFlags::NEWPID)?;
        let init = fork_init(&inits)?;
        drop(inits);
        let mut errno = [0; 4];
        life.read_exact(&mut errno)?;
        match i32::from_ne_bytes(errno) {
            0 => {
                let fd = open(OF_CHILDREN, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                Ok(Self { fd, init, _life: life })
            }
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Returns the init process's ID in the parent namespace.
    pub const fn init(&self) -> Pid {
        self.init
    }

    /// Starts a command in the namespace with its own /proc. Mounts of the command are private.
    #[allow(unsafe_code)]
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // SAFETY: between fork and exec only async-signal-safe functions may be called; these are system
        // calls.
        unsafe { command.pre_exec(|| mount_proc().map_err(io::Error::from)) };
        on_another_thread(|| {
            move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
            command.spawn()
        })
    }
}

/// Runs `work` on a new thread, so that only that thread's children enter the new namespace.
fn on_another_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let done =
        thread::scope(|scope| thread::Builder::new().spawn_scoped(scope, work).map(ScopedJoinHandle::join))?;
    done.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

/// Mounts the /proc of the calling process's namespace. The process must be single-threaded. Mounts of the
/// parent namespace propagate in; its own do not propagate out.
fn mount_proc() -> rustix::io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None)
}

/// Forks the init process, which reports readiness through `life` and runs until `life` is closed.
#[allow(unsafe_code)]
fn fork_init(life: &UnixStream) -> io::Result<Pid> {
    // SAFETY: the child has one thread, and calls only async-signal-safe functions until it ends.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => run_init(life.as_raw_fd()),
        pid => Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or_else(io::Error::last_os_error),
    }
}

/// Runs as the init process. Blocks signals, which are meant for its creator, and ignores SIGCHLD.
fn run_init(life: libc::c_int) -> ! {
    let prepared = mount_proc().and_then(|()| keep_only(life));
    let errno = prepared.map_or_else(Errno::raw_os_error, |()| 0);
    ignore_signals();
    wait_for_the_end(if errno == 0 { 0 } else { life }, errno)
}

/// Makes `life` descriptor 0 and closes all others: the fork must not keep the parent's files open.
#[allow(unsafe_code)]
fn keep_only(life: libc::c_int) -> rustix::io::Result<()> {
    // SAFETY: these are system calls on numbers.
    let results = unsafe {
        [i64::from(libc::dup2(life, 0)), libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0)]
    };
    if results == [0, 0] { Ok(()) } else { Err(Errno::NOSYS) }
}

#[allow(unsafe_code)]
fn ignore_signals() {
    // SAFETY: a signal set may be all zeros, and is alive while the calls use it.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        // Zombies are reaped by the kernel.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// Reports the result of set-up through `life`, waits until the other end is closed, and exits.
#[allow(unsafe_code)]
fn wait_for_the_end(life: libc::c_int, errno: i32) -> ! {
    let mut answer = 0u8;
    // SAFETY: the number and the byte are alive and have the stated lengths.
    unsafe {
        libc::write(life, (&raw const errno).cast(), size_of_val(&errno));
        if errno == 0 {
            // Returns at end of file; nothing is ever sent.
            libc::read(life, (&raw mut answer).cast(), 1);
        }
        libc::_exit(0)
    }
}
