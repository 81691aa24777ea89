//! Options of the connection manager.

use nichrome_wire::cm::{Guid, TimeExponent};

/// Options of the connection manager. Both ends of a connection may have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmOptions {
    /// Time until an unanswered message is retransmitted.
    pub response_timeout: TimeExponent,
    /// Retransmissions of a message, 0 to 15.
    pub max_retries: u8,
    /// The time that this end requests by MRA while its program has not answered a peer's request; also the
    /// longest time that this end grants to peers that request it.
    pub service_timeout: TimeExponent,
    /// The adapter's GUID; `None` for a random one.
    pub guid: Option<Guid>,
}

impl Default for CmOptions {
    /// A message is retransmitted every 1.07 s, up to 15 times. A program has 69 s to answer a request.
    fn default() -> Self {
        Self {
            response_timeout: TimeExponent::new(18),
            max_retries: 15,
            service_timeout: TimeExponent::new(24),
            guid: None,
        }
    }
}
