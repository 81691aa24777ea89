//! What a card does for its kernel, switched on and off (ethtool(8), `linux/ethtool.h`), in the network namespace of the
//! calling thread.

use rustix::io;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketType, socket};
use thiserror::Error;

use crate::interface_name::InterfaceName;

const SIOCETHTOOL: Opcode = 0x8946;

/// Something that a card does for its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Checksums of what is sent.
    TransmitChecksum,
    /// Segmentation of TCP.
    Tso,
    /// Segmentation just before the card.
    Gso,
    /// Coalescing of what is received.
    Gro,
}

/// Why a feature cannot be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot switch {feature:?} of {name}: {error}")]
pub struct FeatureError {
    feature: Feature,
    name: InterfaceName,
    error: io::Errno,
}

impl Feature {
    /// The command that sets it.
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
        set(name, Value { command: self.command(), data }).map_err(|error| FeatureError {
            feature: self,
            name,
            error,
        })
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` as SIOCETHTOOL reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: *mut Value,
    unused: [u8; 16],
}

#[allow(unsafe_code)]
fn set(name: InterfaceName, mut value: Value) -> io::Result<()> {
    let any_socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let request = Request { name: name.to_c(), value: &raw mut value, unused: [0; 16] };
    // SAFETY: SIOCETHTOOL reads a struct ifreq, of which `Request` has size and layout. The command reads and may write
    // the struct ethtool_value that it points to, which lives until the call is over.
    unsafe { ioctl(&any_socket, Setter::<SIOCETHTOOL, _>::new(request)) }
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());
