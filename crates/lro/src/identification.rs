//! The rule that the IPv4 identifications of merged segments follow.

/// How the IPv4 identification goes on from segment to segment of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification {
    /// One more each.
    Incrementing,
    /// The same in all.
    Fixed,
    /// As it came: the profile does not keep it.
    Any,
}

impl Identification {
    /// The rule that identifications follow which began with `first` and go on with `next` after `count` packets, by this rule
    /// where there is more than one; `None` if they follow none.
    #[inline]
    pub(crate) fn with(self, first: u16, next: u16, count: usize) -> Option<Self> {
        let ahead = usize::from(next.wrapping_sub(first));
        let rule = if ahead == 0 {
            Self::Fixed
        } else if ahead == count {
            Self::Incrementing
        } else {
            return None;
        };
        (count == 1 || rule == self).then_some(rule)
    }

    /// The identification of packet `nth` where the first one has `first`.
    #[inline]
    pub(crate) fn of(self, first: u16, nth: u16) -> u16 {
        match self {
            Self::Incrementing => first.wrapping_add(nth),
            Self::Fixed | Self::Any => first,
        }
    }
}
