//! The rule by which IPv4 identifications advance within an aggregate.

/// How the IPv4 identification advances from segment to segment of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification {
    /// Incremented by one per segment.
    Incrementing,
    /// Constant.
    Fixed,
    /// Not recorded: the profile does not preserve it.
    Any,
}

impl Identification {
    /// Returns the rule of an aggregate that packet `count` (from 0) joins, with the identification `next`.
    /// The packets before it began with `first` and follow `self`. `None` if no rule fits all of them.
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

    /// Returns the identification of packet `nth` if the first has `first`.
    #[inline]
    pub(crate) fn of(self, first: u16, nth: u16) -> u16 {
        match self {
            Self::Incrementing => first.wrapping_add(nth),
            Self::Fixed | Self::Any => first,
        }
    }
}
