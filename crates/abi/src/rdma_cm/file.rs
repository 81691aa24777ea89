//! Open device files. Each is a channel of the connection manager; its descriptor is the eventfd of the
//! channel's events.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nichrome_cm::ChannelName;
use nichrome_cm::ucma::{Caller, Command, CommandHeader};
use nichrome_hca::cm::CmChannel;
use nichrome_rdma::Memory;

use super::manager::Manager;
use crate::blocking::{PriorRead, Step};
use crate::errno::Errno;
use crate::process_memory::ProcessMemory;
use crate::waiting;

/// An open device file.
pub(super) struct File {
    /// Declared before the manager, which drives it, to be dropped first.
    channel: CmChannel,
    manager: Arc<Manager>,
}

/// The open device files of the process.
static OPEN: Mutex<BTreeMap<RawFd, Arc<File>>> = Mutex::new(BTreeMap::new());

fn files() -> MutexGuard<'static, BTreeMap<RawFd, Arc<File>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked table of open device files.
pub(crate) struct Held {
    _files: MutexGuard<'static, BTreeMap<RawFd, Arc<File>>>,
}

/// Locks the table until the result is dropped: for a process that is about to fork, which holds the
/// adapter's lock already.
pub(crate) fn hold() -> Held {
    Held { _files: files() }
}

impl File {
    /// Opens the device file with the flags of open(2); returns its descriptor.
    pub(super) fn open(flags: c_int) -> Result<RawFd, Errno> {
        let manager = Manager::of_process()?;
        let file = Self { channel: manager.open_channel()?, manager };
        let fd = file.fd();
        let inherited = if flags & libc::O_CLOEXEC == 0 { 0 } else { libc::FD_CLOEXEC };
        // SAFETY: system calls without pointers, on a descriptor of this function.
        let set = unsafe {
            libc::fcntl(fd, libc::F_SETFD, inherited) == 0
                && libc::fcntl(fd, libc::F_SETFL, flags & libc::O_NONBLOCK) == 0
        };
        if !set {
            return Err(Errno::last());
        }
        // Forgets an older file with this descriptor. The program has closed that descriptor without
        // librdmacm; to drop the file would close the new one.
        std::mem::forget(files().insert(fd, Arc::new(file)));
        Ok(fd)
    }

    fn fd(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    /// Returns the device file with this descriptor.
    ///
    /// # Errors
    /// `EBADF`: there is none.
    fn find(fd: RawFd) -> Result<Arc<Self>, Errno> {
        files().get(&fd).cloned().ok_or(Errno(libc::EBADF))
    }

    /// Returns true if a descriptor is of a device file.
    pub(super) fn is_open(fd: RawFd) -> bool {
        files().contains_key(&fd)
    }

    /// Closes the device file with this descriptor, which destroys its identifiers. Returns false if the
    /// descriptor is of no device file.
    pub(super) fn close(fd: RawFd) -> bool {
        // Dropped without the lock: closing an adapter takes time.
        let file = files().remove(&fd);
        file.is_some()
    }

    /// Executes a command that the program wrote to the device file with this descriptor. GET_EVENT first
    /// reads the descriptor, which blocks while there is no event, unless the program has made it
    /// non-blocking.
    ///
    /// # Errors
    /// The command's errors, and those of the read. `EAGAIN`: no event, and the program has made the
    /// descriptor non-blocking. `EINTR`: a signal handler without `SA_RESTART` ran. `ENODEV`: the caller is a
    /// forked child, which would take the parent's event.
    pub(super) fn write(fd: RawFd, written: &[u8], prior: PriorRead) -> Result<Step<()>, Errno> {
        waiting::end();
        if let PriorRead::Failed(errno) = prior {
            return Err(errno);
        }
        let file = Self::find(fd)?;
        let (header, body) = CommandHeader::split(written)?;
        let command = Command::parse(header.number, body)?;
        if !matches!(command, Command::GetEvent { .. }) {
            file.manager.prepare(&command)?;
            return file.execute(written).map(Step::Done);
        }
        if prior == PriorRead::Done {
            match file.execute(written) {
                // Another thread has fetched the event.
                Err(Errno(libc::EAGAIN)) => {}
                result => return result.map(Step::Done),
            }
        }
        file.manager.begin_wait()?;
        Ok(Step::Read(fd))
    }

    fn execute(&self, written: &[u8]) -> Result<(), Errno> {
        let answer = self.channel.execute(&mut Program, written)?;
        let Some(answer) = answer else { return Ok(()) };
        ProcessMemory.write(answer.address, &answer.bytes).map_err(|_| Errno(libc::EFAULT))
    }
}

/// The program that writes commands.
struct Program;

impl Caller for Program {
    fn read(&mut self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        ProcessMemory.read(address, &mut bytes).ok()?;
        Some(bytes)
    }

    fn channel_of(&mut self, fd: u32) -> Option<ChannelName> {
        // Called under the adapter's lock: a file that another thread closes must not be dropped here.
        files().get(&RawFd::try_from(fd).ok()?).map(|file| file.channel.name())
    }
}
