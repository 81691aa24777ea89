//! Errors of MPA's start-up.

use nichrome_wire::iwarp::{MpaError, TerminateCode};
use thiserror::Error;

/// Why a connection was not set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// The peer's bytes are no start frame.
    #[error(transparent)]
    Frame(#[from] MpaError),
    /// A Request where a Reply is expected, or the reverse.
    #[error("the peer sent an MPA Request instead of a Reply, or a Reply instead of a Request")]
    WrongFrame,
    /// The peer rejected the connection, with this private data.
    #[error("the peer rejected the connection")]
    Rejected(Vec<u8>),
    /// Bytes follow the Request (RFC 5044 section 7.1.3: the initiator waits for the Reply).
    #[error("the peer sent data before it had the MPA Reply")]
    EarlyData,
    /// The Reply's revision is above the Request's.
    #[error("the Reply has MPA revision {0}, above that of the Request")]
    Revision(u8),
    /// The Reply's ORD exceeds this end's IRD (RFC 6581 section 9.1).
    #[error("the peer requires {ord} outstanding READs, and this end allows {ird}")]
    Ird {
        /// The peer's.
        ord: u16,
        /// This end's.
        ird: u16,
    },
    /// The initiator and the responder have no ready-to-receive message in common (RFC 6581 section 9.2).
    #[error("the peer and this end support no common ready-to-receive message")]
    Rtr,
    /// The peer closed the stream.
    #[error("the peer closed the connection during MPA's start-up")]
    Closed,
    /// The deadline has passed.
    #[error("the peer did not complete MPA's start-up in time")]
    Timeout,
}

impl SetupError {
    /// Returns the error of the TERMINATE that an initiator sends after the Reply; `None` if it only closes
    /// the stream.
    pub(super) const fn terminate(&self) -> Option<TerminateCode> {
        match self {
            Self::Ird { .. } => Some(TerminateCode::IRD),
            Self::Rtr => Some(TerminateCode::RTR),
            _ => None,
        }
    }
}
