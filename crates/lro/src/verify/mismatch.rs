//! The ways in which an engine's output can differ from its input.

use nichrome_wire::SeqNumber;
use thiserror::Error;

use crate::{DropReason, FlowKey};

/// The first difference between input and output.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {difference}", flow.map_or("outside of any TCP flow".into(), |flow| flow.to_string()))]
pub struct Mismatch {
    /// The flow, if it belongs to one.
    pub flow: Option<FlowKey>,
    /// What differs.
    pub difference: Difference,
}

/// A difference between input and output. Frames are counted from 1 in the order of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Difference {
    /// A frame came out that equals no outstanding one.
    #[error("output frame of {len} bytes equals no outstanding input; frame {due} was expected")]
    Unknown {
        /// Its length in bytes.
        len: usize,
        /// The frame that was expected.
        due: u64,
    },
    /// A frame came out and its flow has none outstanding.
    #[error("output frame of {len} bytes equals no outstanding input")]
    Surplus {
        /// Its length in bytes.
        len: usize,
    },
    /// A frame came out before one that was received before it.
    #[error("frame {frame} overtook frame {overtaken}")]
    Overtook {
        /// The frame that came out.
        frame: u64,
        /// The frame that was received first.
        overtaken: u64,
    },
    /// A frame never came out.
    #[error("frame {frame} never came out")]
    Missing {
        /// The frame.
        frame: u64,
    },
    /// Fewer or more segments came out than frames came in.
    #[error("{came_in} frames came in, {came_out} came out as frames, segments or drops")]
    Count {
        /// Frames received.
        came_in: u64,
        /// Frames, segments of aggregates, and drops.
        came_out: u64,
    },
    /// Bytes of the stream never came out.
    #[error("{len} bytes from sequence number {} of frame {frame} never came out", seq.0)]
    MissingBytes {
        /// The sequence number of the first byte.
        seq: SeqNumber,
        /// Number of bytes.
        len: usize,
        /// The frame that contained them.
        frame: u64,
    },
    /// Bytes came out that were not received.
    #[error("{len} bytes from sequence number {} came out and were not all received", seq.0)]
    NotReceived {
        /// The sequence number of the first byte.
        seq: SeqNumber,
        /// Number of bytes.
        len: usize,
    },
    /// A byte of the stream changed.
    #[error("the byte at sequence number {} was {received:#04x} in frame {frame} and came out as {delivered:#04x}", seq.0)]
    Changed {
        /// Its sequence number.
        seq: SeqNumber,
        /// The frame that contained it.
        frame: u64,
        /// As it was received.
        received: u8,
        /// As it came out.
        delivered: u8,
    },
    /// A frame was dropped without a valid reason.
    #[error("a frame of {len} bytes was dropped with the wrong reason {}", reason.name())]
    Dropped {
        /// Its length in bytes.
        len: usize,
        /// The reason given.
        reason: DropReason,
    },
    /// A header field of an aggregate contradicts its segments.
    #[error("the aggregate from sequence number {} has another {field} than its segments", seq.0)]
    Field {
        /// Its sequence number.
        seq: SeqNumber,
        /// Which header field.
        field: &'static str,
    },
    /// An aggregate is not a valid packet.
    #[error("an aggregate of {len} bytes is malformed: {what}")]
    Malformed {
        /// Its length in bytes.
        len: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}
