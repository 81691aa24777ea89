//! The result of a request: executed, or rejected with a reason.

/// The reason for rejecting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// No receive is posted.
    NotReady,
    /// The request is malformed, or not allowed on this queue pair.
    Invalid,
    /// The request names memory that it may not access.
    Access,
    /// The receive is too short for the message.
    TooLong,
    /// The receive's buffers are not in registered memory.
    Receive,
    /// The program's memory failed.
    Memory,
    /// The key cannot be invalidated.
    Invalidate,
}

/// The effects of an executed request.
pub(super) struct Done {
    /// Packet numbers that the request takes.
    pub(super) packets: u32,
    /// Whether its message is complete.
    pub(super) ends: bool,
    /// Whether a response acknowledges it.
    pub(super) answered: bool,
}

impl Done {
    pub(super) fn packet(ends: bool) -> Self {
        Self { packets: 1, ends, answered: false }
    }
}
