//! Errors of connection management's format.

use thiserror::Error;

/// Why a datagram is no message of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CmError {
    /// Not 256 bytes.
    #[error("a MAD of {0} bytes, where 256 are expected")]
    Length(usize),
    /// Base version, class, class version or method of another protocol.
    #[error("not a connection management MAD")]
    Class,
    /// An attribute that chapter 12 does not define.
    #[error("unknown connection management attribute {0:#06x}")]
    Attribute(u16),
    /// A reserved path MTU.
    #[error("reserved path MTU {0}")]
    PathMtu(u8),
    /// A reserved transport service.
    #[error("reserved transport service {0}, extended {1}")]
    Service(u8, u8),
    /// A reserved value of the message that an MRA or REJ answers.
    #[error("reserved value {0} for the acknowledged or rejected message")]
    Answered(u8),
    /// More additional reject information than 72 bytes.
    #[error("{0} bytes of additional information, more than 72")]
    Information(u8),
}
