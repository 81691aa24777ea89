//! Process namespaces (pid_namespaces(7)): all that is started in one ends with the process that made it.
//!
//! A namespace's first process does nothing but wait for its maker's end, in whatever way that comes: a socket between
//! the two is closed then. When the first process ends, the kernel kills all others, whoever their parents are and
//! however many there are.

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

/// Where the next child of the calling thread will be.
const OF_CHILDREN: &str = "/proc/thread-self/ns/pid_for_children";

/// A process namespace of our own. All in it are killed when this is dropped, or this process ends.
#[derive(Debug)]
pub struct ProcessNamespace {
    fd: OwnedFd,
    init: Pid,
    /// Closed, it ends the first process.
    _life: UnixStream,
}

impl ProcessNamespace {
    /// Makes a namespace. Needs `CAP_SYS_ADMIN`, as a network namespace does, and a kernel that lets this user mount a
    /// /proc: without one that fits, programs would take processes for others. Containers often hide parts of theirs,
    /// which forbids a new one.
    pub fn new() -> Result<Self, NamespaceError> {
        // The thread that asks for it can have no more threads, so it is one that ends.
        on_another_thread(Self::make)
            .map_err(|error| NamespaceError::Failed { what: "make a process namespace", error })
    }

    fn make() -> io::Result<Self> {
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

    /// The first process, as others see it.
    pub const fn init(&self) -> Pid {
        self.init
    }

    /// Starts a command in the namespace, with a /proc that shows what is there. Mounts that it makes are its own.
    #[allow(unsafe_code)]
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // SAFETY: between fork and exec only async-signal-safe functions may be called; these are system calls.
        unsafe { command.pre_exec(|| mount_proc().map_err(io::Error::from)) };
        on_another_thread(|| {
            move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
            command.spawn()
        })
    }
}

/// Runs `work` on a thread that ends with it: the namespace of its children is no one else's.
fn on_another_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let done =
        thread::scope(|scope| thread::Builder::new().spawn_scoped(scope, work).map(ScopedJoinHandle::join))?;
    done.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

/// Has the calling process, which must have one thread only, see a /proc of its process namespace. Others' mounts
/// come through, its own stay its own.
fn mount_proc() -> rustix::io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None)
}

/// Starts the first process, which says through `life` whether it can be one, and lives until that is closed.
#[allow(unsafe_code)]
fn fork_init(life: &UnixStream) -> io::Result<Pid> {
    // SAFETY: the child has one thread, and calls only async-signal-safe functions until it ends.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => be_init(life.as_raw_fd()),
        pid => Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or_else(io::Error::last_os_error),
    }
}

/// What the first process does. It takes no signals, which are meant for its maker, and no notice of its children.
fn be_init(life: libc::c_int) -> ! {
    let prepared = mount_proc().and_then(|()| keep_only(life));
    let errno = prepared.map_or_else(Errno::raw_os_error, |()| 0);
    ignore_signals();
    wait_for_the_end(if errno == 0 { 0 } else { life }, errno)
}

/// Makes `life` the descriptor 0, and closes all others: this copy of the process uses nothing of what it holds.
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
        // Children are not waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// Says through `life` how preparing went, waits until it is closed at the other end, and ends.
#[allow(unsafe_code)]
fn wait_for_the_end(life: libc::c_int, errno: i32) -> ! {
    let mut answer = 0u8;
    // SAFETY: the number and the byte are alive, and as long as is said.
    unsafe {
        libc::write(life, (&raw const errno).cast(), size_of_val(&errno));
        if errno == 0 {
            // Nothing is ever sent.
            libc::read(life, (&raw mut answer).cast(), 1);
        }
        libc::_exit(0)
    }
}
