//! The bearers of messages: sockets and the RDMA transports.

use nichrome_hca::Transport;
use serde::Serialize;

/// A bearer of messages between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Bearer {
    /// TCP; programs block in the system call.
    SocketsBlocking,
    /// TCP; programs poll with a non-blocking system call.
    SocketsNonblocking,
    Iwarp,
    Roce,
    Star,
}

impl Bearer {
    /// Every bearer, in the order of tables.
    pub(super) const ALL: [Self; 5] =
        [Self::SocketsBlocking, Self::SocketsNonblocking, Self::Iwarp, Self::Roce, Self::Star];

    /// The RDMA transports.
    pub(super) const RDMA: [Self; 3] = [Self::Iwarp, Self::Roce, Self::Star];

    /// The name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SocketsBlocking => "sockets-blocking",
            Self::SocketsNonblocking => "sockets-nonblocking",
            Self::Iwarp => "iwarp",
            Self::Roce => "roce",
            Self::Star => "star",
        }
    }

    /// Returns the RDMA transport; `None` for sockets.
    pub(super) const fn transport(self) -> Option<Transport> {
        match self {
            Self::SocketsBlocking | Self::SocketsNonblocking => None,
            Self::Iwarp => Some(Transport::Iwarp),
            Self::Roce => Some(Transport::Roce),
            Self::Star => Some(Transport::Star),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_json_are_those_of_tables() {
        for bearer in Bearer::ALL {
            assert_eq!(serde_json::to_value(bearer).unwrap(), bearer.name());
        }
    }
}
