//! TCP sequence numbers.

use std::ops::{Add, AddAssign, Sub};

/// A TCP sequence number with serial arithmetic modulo 2³² (RFC 9293 section 3.4, RFC 1982). Numbers 2³¹ or
/// more apart are unordered, so this type has no `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Returns the signed distance from `other` to `self`: positive if `self` is later.
    #[inline]
    pub const fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Returns true if `self` precedes `other`.
    #[inline]
    pub const fn before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// Returns true if `self` follows `other`.
    #[inline]
    pub const fn after(self, other: Self) -> bool {
        self.since(other) > 0
    }

    /// Returns the later of the two; `self` if they are 2³¹ apart, which RFC 1982 leaves undefined.
    #[inline]
    pub const fn later(self, other: Self) -> Self {
        if other.before(self) { self } else { other }
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn sub(self, distance: u32) -> Self {
        Self(self.0.wrapping_sub(distance))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let before = SeqNumber(u32::MAX - 10);
        let after = before + 20;
        assert_eq!(after, SeqNumber(9));
        let mut moved = before;
        moved += 20;
        assert_eq!(moved, after);
        assert!(after.after(before) && before.before(after));
        assert_eq!(after.since(before), 20);
        assert_eq!(before.since(after), -20);
        assert_eq!(before.later(after), after);
    }

    #[test]
    fn a_number_is_neither_before_nor_after_itself() {
        let n = SeqNumber(7);
        assert!(!n.before(n) && !n.after(n));
    }

    #[test]
    fn of_numbers_that_are_farthest_apart_the_first_is_later() {
        let (one, other) = (SeqNumber(7), SeqNumber(7) + (1 << 31));
        assert_eq!((one.later(other), other.later(one)), (one, other));
    }
}
