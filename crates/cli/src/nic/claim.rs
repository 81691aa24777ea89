//! The claim on a card's wire interface: a locked file with the owner and the original settings. The lock
//! ends with its process; the next command then restores the interface.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, anyhow, bail};
use nichrome_port::{Interface, InterfaceName, Netlink, NetlinkError, Settings};
use nichrome_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::place;
use crate::failure;
use crate::runtime_dir;

/// A claim; restores the interface on drop.
pub(super) struct Claim {
    file: File,
    path: PathBuf,
    record: Record,
}

/// The content of the claim file.
#[derive(Serialize, Deserialize)]
struct Record {
    pid: u32,
    wire: String,
    host: String,
    changed: Option<ChangedSettings>,
}

/// The interface's original settings and those that the card applied.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct ChangedSettings {
    index: u32,
    mac: [u8; 6],
    given_mac: [u8; 6],
    arp: bool,
}

impl Claim {
    /// Claims the interface `wire` for the card behind `host`; first restores it if a killed card left it
    /// changed.
    pub(super) fn take(wire: InterfaceName, host: InterfaceName) -> anyhow::Result<Self> {
        let path = place::of_claim(wire.as_str())?;
        let context = || format!("cannot claim {wire} with {}", path.display());
        let file = loop {
            let file = open(&path).with_context(context)?;
            match file.try_lock() {
                // The previous owner may have removed the file before unlocking it.
                Ok(()) if is_at(&file, &path) => break file,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(in_use(wire, &file)),
                Err(TryLockError::Error(error)) => return Err(error).with_context(context),
            }
        };
        if let Some(record) = Record::read(&file) {
            record.restore_and_report()?;
            remove_dead_socket(&record.host)?;
        }
        let record = Record {
            pid: process::id(),
            wire: wire.as_str().to_owned(),
            host: host.as_str().to_owned(),
            changed: None,
        };
        record.write(&file).with_context(context)?;
        Ok(Self { file, path, record })
    }

    /// Stops the kernel from accepting the host's frames on `wire`: gives `wire` another MAC address, since
    /// the host has its address now, and disables ARP on it.
    pub(super) fn hide(&mut self, netlink: &Netlink, wire: &Interface) -> anyhow::Result<()> {
        let Some(mac) = wire.mac else { bail!("{} is not an Ethernet interface", wire.name) };
        let given = local_address();
        self.record.changed =
            Some(ChangedSettings { index: wire.index, mac: mac.0, given_mac: given.0, arp: wire.arp });
        self.record.write(&self.file).with_context(|| format!("cannot write {}", self.path.display()))?;
        netlink.disable_arp(wire)?;
        let settings = Settings { mac: Some(given), ..Settings::default() };
        netlink.configure(wire, settings).with_context(|| {
            format!("{} does not allow another MAC address while it is up: use --backend xdp", wire.name)
        })
    }

    /// Restores the interface and removes the claim file.
    fn restore_and_remove(&mut self) -> anyhow::Result<()> {
        self.record.restore()?;
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))?;
        if let Some(directory) = self.path.parent() {
            runtime_dir::remove_if_empty(directory);
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = self.restore_and_remove() {
            failure::warn(format_args!("{} is not restored: {error:#}", self.record.wire));
        }
    }
}

/// The state of the claim of the card behind a host.
pub(super) enum ClaimState {
    /// A changed interface, which is restored now.
    Restored,
    /// A claim that its process still holds: the card runs, starts or ends.
    Locked,
    /// No claim.
    Absent,
}

/// Restores the interface of a killed card behind `host`.
pub(super) fn restore_for(host: &str) -> anyhow::Result<ClaimState> {
    let mut found = ClaimState::Absent;
    for path in place::all_claims()? {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        let of_host = || Record::read(&file).filter(|record| record.host == host);
        // Does not lock another host's claim, whose card may be about to lock it.
        if of_host().is_none() {
            continue;
        }
        if file.try_lock().is_err() {
            found = ClaimState::Locked;
        } else if is_at(&file, &path)
            && let Some(record) = of_host()
        {
            record.restore_and_report()?;
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            remove_dead_socket(host)?;
            if let Some(directory) = path.parent() {
                runtime_dir::remove_if_empty(directory);
            }
            return Ok(ClaimState::Restored);
        }
    }
    Ok(found)
}

