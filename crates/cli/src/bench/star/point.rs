//! What is measured of a server with some number of connections.

use serde::Serialize;

/// The transports, and what the server is told to have it.
pub(super) const TRANSPORTS: [(&str, &str, &str); 2] =
    [("star", "--transport star --stateless self", "--transport star"), ("roce", "", "")];

/// A server with so many connections.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) transport: &'static str,
    pub(super) connections: u32,
    /// What its card holds for all of them.
    pub(super) card_state_bytes: u64,
    /// What its process grows by for each; `None` for fewer than 1000, which are too few to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host_bytes_per_connection: Option<u64>,
    /// WRITEs of 64 KB to it, 128 at once on all connections in turn.
    pub(super) gbps: f64,
    /// WRITEs of 8 bytes to it, 128 at once on all connections in turn.
    pub(super) messages_per_s: f64,
    /// A WRITE of 8 bytes to it and its completion, one at a time on all connections in turn.
    pub(super) latency_us: f64,
}
