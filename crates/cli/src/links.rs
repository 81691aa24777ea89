//! Observes interfaces in use.

use anyhow::{bail, ensure};
use nichrome_port::{Interface, LinkEvents, Netlink};

use crate::{failure, threads};

/// Calls `notify` on a separate thread whenever any interface changes, until `notify` returns an error.
pub(crate) fn watch<E>(mut notify: impl FnMut() -> Result<(), E> + Send + 'static) -> anyhow::Result<()> {
    let links = LinkEvents::open()?;
    threads::start("links", move || while links.wait().is_ok() && notify().is_ok() {}).map(drop)
}

/// The user of an interface.
#[derive(Clone, Copy)]
pub(crate) struct User {
    /// The user's name in messages.
    name: &'static str,
    /// True if the user continues when its interface is renamed.
    survives_renaming: bool,
}

impl User {
    pub(crate) const PATH: Self = Self { name: "path", survives_renaming: true };
    /// A card ends when its interface is renamed, because cards claim interfaces by name.
    pub(crate) const CARD: Self = Self { name: "card", survives_renaming: false };
}

/// An interface in use.
pub(crate) struct Link {
    /// The interface's state at the last call.
    interface: Interface,
    user: User,
}

impl Link {
    /// Creates a link for an interface that is up.
    pub(crate) const fn new(interface: Interface, user: User) -> Self {
        Self { interface, user }
    }

    /// Returns the interface's current state. Reports if it went down or up, or was renamed, since the last
    /// call.
    ///
    /// # Errors
    /// The interface is gone, even if another one has its name; or it was renamed, which ends its user.
    pub(crate) fn update(&mut self, netlink: &Netlink) -> anyhow::Result<Interface> {
        let Self { interface: before, user } = self;
        let user_name = user.name;
        let Some(now) = netlink.refresh(before)? else {
            bail!("{} is gone: the {user_name} ends", before.name);
        };
        let name = now.name;
        if name != before.name {
            ensure!(user.survives_renaming, "{} is called {name} now: the {user_name} ends", before.name);
            failure::notice(format_args!("nichrome: {} is called {name} now", before.name));
        }
        match (before.up, now.up) {
            (false, true) => failure::notice(format_args!("nichrome: {name} is up again")),
            (true, false) => {
                let waits = format_args!("the {user_name} waits until it is up again");
                failure::notice(format_args!("nichrome: {name} is down: {waits}"));
            }
            _ => {}
        }
        *before = now.clone();
        Ok(now)
    }
}
