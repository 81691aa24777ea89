//! A measured point: one transport and one number of connections.

use serde::Serialize;
use serde_json::Value;

use super::super::transport::{ROCE, STAR, Transport};

/// The transports that are compared.
pub(super) const TRANSPORTS: [Transport; 2] = [STAR, ROCE];

/// Growth of both processes' memory per connection before the first message, in bytes. The names of the
/// fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Memory {
    /// Resident memory of the server.
    pub(super) server: u64,
    /// Resident memory of the client.
    pub(super) client: u64,
    /// Memory that the server has allocated and not freed.
    server_heap: u64,
    /// Memory that the client has allocated and not freed.
    client_heap: u64,
}

impl Memory {
    /// Returns the memory from the results of both ends; `None` if they have none.
    pub(super) fn of(server: &Value, client: &Value) -> Option<Self> {
        let each = |end: &Value, key| end[key].as_u64();
        Some(Self {
            server: each(server, "bytes_per_qp")?,
            client: each(client, "bytes_per_qp")?,
            server_heap: each(server, "heap_bytes_per_qp")?,
            client_heap: each(client, "heap_bytes_per_qp")?,
        })
    }
}

/// The results of a server with `connections` connections. The names of the fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) transport: &'static str,
    pub(super) connections: u32,
    /// Connection state that a card would hold for all connections.
    pub(super) card_state_bytes: u64,
    /// `None` below 1000 connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    /// 64 KB WRITEs to the server, 128 outstanding on all connections in turn.
    pub(super) gbps: f64,
    /// 8-byte WRITEs to the server, 128 outstanding on all connections in turn.
    pub(super) messages_per_s: f64,
    /// Time from posting an 8-byte WRITE to its completion, one outstanding on all connections in turn.
    pub(super) latency_us: f64,
}
