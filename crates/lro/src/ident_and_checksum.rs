//! The fields in which the IPv4 headers of consecutive segments of a flow differ.

use nichrome_wire::checksum;

/// The eight bytes of an IPv4 header from the identification to the checksum, as one word. If the checksum of
/// a header is right and not 0xFFFF, so is that of a header that is equal but for the fields of
/// [`IdentAndChecksum::after`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdentAndChecksum(u64);

impl IdentAndChecksum {
    /// In one's complement, an identification greater by 1 makes the checksum smaller by 1.
    const STEP: u64 = (1 << 48) - 1;

    /// Returns the fields of an IPv4 header.
    #[inline(always)]
    pub(crate) fn of(ip: &[u8; 12]) -> Self {
        let [_, _, _, _, a, b, c, d, e, f, g, h] = *ip;
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Returns the fields of the same header with an identification that is greater by `steps`.
    #[inline(always)]
    pub(crate) fn after(self, steps: u16) -> Self {
        let steps = u64::from(steps);
        match self.0.checked_add(steps * Self::STEP) {
            Some(next) if self.0 & 0xFFFF >= steps => Self(next),
            _ => self.after_wrap(steps as u16),
        }
    }

    /// As [`Self::after`], if the identification or the checksum wraps: the sum has an end-around carry.
    #[cold]
    fn after_wrap(self, steps: u16) -> Self {
        let [a, b, c, d, e, f, g, h] = self.0.to_be_bytes();
        let (ident, checksum) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([g, h]));
        let next = ident.wrapping_add(steps);
        let [a, b] = next.to_be_bytes();
        let [g, h] = checksum::update(checksum, ident, next).to_be_bytes();
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_checksum_is_the_updated_one() {
        for checksum in [0, 1, 0x1234, 0x7FFF, 0xFFFD, 0xFFFE] {
            for (ident, steps) in (0..=u16::MAX).flat_map(|ident| [(ident, 0), (ident, 1), (ident, 900)]) {
                let fields =
                    IdentAndChecksum(u64::from(ident) << 48 | 0x4000_4006 << 16 | u64::from(checksum));
                let next = ident.wrapping_add(steps);
                let updated = u64::from(checksum::update(checksum, ident, next));
                let expected = u64::from(next) << 48 | 0x4000_4006 << 16 | updated;
                assert_eq!(fields.after(steps), IdentAndChecksum(expected), "{ident} {checksum} {steps}");
            }
        }
    }
}
