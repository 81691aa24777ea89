//! Offloads of a network interface (ethtool(8), `linux/ethtool.h`) in the network namespace of the calling
//! thread.

use std::os::fd::AsFd;

use rustix::io;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketType, socket};
use thiserror::Error;

use crate::interface_name::InterfaceName;
use crate::os_error::OsError;

const SIOCETHTOOL: Opcode = 0x8946;

/// An offload of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Checksums of sent packets.
    TransmitChecksum,
    /// TCP segmentation by the card.
    Tso,
    /// Segmentation by the kernel just before the driver (GSO).
    Gso,
    /// Coalescing of received packets by the kernel (GRO).
    Gro,
}

/// A failure to switch an offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot switch {feature:?} of {name}: {error}")]
pub struct FeatureError {
    feature: Feature,
    name: InterfaceName,
    error: OsError,
}

impl Feature {
    /// Returns the ethtool command that sets the offload.
    const fn command(self) -> u32 {
        match self {
            Self::TransmitChecksum => 0x17,
            Self::Tso => 0x1F,
            Self::Gso => 0x24,
            Self::Gro => 0x2C,
        }
    }

    /// Switches the feature on.
    pub fn enable(self, name: InterfaceName) -> Result<(), FeatureError> {
        self.set(name, 1)
    }

    /// Switches the feature off.
    pub fn disable(self, name: InterfaceName) -> Result<(), FeatureError> {
        self.set(name, 0)
    }

    fn set(self, name: InterfaceName, data: u32) -> Result<(), FeatureError> {
        exchange(name, &mut Value { command: self.command(), data }).map_err(|error| FeatureError {
            feature: self,
            name,
            error: error.into(),
        })
    }
}

/// Returns true if the interface strips VLAN tags from received frames (`rx-vlan-offload`). AF_XDP does not
/// report stripped tags.
pub fn strips_vlan_tags(name: InterfaceName) -> io::Result<bool> {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETH_FLAG_RXVLAN: u32 = 1 << 8;
    let mut flags = Value { command: ETHTOOL_GFLAGS, data: 0 };
    exchange(name, &mut flags)?;
    Ok(flags.data & ETH_FLAG_RXVLAN != 0)
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` as SIOCETHTOOL reads it.
#[repr(C)]
struct Request<T> {
    name: [u8; libc::IFNAMSIZ],
    data: *mut T,
    unused: [u8; 24 - size_of::<usize>()],
}

/// Issues the ethtool command that `data` begins with. Any socket works.
///
/// # Safety
/// `T` is the structure of the command and has its C layout: the kernel reads and writes it.
#[allow(unsafe_code)]
pub(crate) unsafe fn issue<T>(socket: impl AsFd, name: InterfaceName, data: &mut T) -> io::Result<()> {
    const { assert!(size_of::<Request<T>>() == size_of::<libc::ifreq>()) };
    let request = Request { name: name.to_c(), data: &raw mut *data, unused: [0; 24 - size_of::<usize>()] };
    // SAFETY: SIOCETHTOOL reads a struct ifreq, of which `Request` has size and layout. The caller guarantees
    // that `data`, to which it points, is the command's structure; it lives until the call returns.
    unsafe { ioctl(socket, Setter::<SIOCETHTOOL, _>::new(request)) }
}

/// Issues a command that sets or returns a value.
#[allow(unsafe_code)]
fn exchange(name: InterfaceName, value: &mut Value) -> io::Result<()> {
    let any_socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: the commands of features and flags work on a struct ethtool_value.
    unsafe { issue(any_socket, name, value) }
}
