//! Errors of iWARP's formats.

use thiserror::Error;

/// An invalid MPA Request or Reply frame (RFC 5044 section 7.1.1, RFC 6581 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MpaError {
    /// The key is neither a Request's nor a Reply's.
    #[error("the peer does not speak MPA")]
    Key,
    /// A revision other than 1 and 2.
    #[error("MPA revision {0}, where 1 or 2 is expected")]
    Revision(u8),
    /// More private data than 512 bytes.
    #[error("{0} bytes of MPA private data, more than 512")]
    PrivateData(u16),
    /// The S flag without the four bytes of IRD and ORD.
    #[error("an enhanced MPA frame without IRD and ORD")]
    NotEnhanced,
}

/// An invalid FPDU (RFC 5044 section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FpduError {
    /// The CRC is wrong.
    #[error("wrong MPA CRC")]
    Crc,
    /// A marker does not point to the start of its FPDU.
    #[error("an MPA marker does not point to the start of its FPDU")]
    Marker,
}

/// An invalid DDP segment or RDMAP message (RFC 5041 section 7, RFC 5040 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// Fewer bytes than the headers take.
    #[error("a DDP segment of {0} bytes is shorter than its header")]
    Short(usize),
    /// A DDP version other than 1.
    #[error("DDP version {0}, where 1 is expected")]
    DdpVersion(u8),
    /// An RDMAP version other than 1.
    #[error("RDMAP version {0}, where 1 is expected")]
    RdmapVersion(u8),
    /// An opcode that RFC 5040 and RFC 7306 do not define.
    #[error("unknown RDMAP opcode {0}")]
    Opcode(u8),
    /// A tagged opcode in an untagged segment, or the reverse.
    #[error("RDMAP opcode {0} in the wrong kind of DDP segment")]
    Tagged(u8),
    /// A queue number other than the opcode's.
    #[error("DDP queue {0} does not match the opcode")]
    Queue(u32),
    /// An atomic operation that RFC 7306 does not define.
    #[error("unknown atomic operation {0}")]
    Atomic(u8),
}
