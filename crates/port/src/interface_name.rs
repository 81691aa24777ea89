//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

use rustix::io::{self, Errno};
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use thiserror::Error;

/// A valid interface name: 1 to 15 bytes, no spaces, slashes or colons, not `.` or `..` (Linux's
/// `dev_valid_name`), and no percent signs, by which Linux numbers a new interface (`tap%d`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceName {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

/// The error for an invalid interface name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not an interface name: expected 1 to 15 characters without spaces (for Linux also the byte A0), slashes, colons and percent signs"
)]
pub struct InvalidName(String);

impl InterfaceName {
    const MAX_LEN: usize = libc::IFNAMSIZ - 1;

    /// Returns the current name of the interface with this index.
    ///
    /// # Errors
    /// `ENODEV`: there is none.
    pub fn of_index(index: u32) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        index_to_name(socket, index)?.parse().map_err(|_| Errno::NODEV)
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        // Copied from a `str`, so always valid UTF-8.
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Returns the name padded with zeros, as `struct ifreq` has it.
    pub(crate) fn to_c(self) -> [u8; libc::IFNAMSIZ] {
        let mut padded = [0; libc::IFNAMSIZ];
        padded[..Self::MAX_LEN].copy_from_slice(&self.bytes);
        padded
    }
}

impl FromStr for InterfaceName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        let forbidden = |byte: u8| matches!(byte, 0 | b'/' | b':' | b'%') || is_space(byte);
        let fits = (1..=Self::MAX_LEN).contains(&name.len());
        if !fits || name == "." || name == ".." || name.bytes().any(forbidden) {
            return Err(InvalidName(name.into()));
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, len: name.len() as u8 })
    }
}

/// Returns true for the bytes that Linux's `isspace` classifies as spaces, in Latin-1. The no-break space is
/// also the last byte of some letters in UTF-8.
const fn is_space(byte: u8) -> bool {
    const VERTICAL_TAB: u8 = 0x0B;
    const NO_BREAK_SPACE: u8 = 0xA0;
    byte.is_ascii_whitespace() || matches!(byte, VERTICAL_TAB | NO_BREAK_SPACE)
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_named_by_its_index() {
        assert_eq!(InterfaceName::of_index(1).unwrap().as_str(), "lo");
        assert_eq!(InterfaceName::of_index(u32::MAX >> 1), Err(Errno::NODEV));
    }

    #[test]
    fn valid_names_are_those_that_the_kernel_accepts() {
        for name in ["eth0", "a", "abcdefghijklmno", "...", "br-lan.7"] {
            assert_eq!(name.parse::<InterfaceName>().unwrap().to_string(), name);
        }
        for name in
            ["", ".", "..", "abcdefghijklmnop", "a b", "a/b", "a:1", "a\0", "a\t", "a\u{b}", "à", "a%d"]
        {
            assert_eq!(name.parse::<InterfaceName>(), Err(InvalidName(name.into())));
        }
        assert_eq!("ab".parse::<InterfaceName>().unwrap().to_c(), *b"ab\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
}
