//! iWARP: RDMAP (RFC 5040) over DDP (RFC 5041) over MPA (RFC 5044, RFC 6581) over TCP, with the atomic
//! operations and immediate data of RFC 7306.
//!
//! A connection starts with two [`MpaFrame`]s, the initiator's Request and the responder's Reply. After
//! that each direction is a sequence of [`Fpdu`]s, optionally with [`Markers`] every 512 bytes. An FPDU holds
//! one DDP segment: a [`Segment`] header, then payload or, in untagged segments, an RDMAP header such as
//! [`ReadRequest`].

mod atomic;
mod error;
mod fpdu;
mod markers;
mod mpa_frame;
mod read_request;
mod segment;
mod terminate;

pub use atomic::{AtomicOperation, AtomicRequest, AtomicResponse};
pub use error::{FpduError, MpaError, SegmentError};
pub use fpdu::{CRC_LEN, Crc, Fpdu, MAX_ULPDU, crc32c, fpdu_len};
pub use markers::{MARKER_INTERVAL, MARKER_LEN, MAX_MARKED_ULPDU, Markers};
pub use mpa_frame::{Enhanced, MAX_PRIVATE_DATA, MpaFlags, MpaFrame, MpaFrameKind, Rtr};
pub use read_request::ReadRequest;
pub use segment::{MessageNumber, Opcode, Queue, STag, Segment, SegmentDestination};
pub use terminate::{NibbleOrder, TerminateCause, TerminateCode, Terminated};

/// Bytes of immediate data, the payload of an IMMEDIATE message (RFC 7306 section 6.1).
pub const IMMEDIATE_LEN: usize = 8;
