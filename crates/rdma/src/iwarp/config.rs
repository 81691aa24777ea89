//! The iWARP configuration of a device.

/// The iWARP configuration of a device.
#[derive(Clone, Debug, Default)]
pub struct IwarpConfig {
    /// How a SEND without a posted receive is handled.
    pub without_receive: WithoutReceive,
}

/// How a SEND without a posted receive is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WithoutReceive {
    /// The stream is not read until a receive is posted, and TCP's window stops the peer.
    #[default]
    Wait,
    /// A TERMINATE ends the connection (RFC 5041 section 7.1, "no buffer available").
    Terminate,
}
