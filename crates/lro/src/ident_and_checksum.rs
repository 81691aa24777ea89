//! The fields in which the IPv4 headers of consecutive segments of a flow differ.

use nichrome_wire::checksum;

/// Identification and header checksum. If the checksum of one header is right and not 0xFFFF, so is that of each other one with these
/// fields.
#[derive(Clone, Copy)]
pub(crate) struct IdentAndChecksum {
    ident: u16,
    checksum: u16,
}

impl IdentAndChecksum {
    /// Returns the fields of an IPv4 header.
    #[inline(always)]
    pub(crate) fn of(ip: &[u8; 12]) -> Self {
        let [_, _, _, _, high, low, _, _, _, _, sum, last] = *ip;
        Self { ident: u16::from_be_bytes([high, low]), checksum: u16::from_be_bytes([sum, last]) }
    }

    /// Returns true if an IPv4 header has these fields.
    #[inline(always)]
    pub(crate) fn is_of(self, ip: &[u8; 12]) -> bool {
        ip[4..6] == self.ident.to_be_bytes() && ip[10..12] == self.checksum.to_be_bytes()
    }

    /// Returns the fields of the same header with another identification.
    #[inline(always)]
    pub(crate) fn with_ident(self, ident: u16) -> Self {
        Self { ident, checksum: checksum::update(self.checksum, self.ident, ident) }
    }

    /// As [`Self::with_ident`], for an identification that is greater by `step`, 0 or 1. In one's complement, an identification greater by 1
    /// makes the checksum smaller by 1, with an end-around borrow; from 0xFFFF to 0 nothing changes, since both are zero.
    #[inline(always)]
    pub(crate) fn next(self, step: u16) -> Self {
        let (ident, wraps) = self.ident.overflowing_add(step);
        let (checksum, borrows) = self.checksum.overflowing_sub(step - u16::from(wraps));
        Self { ident, checksum: checksum - u16::from(borrows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_checksum_is_the_updated_one() {
        for checksum in [0, 1, 0x1234, 0x7FFF, 0xFFFD, 0xFFFE] {
            for ident in 0..=u16::MAX {
                let fields = IdentAndChecksum { ident, checksum };
                let updated = fields.with_ident(ident.wrapping_add(1));
                let (next, same) = (fields.next(1), fields.next(0));
                assert_eq!((next.ident, next.checksum), (updated.ident, updated.checksum));
                assert_eq!((same.ident, same.checksum), (ident, checksum));
            }
        }
    }
}
