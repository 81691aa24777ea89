//! iWARP: RDMAP (RFC 5040) over DDP (RFC 5041) over MPA (RFC 5044, RFC 6581) over TCP, with the atomic
//! operations and immediate data of RFC 7306.
//!
//! A connection starts with two [`StartFrame`]s, the initiator's Request and the responder's Reply. After
//! that each direction is a sequence of [`Fpdu`]s, optionally with [`Markers`] every 512 bytes. An FPDU holds
//! one DDP segment: a [`Segment`] header, then payload or, in untagged segments, an RDMAP header such as
//! [`ReadRequest`].

mod atomic;
mod error;
mod fpdu;
mod markers;
mod read_request;
mod segment;
mod start;
mod terminate;

pub use atomic::{AtomicOperation, AtomicRequest, AtomicResponse};
pub use error::{FpduError, SegmentError, StartError};
pub use fpdu::{CRC_LEN, Crc, Fpdu, MAX_ULPDU, crc32c, fpdu_len};
pub use markers::{MARKER_INTERVAL, MARKER_LEN, MAX_MARKED_ULPDU, Markers};
pub use read_request::ReadRequest;
pub use segment::{MessageNumber, Opcode, Place, Queue, STag, Segment};
pub use start::{Enhanced, MAX_PRIVATE_DATA, Rtr, StartFlags, StartFrame, StartKind};
pub use terminate::{NibbleOrder, TerminateCause, TerminateCode, Terminated};

/// Bytes of immediate data, the payload of an IMMEDIATE message (RFC 7306 section 6.1).
pub const IMMEDIATE_LEN: usize = 8;
