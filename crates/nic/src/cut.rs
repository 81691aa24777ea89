//! Frames as a kernel leaves them to its card, and the packets for the wire that they become.

use nichrome_lro::ChecksumStatus;
use nichrome_tso::{SegmentError, Segments};
use nichrome_wire::{ChecksumState, VirtioNetError, VirtioNetHeader, VirtioNetRepr};
use thiserror::Error;

/// Why a frame does not become packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CutError {
    /// Its virtio_net_hdr makes no sense.
    #[error(transparent)]
    Virtio(#[from] VirtioNetError),
    /// The frame is not what its virtio_net_hdr says.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// The packets of a frame, their checksums complete, and what is known of these.
#[inline]
pub fn cut<'a>(
    frame: &'a [u8],
    virtio: &VirtioNetHeader,
) -> Result<(Segments<'a>, ChecksumStatus), CutError> {
    let virtio = VirtioNetRepr::parse(virtio, frame.len())?;
    let segments = Segments::new(frame, &virtio)?;
    let checksum = match (virtio.checksum, virtio.gso) {
        (ChecksumState::Unchecked, None) => ChecksumStatus::Unknown,
        _ => ChecksumStatus::Verified,
    };
    Ok((segments, checksum))
}
