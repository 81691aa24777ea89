//! The transports of `nichrome rdma` that measurements compare.

/// A transport with the options of `nichrome rdma` that select it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transport {
    pub(super) name: &'static str,
    /// Options of the server, which is the target of WRITEs.
    pub(super) server: &'static str,
    pub(super) client: &'static str,
}

pub(super) const ROCE: Transport = Transport { name: "roce", server: "", client: "" };

/// StaR with a stateless server.
pub(super) const STAR: Transport =
    Transport { name: "star", server: "--transport star --stateless self", client: "--transport star" };

pub(super) const IWARP: Transport =
    Transport { name: "iwarp", server: "--transport iwarp", client: "--transport iwarp" };

/// iWARP with CRC-32C, computed and checked at both ends.
pub(super) const IWARP_CRC: Transport =
    Transport { name: "iwarp-crc", server: "--transport iwarp --crc", client: "--transport iwarp --crc" };
