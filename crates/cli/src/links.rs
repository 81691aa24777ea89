//! Observes interfaces in use.

use anyhow::bail;
use nichrome_port::{Interface, InterfaceName, LinkEvents, Netlink, NetlinkError};

use crate::{failure, threads};

/// Calls `notify` on a separate thread whenever any interface changes, until `notify` returns an error.
pub(crate) fn watch<E>(mut notify: impl FnMut() -> Result<(), E> + Send + 'static) -> anyhow::Result<()> {
    let links = LinkEvents::open()?;
    threads::start("links", move || while links.wait().is_ok() && notify().is_ok() {}).map(drop)
}

/// Returns the interface with this name, if it exists.
pub(crate) fn find(netlink: &Netlink, name: InterfaceName) -> Result<Option<Interface>, NetlinkError> {
    match netlink.interface(name) {
        Ok(interface) => Ok(Some(interface)),
        Err(NetlinkError::NoInterface(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An interface in use; messages call its user `user`.
pub(crate) struct Link {
    name: InterfaceName,
    user: &'static str,
    index: Option<u32>,
    was_up: bool,
}

impl Link {
    /// Creates a link for an interface that is up.
    pub(crate) const fn new(name: InterfaceName, user: &'static str) -> Self {
        Self { name, user, index: None, was_up: true }
    }

    /// Returns the interface's current state. Reports if it went down or up since the last call.
    ///
    /// # Errors
    /// The interface is gone, even if another one has its name.
    pub(crate) fn look(&mut self, netlink: &Netlink) -> anyhow::Result<Interface> {
        let Self { name, user, .. } = *self;
        let found = find(netlink, name)?;
        let Some(interface) = found.filter(|now| *self.index.get_or_insert(now.index) == now.index) else {
            bail!("{name} is gone: the {user} ends");
        };
        if interface.up != self.was_up {
            self.was_up = interface.up;
            if interface.up {
                failure::say(format_args!("nichrome: {name} is up again"));
            } else {
                failure::say(format_args!("nichrome: {name} is down: the {user} waits until it is up again"));
            }
        }
        Ok(interface)
    }
}
