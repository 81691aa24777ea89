//! The control bits of a TCP segment.

use std::fmt;
use std::ops::BitOr;

/// TCP's control bits (RFC 9293 section 3.1) and the accurate ECN bit (RFC 9768 section 3.1): nine bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(u16);

impl TcpFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Push: hand the data to the application now.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgment number is valid.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// ECN echo (RFC 3168 section 6.1).
    pub const ECE: Self = Self(0x040);
    /// Congestion window reduced (RFC 3168 section 6.1).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768), formerly the nonce sum, NS.
    pub const AE: Self = Self(0x100);

    /// Creates flags from the low nine bits; ignores the others.
    #[inline]
    pub const fn from_bits_truncate(bits: u16) -> Self {
        Self(bits & 0x1FF)
    }

    /// Returns the flags as header bits, 0 to 0x1FF.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns true if all of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if any of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of these flags and `other`.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags without `other`.
    #[inline]
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns true if no flag is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl fmt::Display for TcpFlags {
    /// Writes names from the lowest bit: `SYN|ACK`; `none` if empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 9] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
        if self.is_empty() {
            return f.write_str("none");
        }
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        for (place, (_, name)) in set.enumerate() {
            f.write_str(if place == 0 { "" } else { "|" })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_display_by_name() {
        assert_eq!((TcpFlags::ACK | TcpFlags::SYN).to_string(), "SYN|ACK");
        assert_eq!((TcpFlags::AE | TcpFlags::CWR | TcpFlags::ECE).to_string(), "ECE|CWR|AE");
        assert_eq!(TcpFlags::NONE.to_string(), "none");
    }

    #[test]
    fn flags_are_a_set() {
        let both = TcpFlags::PSH | TcpFlags::ACK;
        assert!(both.contains(TcpFlags::ACK) && both.intersects(TcpFlags::PSH | TcpFlags::FIN));
        assert!(!both.contains(TcpFlags::PSH | TcpFlags::FIN) && !both.intersects(TcpFlags::FIN));
        assert_eq!(both.difference(TcpFlags::PSH), TcpFlags::ACK);
        assert_eq!(TcpFlags::from_bits_truncate(0xFFFF).bits(), 0x1FF);
    }
}
