//! The mark of a wire that has a card, which cards of all users respect: an alternative name (altname) of the
//! card's host interface. Alternative names are unique in a network namespace, and the kernel removes them
//! with the interface, however the card ends. Setting one needs the right to create interfaces: a user
//! without it cannot keep a card from a wire.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, bail};
use nichrome_port::{Interface, Netlink};

/// Fails if a card has marked the wire.
pub(super) fn check(netlink: &Netlink, wire: &Interface) -> anyhow::Result<()> {
    // Fails where the kernel has no alternative names (before Linux 5.5): then no card has set any.
    match netlink.name_of_alternative(&name_of(wire)?) {
        Ok(Some(host)) => bail!(
            "{} is in use by the card behind {host}, of another user or XDG_RUNTIME_DIR: 'nichrome nic down {host}' there ends it",
            wire.name
        ),
        _ => Ok(()),
    }
}

/// Marks the wire as that of the card behind `host`.
///
/// # Errors
/// Another card has marked it meanwhile.
pub(super) fn set(netlink: &Netlink, wire: &Interface, host: &Interface) -> anyhow::Result<()> {
    match netlink.add_alternative_name(host, &name_of(wire)?) {
        Ok(false) => bail!("{} is in use by another card, which has just started", wire.name),
        // Fails before Linux 5.5, as above.
        Ok(true) | Err(_) => Ok(()),
    }
}

/// Returns the mark's name. It includes the network namespace: the host interface may be moved to another
/// one, where the wire's index belongs to another interface.
fn name_of(wire: &Interface) -> anyhow::Result<String> {
    let namespace =
        fs::metadata("/proc/thread-self/ns/net").context("cannot identify the network namespace")?;
    Ok(format!("nichrome-wire-{}-of-{}", wire.index, namespace.ino()))
}
