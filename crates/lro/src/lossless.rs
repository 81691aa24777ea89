//! The lossless rule of the `gro` profile: which segments can be held, which extend a run, and which end it.

use nichrome_wire::TcpFlags;

use crate::checksums;
use crate::frame::{ChecksumStatus, Frame};
use crate::reason::{FlushReason, PassReason};
use crate::run::{Limits, Run};
use crate::segment::{Follower, Segment, UsualChecksums};

/// Returns why a segment with these flags ends its aggregate.
#[inline]
pub(crate) fn ended_by(flags: TcpFlags) -> Option<FlushReason> {
    if !flags.intersects(TcpFlags::PSH | TcpFlags::FIN) {
        None
    } else if flags.contains(TcpFlags::FIN) {
        Some(FlushReason::Fin)
    } else {
        Some(FlushReason::Psh)
    }
}

/// Returns why a segment with an equal header cannot extend the run; `None` if it can.
#[inline]
pub(crate) fn why_not<B: AsRef<[u8]>>(
    run: &Run<B>,
    follower: &Follower,
    limits: Limits,
) -> Option<FlushReason> {
    if follower.seq != run.end {
        Some(FlushReason::OutOfOrder)
    } else if follower.payload_len > run.mss {
        Some(FlushReason::LongSegment)
    } else if run.len_on_ip() + follower.payload_len > limits.bytes {
        Some(FlushReason::MaxLength)
    } else if run.segments() >= limits.segments as usize {
        Some(FlushReason::MaxSegments)
    } else if run.identification_with(follower.idents).is_none() {
        Some(FlushReason::UnequalField)
    } else {
        None
    }
}

/// Returns true if the checksums of a frame can be re-created.
#[inline]
pub(crate) fn has_usual_checksums<B>(frame: &Frame<B>, usual: UsualChecksums) -> bool {
    usual.ip && (usual.tcp || frame.checksum == ChecksumStatus::Unfinished)
}

/// Returns why a segment cannot be held: a wrong checksum, or a [`barrier`]. Flags in `free` do not prevent
/// holding.
#[inline(always)]
pub(crate) fn why_not_held<B: AsRef<[u8]>>(
    segment: &Segment,
    frame: &Frame<B>,
    free: TcpFlags,
) -> Option<PassReason> {
    match checksums::verify(frame, segment.layout, segment.payload_len) {
        Ok(()) => barrier(segment, frame, free),
        Err(_) => Some(PassReason::BadChecksum),
    }
}

/// Returns why a segment that did not extend a run cannot be held either. The engine flushes its flow before
/// it passes the segment.
#[inline]
fn barrier<B>(segment: &Segment, frame: &Frame<B>, free: TcpFlags) -> Option<PassReason> {
    if let Some(reason) = segment.control_unless(free) {
        Some(reason)
    } else if segment.trailer {
        Some(PassReason::Trailer)
    } else if !has_usual_checksums(frame, segment.usual_checksums) {
        Some(PassReason::UnusualChecksum)
    } else if segment.flags.contains(TcpFlags::FIN) {
        Some(PassReason::Fin)
    } else if segment.flags.contains(TcpFlags::PSH) {
        Some(PassReason::Psh)
    } else {
        None
    }
}
