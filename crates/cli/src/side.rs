//! The two ends of a path.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Where servers are.
    Left,
    /// Where clients are.
    Right,
}

impl Side {
    /// Both.
    pub(crate) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// The other one.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// The name of the direction that leads to it.
    pub(crate) const fn direction(self) -> &'static str {
        match self {
            Self::Left => "to_left",
            Self::Right => "to_right",
        }
    }

    /// Its number: 1 or 2.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
        }
    }

    /// Which of a pair, the left one first, is its own.
    pub(crate) fn of<T>(self, pair: &[T; 2]) -> &T {
        &pair[usize::from(self.number() - 1)]
    }
}
