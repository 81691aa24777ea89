//! Completes the checksum of a frame that is not segmented.

use nichrome_wire::checksum::checksum;
use nichrome_wire::{ChecksumState, VirtioNetRepr, transmitted_checksum};

use crate::error::SegmentError;
use crate::udp;

/// Completes the checksum of a frame in place. Does nothing if the checksum is complete already. The frame
/// must not need segmentation.
///
/// # Errors
/// The frame needs segmentation, or the checksum field lies beyond its end. The frame is unchanged then.
pub fn complete_checksum(frame: &mut [u8], virtio: &VirtioNetRepr) -> Result<(), SegmentError> {
    if let Some(gso) = virtio.gso {
        return Err(SegmentError::NotOnePacket(gso.gso_type));
    }
    let ChecksumState::Partial { start, offset } = virtio.checksum else { return Ok(()) };
    check_within(frame, start, offset)?;
    let covered = &mut frame[usize::from(start)..];
    put(covered, offset, checksum(covered));
    Ok(())
}

/// Checks that a checksum field `offset` bytes after `start` is within the frame.
pub(crate) fn check_within(frame: &[u8], start: u16, offset: u16) -> Result<(), SegmentError> {
    if usize::from(start) + usize::from(offset) + 2 > frame.len() {
        return Err(SegmentError::ChecksumBeyondFrame { start, offset, frame_len: frame.len() });
    }
    Ok(())
}

/// Writes a checksum at `offset` of the bytes that it covers.
#[inline]
pub(crate) fn put(covered: &mut [u8], offset: u16, sum: u16) {
    // UDP-Lite, the only other protocol with its checksum at this offset, has the same rule.
    let sum = if offset == udp::CHECKSUM_AT { transmitted_checksum(sum) } else { sum };
    covered[usize::from(offset)..][..2].copy_from_slice(&sum.to_be_bytes());
}
