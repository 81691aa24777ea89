//! The number of receive queues of an interface (ethtool(8), `-l`).

use std::os::fd::OwnedFd;

use rustix::io::{self, Errno};

use crate::ethtool::issue;
use crate::interface_name::InterfaceName;

const ETHTOOL_GCHANNELS: u32 = 0x3C;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// Returns the number of receive queues in use; 1 if the driver does not report them.
#[allow(unsafe_code)]
pub(crate) fn receive_queues(socket: &OwnedFd, name: InterfaceName) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: ETHTOOL_GCHANNELS works on a struct ethtool_channels.
    match unsafe { issue(socket, name, &mut channels) } {
        Ok(()) => Ok((channels.receive + channels.combined).max(1)),
        Err(Errno::OPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

const _: () = assert!(size_of::<Channels>() == 36);
