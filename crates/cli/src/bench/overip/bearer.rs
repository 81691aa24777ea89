//! What carries messages: sockets or RDMA's transports.

use nichrome_hca::Transport;
use serde::Serialize;

/// What carries messages between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Bearer {
    /// TCP; programs wait in the system call.
    SocketsBlocking,
    /// TCP; programs repeat the system call until there is something.
    SocketsNonblocking,
    Iwarp,
    Roce,
    Star,
}

impl Bearer {
    /// Every bearer, in the order of tables.
    pub(super) const ALL: [Self; 5] =
        [Self::SocketsBlocking, Self::SocketsNonblocking, Self::Iwarp, Self::Roce, Self::Star];

    /// RDMA's transports.
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

    /// RDMA's transport; `None` of sockets.
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
