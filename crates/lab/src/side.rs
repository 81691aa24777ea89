//! The two ends of a path.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The usual side of servers.
    Left,
    /// The usual side of clients.
    Right,
}

impl Side {
    /// Both sides, the left one first.
    pub const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// Returns the other side.
    pub const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// Returns the side's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Returns the name of the direction towards the side.
    pub const fn direction(self) -> &'static str {
        match self {
            Self::Left => "to_left",
            Self::Right => "to_right",
        }
    }

    /// Returns the side's number: 1 or 2.
    pub const fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
        }
    }

    /// Returns the IPv4 address of the side's host.
    pub const fn ipv4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, self.number())
    }

    /// Returns the IPv6 address of the side's host.
    pub const fn ipv6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, self.number() as u16)
    }

    /// Returns the side's element of a pair, the left one first.
    pub fn of<T>(self, pair: &[T; 2]) -> &T {
        &pair[usize::from(self.number() - 1)]
    }
}

/// The text is neither `left` nor `right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be left or right")]
pub struct NoSide;

impl FromStr for Side {
    type Err = NoSide;

    fn from_str(text: &str) -> Result<Self, NoSide> {
        Self::BOTH.into_iter().find(|side| side.name() == text).ok_or(NoSide)
    }
}
