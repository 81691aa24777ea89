//! How many queues an interface has (ethtool(8), `-l`).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{self, Errno};

use crate::interface_name::InterfaceName;
use crate::packet_options::check;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
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

/// `struct ifreq` as SIOCETHTOOL reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut Channels,
    unused: [u8; 24 - size_of::<usize>()],
}

/// How many receive queues the interface uses; 1 where its driver does not know of queues.
#[allow(unsafe_code)]
pub(crate) fn receive_queues(socket: &OwnedFd, name: InterfaceName) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request =
        Request { name: name.to_c(), data: &raw mut channels, unused: [0; 24 - size_of::<usize>()] };
    // SAFETY: SIOCETHTOOL reads a struct ifreq, of which `Request` has size and layout, and with this command reads and
    // writes a struct ethtool_channels where it points to.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    match check(result) {
        Ok(()) => Ok((channels.receive + channels.combined).max(1)),
        Err(Errno::OPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>() && size_of::<Channels>() == 36);
