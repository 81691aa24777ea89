//! Service ports of processes that share an address: which are in use, and to which process the kernel steers requests.
//!
//! All processes have the same file, each by an open file description of its own, and nobody else has it:
//!
//! | byte | locked by | content |
//! |---|---|---|
//! | of a port | the process that has reserved it | 1 + slot of the process that listens at it |
//! | [`UPDATE`] | the process that changes the socket group's program | |
//! | [`FIRST_SLOT`] + slot | the process of the slot | |
//!
//! A process that listens writes its slot, and replaces the program of the socket group by one that knows all listening ports,
//! without those of processes that have died. A lock ends with its process, however that ends. Until the next change requests
//! for a process that was killed go to its socket: their senders repeat them and give up.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::io::{self, Errno, pread, pwrite};

use super::record_lock::{is_locked_elsewhere, lock, try_lock, unlock};
use super::steering::{SPACES, ServicePort, Steering};

/// Ports of a space.
const PORTS: usize = 1 << 16;

/// Bytes of the ports.
const TABLE_LEN: usize = SPACES * PORTS;

const UPDATE: u64 = TABLE_LEN as u64;

const FIRST_SLOT: u64 = UPDATE + 1;

/// Creates the file for an address. Its length is that of the ports: other bytes are only locked.
pub(super) fn create_table(address: SocketAddr) -> io::Result<OwnedFd> {
    let table = memfd_create(format!("nichrome-ports/{address}"), MemfdFlags::CLOEXEC)?;
    ftruncate(&table, TABLE_LEN as u64)?;
    Ok(table)
}

/// The service ports of one process. Dropping it frees them.
#[derive(Debug)]
pub struct ServicePorts {
    table: OwnedFd,
    /// Any socket of the group.
    socket: OwnedFd,
    steering: Steering,
    slot: usize,
}

impl ServicePorts {
    /// The ports of the process that has a slot.
    pub(super) fn open(
        table: &OwnedFd,
        socket: OwnedFd,
        steering: Steering,
        slot: usize,
    ) -> io::Result<Self> {
        // Opened again: locks are those of the open file description.
        let path = format!("/proc/self/fd/{}", table.as_raw_fd());
        let table = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let ports = Self { table, socket, steering, slot };
        if !try_lock(&ports.table, FIRST_SLOT + slot as u64)? {
            return Err(Errno::BUSY);
        }
        // What the slot's last process left.
        ports.forget_all()?;
        Ok(ports)
    }

    /// Returns true if no other process at the address has service ports.
    pub(super) fn is_alone(&self) -> io::Result<bool> {
        for slot in 0..self.steering.slots() as u64 {
            if is_locked_elsewhere(&self.table, FIRST_SLOT + slot)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reserves a port; returns false if another process has it.
    pub fn reserve(&self, port: ServicePort) -> bool {
        try_lock(&self.table, place(port)).unwrap_or(false)
    }

    /// Gives back a port. Requests for one at which this process listened reach it until it stops listening there, or until
    /// another process listens.
    pub fn release(&self, port: ServicePort) {
        unlock(&self.table, place(port));
    }

    /// Has the kernel steer requests for a port to this process no longer.
    pub fn stop_listening(&self, port: ServicePort) {
        // If that fails, requests still reach this process, which refuses them.
        let _ = self.change(|| {
            let mut listening = [0];
            let is_mine =
                pread(&self.table, &mut listening, place(port))? == 1 && listening == [self.slot as u8 + 1];
            if is_mine { self.write(port, 0) } else { Ok(()) }
        });
    }

    /// Has the kernel steer requests for a reserved port to this process.
    ///
    /// # Errors
    /// The kernel's: there are too many listening ports for one program.
    pub fn listen(&self, port: ServicePort) -> io::Result<()> {
        let listened = self.change(|| self.write(port, self.slot as u8 + 1));
        if listened.is_err() {
            // As it was.
            let _ = self.write(port, 0);
        }
        listened
    }

    /// Changes the table and then the program, as the only process that does.
    fn change(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        lock(&self.table, UPDATE)?;
        let changed = change().and_then(|()| self.steer());
        unlock(&self.table, UPDATE);
        changed
    }

    /// Replaces the program of the socket group.
    fn steer(&self) -> io::Result<()> {
        let mut listening = Vec::new();
        for (at, owner) in self.read()?.into_iter().enumerate() {
            if let Some(slot) = usize::from(owner).checked_sub(1) {
                listening.push((ServicePort { space: at / PORTS, port: (at % PORTS) as u16 }, slot));
            }
        }
        let mut is_alive = vec![false; self.steering.slots()];
        for (slot, is_alive) in is_alive.iter_mut().enumerate() {
            *is_alive = slot == self.slot || is_locked_elsewhere(&self.table, FIRST_SLOT + slot as u64)?;
        }
        listening.retain(|(_, slot)| is_alive.get(*slot) == Some(&true));
        self.steering.attach(&self.socket, &listening)
    }

    /// Removes all entries of the slot.
    fn forget_all(&self) -> io::Result<()> {
        let mine = self.slot as u8 + 1;
        let owners = self.read()?;
        if !owners.contains(&mine) {
            return Ok(());
        }
        self.change(|| {
            let mut of_slot = owners.iter().enumerate().filter(|(_, owner)| **owner == mine);
            of_slot.try_for_each(|(at, _)| pwrite(&self.table, &[0], at as u64).map(drop))
        })
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let mut owners = vec![0; TABLE_LEN];
        let mut len = 0;
        while len < TABLE_LEN {
            match pread(&self.table, &mut owners[len..], len as u64)? {
                0 => return Err(Errno::IO),
                read => len += read,
            }
        }
        Ok(owners)
    }

    fn write(&self, port: ServicePort, owner: u8) -> io::Result<()> {
        pwrite(&self.table, &[owner], place(port)).map(drop)
    }
}

impl Drop for ServicePorts {
    fn drop(&mut self) {
        // As in `release`.
        let _ = self.forget_all();
    }
}

/// The byte of a port.
const fn place(ServicePort { space, port }: ServicePort) -> u64 {
    (space * PORTS) as u64 + port as u64
}
