//! TAP devices (Linux Documentation/networking/tuntap.rst).

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nichrome_wire::VirtioNetHeader;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{self, Errno, read, write, writev};
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl, opcode};
use thiserror::Error;

use crate::device::{Device, Received};
use crate::interface_name::InterfaceName;
use crate::os_error::OsError;

const CLONE_DEVICE: &str = "/dev/net/tun";

const TUNSETIFF: Opcode = opcode::write::<libc::c_int>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<libc::c_uint>(b'T', 208);
const TUNSETCARRIER: Opcode = opcode::write::<libc::c_int>(b'T', 226);

/// Offload flag sets in order of preference: the first that the kernel accepts is used.
const OFFLOADS: [libc::c_uint; 3] = [
    libc::TUN_F_CSUM
        | libc::TUN_F_TSO4
        | libc::TUN_F_TSO6
        | libc::TUN_F_TSO_ECN
        | libc::TUN_F_USO4
        | libc::TUN_F_USO6,
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
    libc::TUN_F_CSUM,
];

/// A failure to create a TAP device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TapError {
    /// The kernel has no TAP support, or /dev/net/tun is inaccessible.
    #[error("cannot open {CLONE_DEVICE} ({0}): {remedy}", remedy = remedy_for(*.0))]
    CloneDevice(OsError),
    /// The interface cannot be created.
    #[error(
        "cannot create the TAP interface {name} ({error}): that needs CAP_NET_ADMIN and a name that is free"
    )]
    Interface {
        /// The interface.
        name: InterfaceName,
        /// The kernel's error.
        error: OsError,
    },
}

/// Returns the remedy for this error of opening the clone device. Its mode is 0666 where udev creates it, and
/// 0600 where devtmpfs alone does.
fn remedy_for(error: OsError) -> &'static str {
    if error == Errno::ACCESS.into() {
        "only root may; 'sudo chmod 666 /dev/net/tun' lets all users"
    } else {
        "the kernel needs CONFIG_TUN, and a container needs the device file"
    }
}

/// Which offloads the kernel may leave to this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// All supported ones: the kernel sends frames of up to 64 KB.
    All,
    /// None: packets fit the MTU and have complete checksums.
    None,
}

/// A TAP device, or one of its queues. The interface is deleted when all queues are dropped. It belongs to
/// the network namespace of the creating thread and can be used from any thread. The kernel has processed a
/// frame before `send` returns. It does so without NAPI (`IFF_NAPI`), which costs more and cannot coalesce
/// frames that are sent one by one.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: InterfaceName,
    takes_merged_udp: bool,
}

impl Tap {
    /// Creates the interface `name`, which is down.
    pub fn new(name: InterfaceName, offloads: Offloads) -> Result<Self, TapError> {
        Self::open(name, offloads, libc::IFF_TUN_EXCL)
    }

    /// Creates the interface `name`, which is down, with several queues. The kernel sends a connection's
    /// packets to the queue that last delivered its frames.
    pub fn with_queues(
        name: InterfaceName,
        offloads: Offloads,
        queues: usize,
    ) -> Result<Vec<Self>, TapError> {
        let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let new = |queue| if queue == 0 { libc::IFF_TUN_EXCL } else { 0 };
        (0..queues).map(|queue| Self::open(name, offloads, several | new(queue))).collect()
    }

    /// Opens a queue of an interface, and creates the interface if it does not exist. With `IFF_TUN_EXCL`,
    /// fails if it exists: otherwise the first queue could belong to another program's interface.
    #[allow(unsafe_code)]
    fn open(name: InterfaceName, offloads: Offloads, flags: libc::c_int) -> Result<Self, TapError> {
        let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | flags;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            open(CLONE_DEVICE, flags, Mode::empty()).map_err(|error| TapError::CloneDevice(error.into()))?;
        let request = Request { name: name.to_c(), flags: kind as libc::c_short, unused: [0; 22] };
        // SAFETY: TUNSETIFF reads a struct ifreq, of which `Request` has size and layout.
        unsafe { ioctl(&fd, Setter::<TUNSETIFF, _>::new(request)) }
            .map_err(|error| TapError::Interface { name, error: error.into() })?;
        // A kernel that accepts no offload segments and checksums itself, as without this call.
        let accepted = match offloads {
            Offloads::All => OFFLOADS.into_iter().find(|&offloads| set_offloads(&fd, offloads).is_ok()),
            Offloads::None => None,
        };
        let takes_merged_udp = accepted.is_some_and(|accepted| accepted & libc::TUN_F_USO4 != 0);
        Ok(Self { fd, name, takes_merged_udp })
    }

    /// Returns true if the kernel accepts coalesced UDP datagrams: it does if it also leaves their
    /// segmentation to us (USO, Linux 6.2).
    pub fn takes_merged_udp(&self) -> bool {
        self.takes_merged_udp
    }

    /// Returns the interface's name.
    pub fn name(&self) -> InterfaceName {
        self.name
    }

    /// Sets whether the interface has a carrier. A new interface has one.
    ///
    /// # Errors
    /// The interface is gone, or the kernel is older than 5.0.
    #[allow(unsafe_code)]
    pub fn set_carrier(&self, carrier: bool) -> io::Result<()> {
        // SAFETY: TUNSETCARRIER reads a number.
        unsafe { ioctl(&self.fd, Setter::<TUNSETCARRIER, _>::new(libc::c_int::from(carrier))) }
    }
}

/// `struct ifreq` as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    unused: [u8; 22],
}

#[allow(unsafe_code)]
fn set_offloads(fd: &OwnedFd, offloads: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number as its argument.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads as usize)) }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Device for Tap {
    #[inline]
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        match read(&self.fd, &mut *buffer) {
            Ok(len) => Ok(Received::parse(&buffer[..len])),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        writev(&self.fd, parts).map(drop)
    }

    #[inline]
    fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        write(&self.fd, bytes).map(drop)
    }
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>() && VirtioNetHeader::LEN == 10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Without TAP support in the kernel the file does not exist; a file that only root may open needs no
    /// other kernel.
    #[test]
    fn the_error_says_what_opens_the_clone_device() {
        let text = |errno: Errno| TapError::CloneDevice(errno.into()).to_string();
        for (errno, remedy) in
            [(Errno::ACCESS, "chmod 666"), (Errno::NOENT, "CONFIG_TUN"), (Errno::NODEV, "CONFIG_TUN")]
        {
            assert!(text(errno).contains(remedy), "{}", text(errno));
        }
        assert!(!text(Errno::ACCESS).contains("CONFIG_TUN"));
    }
}
