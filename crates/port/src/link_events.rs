//! News of interfaces: rtnetlink(7)'s group of links, in the network namespace of the thread that opens the socket.

use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::netlink::NetlinkError;

/// A socket that says when an interface was made, removed, set up or down, or changed.
pub struct LinkEvents(Socket);

impl fmt::Debug for LinkEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkEvents").finish_non_exhaustive()
    }
}

impl LinkEvents {
    /// Notes what happens from now on.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 1 << (libc::RTNLGRP_LINK - 1)))?;
            Ok(Self(socket))
        };
        open().map_err(|error| NetlinkError::Refused { what: "watch the interfaces".into(), error })
    }

    /// Waits until something has happened, to whichever interface: what is known of any is out of date then.
    pub fn wait(&self) -> io::Result<()> {
        match self.0.recv_from_full() {
            Ok(_) => Ok(()),
            // So much has happened that the kernel had no room for it.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