/// Removes the socket of a killed card behind `host`: one that nobody listens at.
fn remove_dead_socket(host: &str) -> anyhow::Result<()> {
    let socket = place::of_socket(host)?;
    if UnixStream::connect(&socket).is_err() {
        let _ = fs::remove_file(socket);
    }
    Ok(())
}

impl Record {
    /// Parses the file; `None` if it is empty, or its writer was killed while writing, before any change.
    fn read(mut file: &File) -> Option<Self> {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn write(&self, mut file: &File) -> io::Result<()> {
        let text = serde_json::to_string(self)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())
    }

    fn restore_and_report(&self) -> anyhow::Result<()> {
        let Self { pid, wire, .. } = self;
        let changed = self.restore().with_context(|| format!("cannot restore {wire}"))?;
        if changed {
            failure::notice(format_args!("nichrome: process {pid} left {wire} changed: restored"));
        }
        Ok(())
    }

    /// Restores the interface; returns false if there was nothing to do. Keeps settings that others changed
    /// since.
    fn restore(&self) -> anyhow::Result<bool> {
        let Some(ChangedSettings { index, mac, given_mac, arp }) = self.changed else { return Ok(false) };
        let netlink = Netlink::open()?;
        // The interface may have another name now.
        let interface = match InterfaceName::of_index(index).map(|name| netlink.interface(name)) {
            Ok(Ok(interface)) if interface.index == index => interface,
            // The interface is gone.
            Err(_) | Ok(Ok(_) | Err(NetlinkError::NoInterface(_))) => return Ok(false),
            Ok(Err(error)) => return Err(error.into()),
        };
        let has_given_mac = interface.mac == Some(MacAddr(given_mac));
        if !has_given_mac && interface.name.as_str() != self.wire {
            // Another interface has the wire's former index.
            return Ok(false);
        }
        if has_given_mac {
            netlink.configure(&interface, Settings { mac: Some(MacAddr(mac)), ..Settings::default() })?;
        }
        let lacks_arp = arp && !interface.arp;
        if lacks_arp {
            netlink.enable_arp(&interface)?;
        }
        Ok(has_given_mac || lacks_arp)
    }
}

/// Opens or creates the file, whose directory is created.
fn open(path: &Path) -> anyhow::Result<File> {
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    match path.parent() {
        Some(directory) => runtime_dir::create_with(directory, open),
        None => Ok(open()?),
    }
}

fn in_use(wire: InterfaceName, file: &File) -> anyhow::Error {
    match Record::read(file) {
        Some(Record { pid, host, .. }) => {
            anyhow!("{wire} is in use by process {pid}: 'nichrome nic down {host}' ends that card")
        }
        None => anyhow!("{wire} is in use by another nichrome"),
    }
}

/// Returns true if `path` leads to `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(found)) => number(open) == number(found),
        _ => false,
    }
}

/// Returns a random, locally administered MAC address (IEEE 802, 8.4).
fn local_address() -> MacAddr {
    let [_, _, a, b, c, d, e, f] = RandomState::new().build_hasher().finish().to_be_bytes();
    MacAddr([a & 0xFC | 0x02, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_addresses_are_local_and_of_one_interface() {
        for _ in 0..100 {
            let MacAddr(bytes) = local_address();
            assert_eq!(bytes[0] & 3, 2, "{bytes:?}");
        }
        assert_ne!(local_address(), local_address());
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_half_a_record_is_none() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(Record::read(&file).is_none());
        let changed = ChangedSettings { index: 3, mac: [1; 6], given_mac: [2; 6], arp: true };
        let record = Record { pid: 7, wire: "eth0".into(), host: "nic0".into(), changed: Some(changed) };
        record.write(&file).unwrap();
        record.write(&file).unwrap();
        let read = Record::read(&file).unwrap();
        assert_eq!((read.pid, read.host.as_str(), read.changed.unwrap().index), (7, "nic0", 3));
        file.set_len(20).unwrap();
        assert!(Record::read(&file).is_none());
        file.rewind().unwrap();
    }
}
