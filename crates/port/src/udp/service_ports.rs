//! Service ports of processes that share an address: reservations, listeners, and the steering of requests to
//! the listening process.
//!
//! All processes share one file (memfd), each through its own open file description; no other process has it:
//!
//! | byte | locked by | content |
//! |---|---|---|
//! | of a port | the process that has reserved it | 1 + slot of the process that listens at it |
//! | [`UPDATE`] | the process that changes the socket group's program | |
//! | [`FIRST_SLOT`] + slot | the process of the slot | |
//!
//! A process that listens writes its slot, and replaces the BPF program of the socket group by one with all
//! listening ports except those of dead processes. The kernel releases the locks of a process when it ends.
//! Until the next change, requests for a killed process go to its socket: their senders retransmit and give
//! up.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::io::{self, Errno, pread, pwrite};

use crate::close_in_child::close_in_child;

use super::record_lock::{is_locked_elsewhere, lock, try_lock, unlock};
use super::steering::{SPACES, ServicePort, Steering};

/// Ports per port space.
const PORTS: usize = 1 << 16;

/// Length of the port table, in bytes.
const TABLE_LEN: usize = SPACES * PORTS;

const UPDATE: u64 = TABLE_LEN as u64;

const FIRST_SLOT: u64 = UPDATE + 1;

/// Creates the file for an address. Its length is that of the port table; the bytes behind it are used for
/// locks only.
pub(super) fn create_table(address: SocketAddr) -> io::Result<OwnedFd> {
    let table = memfd_create(format!("nichrome-ports/{address}"), MemfdFlags::CLOEXEC)?;
    ftruncate(&table, TABLE_LEN as u64)?;
    Ok(table)
}

/// The state of a port among the other processes at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceUse {
    /// No process has reserved it.
    Free,
    /// A process has reserved it, but does not listen.
    Reserved,
    /// A process listens at it.
    Listening,
}

/// The service ports of one process, freed on drop.
#[derive(Debug)]
pub struct ServicePorts {
    table: OwnedFd,
    /// Any socket of the group.
    socket: OwnedFd,
    steering: Steering,
    slot: usize,
}

impl ServicePorts {
    /// Opens the port table for the process that has a slot.
    pub(super) fn open(
        table: &OwnedFd,
        socket: OwnedFd,
        steering: Steering,
        slot: usize,
    ) -> io::Result<Self> {
        // Reopened, since locks belong to an open file description.
        let path = format!("/proc/self/fd/{}", table.as_raw_fd());
        let table = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let ports = Self { table, socket, steering, slot };
        if !try_lock(&ports.table, FIRST_SLOT + slot as u64)? {
            return Err(Errno::BUSY);
        }
        // Entries of the slot's previous owner.
        ports.remove_all()?;
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

    /// Returns the state of a port among the other processes at the address.
    pub fn use_by_others(&self, port: ServicePort) -> ServiceUse {
        if !is_locked_elsewhere(&self.table, place(port)).unwrap_or(false) {
            return ServiceUse::Free;
        }
        let mut listening = [0];
        match pread(&self.table, &mut listening, place(port)) {
            Ok(1) if ![0, self.slot as u8 + 1].contains(&listening[0]) => ServiceUse::Listening,
            _ => ServiceUse::Reserved,
        }
    }

    /// Releases a port. If this process listened at it, requests still reach this process until it stops
    /// listening, or another process listens.
    pub fn release(&self, port: ServicePort) {
        unlock(&self.table, place(port));
    }

    /// Leaves the ports to the parent of this process, which holds them through the same open file
    /// description.
    pub fn close_in_child(self) {
        close_in_child([self.table.as_fd(), self.socket.as_fd()]);
        // Not dropped: that would free the parent's ports.
        mem::forget(self);
    }

    /// Stops steering requests for a port to this process.
    pub fn stop_listening(&self, port: ServicePort) {
        let mine = self.slot as u8 + 1;
        // On failure, requests still reach this process, which refuses them.
        let _ = self.change(|owners| {
            if owners[index(port)] == mine {
                owners[index(port)] = 0;
            }
        });
    }

    /// Steers requests for a reserved port to this process.
    ///
    /// # Errors
    /// The kernel's: too many listening ports for one BPF program.
    pub fn listen(&self, port: ServicePort) -> io::Result<()> {
        self.change(|owners| owners[index(port)] = self.slot as u8 + 1)
    }

    /// Changes the listeners under the update lock: the socket group's program first, then the table.
    fn change(&self, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        lock(&self.table, UPDATE)?;
        let changed = self.change_locked(change);
        unlock(&self.table, UPDATE);
        changed
    }

    fn change_locked(&self, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let before = self.read()?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        self.steer(&after)?;
        let changed = after.iter().enumerate().filter(|(at, owner)| before.get(*at) != Some(*owner));
        for (at, owner) in changed {
            pwrite(&self.table, &[*owner], at as u64)?;
        }
        Ok(())
    }

    /// Replaces the BPF program of the socket group.
    fn steer(&self, owners: &[u8]) -> io::Result<()> {
        let mut listening = Vec::new();
        for (at, owner) in owners.iter().enumerate() {
            if let Some(slot) = usize::from(*owner).checked_sub(1) {
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

    /// Removes all table entries of the slot.
    fn remove_all(&self) -> io::Result<()> {
        let mine = self.slot as u8 + 1;
        self.change(|owners| {
            owners.iter_mut().filter(|owner| **owner == mine).for_each(|owner| *owner = 0);
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
}

impl Drop for ServicePorts {
    fn drop(&mut self) {
        // On failure, the entries stay until the slot's next owner removes them.
        let _ = self.remove_all();
    }
}

/// Returns the index of a port in the table.
const fn index(ServicePort { space, port }: ServicePort) -> usize {
    space * PORTS + port as usize
}

/// Returns the file offset of a port's lock.
const fn place(port: ServicePort) -> u64 {
    index(port) as u64
}
