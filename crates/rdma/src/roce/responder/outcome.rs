//! What becomes of a request: it is done, or not and why.

/// Why a request is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// No receive is posted.
    NotReady,
    /// Its form is wrong, or it is not allowed here.
    Invalid,
    /// It names memory that it may not access.
    Access,
    /// The receive is too short for it.
    TooLong,
    /// The receive's buffers are not in registered memory.
    Receive,
    /// The program's memory failed.
    Memory,
    /// The key that it invalidates cannot be.
    Invalidate,
}

/// What a request that was done amounts to.
pub(super) struct Done {
    /// Packet numbers that it takes.
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
