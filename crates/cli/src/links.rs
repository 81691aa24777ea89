//! Interfaces that are in use, and what happens to them meanwhile.

use anyhow::bail;
use nichrome_port::{Interface, InterfaceName, LinkEvents, Netlink, NetlinkError};

use crate::{failure, threads};

/// From now on, it is told on a thread of its own that something has happened to an interface, whichever, as long as
/// anyone listens.
pub(crate) fn watch<E>(mut tell: impl FnMut() -> Result<(), E> + Send + 'static) -> anyhow::Result<()> {
    let links = LinkEvents::open()?;
    threads::start("links", move || while links.wait().is_ok() && tell().is_ok() {}).map(drop)
}

/// The interface of this name; `None` where there is none any more.
pub(crate) fn find(netlink: &Netlink, name: InterfaceName) -> Result<Option<Interface>, NetlinkError> {
    match netlink.interface(name) {
        Ok(interface) => Ok(Some(interface)),
        Err(NetlinkError::NoInterface(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An interface that is in use by what messages call `user`.
pub(crate) struct Link {
    name: InterfaceName,
    user: &'static str,
    index: Option<u32>,
    was_up: bool,
}

impl Link {
    /// An interface that was up.
    pub(crate) const fn new(name: InterfaceName, user: &'static str) -> Self {
        Self { name, user, index: None, was_up: true }
    }

    /// What it is now. Says where it was set down or up since the last time.
    ///
    /// # Errors
    /// It is gone, even if there is another one of its name.
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
