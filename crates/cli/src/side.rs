//! The two ends of a path.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// The left end, where servers run.
    Left,
    /// The right end, where clients run.
    Right,
}

impl Side {
    /// Both ends.
    pub(crate) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// Returns the other end.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// Returns the name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Returns the name of the direction towards this end.
    pub(crate) const fn direction(self) -> &'static str {
        match self {
            Self::Left => "to_left",
            Self::Right => "to_right",
        }
    }

    /// Returns the number: 1 or 2.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
        }
    }

    /// Returns this end's element of a pair, the left one first.
    pub(crate) fn of<T>(self, pair: &[T; 2]) -> &T {
        &pair[usize::from(self.number() - 1)]
    }
}
