//! A measured point: one transport and one number of connections.

use serde::Serialize;

/// The transports, each with the options of server and client.
pub(super) const TRANSPORTS: [(&str, &str, &str); 2] =
    [("star", "--transport star --stateless self", "--transport star"), ("roce", "", "")];

/// The results of a server with `connections` connections. The names of the fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) transport: &'static str,
    pub(super) connections: u32,
    /// Connection state that a card would hold for all connections.
    pub(super) card_state_bytes: u64,
    /// Growth of the server's resident memory per connection; `None` below 1000 connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host_bytes_per_connection: Option<u64>,
    /// 64 KB WRITEs to the server, 128 outstanding on all connections in turn.
    pub(super) gbps: f64,
    /// 8-byte WRITEs to the server, 128 outstanding on all connections in turn.
    pub(super) messages_per_s: f64,
    /// Time from posting an 8-byte WRITE to its completion, one outstanding on all connections in turn.
    pub(super) latency_us: f64,
}
