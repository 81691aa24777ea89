//! Segmentation of frames with pending offloads.

use nichrome_tso::{SegmentError, Segments};
use nichrome_wire::{ChecksumState, VirtioNetError, VirtioNetHeader, VirtioNetRepr};
use thiserror::Error;

/// A frame that cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentationError {
    /// The virtio_net_hdr is invalid.
    #[error(transparent)]
    Virtio(#[from] VirtioNetError),
    /// The frame contradicts its virtio_net_hdr.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Returns the packets of a frame with complete checksums, and their checksum state.
#[inline]
pub fn segment<'a>(
    frame: &'a [u8],
    virtio: &VirtioNetHeader,
) -> Result<(Segments<'a>, ChecksumState), SegmentationError> {
    let virtio = VirtioNetRepr::parse(virtio, frame.len())?;
    let segments = Segments::new(frame, &virtio)?;
    let checksum = match (virtio.checksum, virtio.gso) {
        (ChecksumState::Unchecked, None) => ChecksumState::Unchecked,
        _ => ChecksumState::Valid,
    };
    Ok((segments, checksum))
}
