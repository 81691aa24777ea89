//! Notifications of interface changes: rtnetlink(7)'s link group, in the network namespace of the thread that
//! opens the socket.

use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::netlink::NetlinkError;

/// A socket that becomes readable when an interface is created, deleted or changed.
pub struct LinkEvents(Socket);

impl fmt::Debug for LinkEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkEvents").finish_non_exhaustive()
    }
}

impl LinkEvents {
    /// Subscribes to changes from now on.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 1 << (libc::RTNLGRP_LINK - 1)))?;
            Ok(Self(socket))
        };
        open().map_err(|error| NetlinkError::Refused { what: "watch the interfaces".into(), error })
    }

    /// Blocks until any interface has changed; cached interface state is then stale.
    pub fn wait(&self) -> io::Result<()> {
        match self.0.recv_from_full() {
            Ok(_) => Ok(()),
            // The receive queue overflowed: there were changes.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
