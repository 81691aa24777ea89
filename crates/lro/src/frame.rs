//! The input of an engine: a received frame and its checksum status.

use nichrome_wire::ChecksumState;

/// Status of the TCP or UDP checksum of a received frame. The engines verify the IPv4 header checksum of
/// every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// Unknown: the engine verifies the checksum.
    #[default]
    Unknown,
    /// Verified by a card or driver (virtio's `DATA_VALID`).
    Verified,
    /// The TCP or UDP checksum field holds the pseudo-header sum only: a local sender left the checksum to
    /// the card (virtio's `NEEDS_CSUM`).
    Unfinished,
}

/// Converts the checksum state of a virtio header.
impl From<ChecksumState> for ChecksumStatus {
    fn from(state: ChecksumState) -> Self {
        match state {
            ChecksumState::Unchecked => Self::Unknown,
            ChecksumState::Valid => Self::Verified,
            ChecksumState::Partial { .. } => Self::Unfinished,
        }
    }
}

/// A received frame: a buffer, which returns to its pool when dropped, and its checksum status.
#[derive(Clone, Debug)]
pub struct Frame<B> {
    /// The bytes from the link header on, or from the IP header on with [`Medium::Ip`](crate::Medium::Ip).
    pub buffer: B,
    /// Checksum status.
    pub checksum: ChecksumStatus,
}

impl<B: AsRef<[u8]>> Frame<B> {
    /// Wraps a buffer whose TCP or UDP checksum is not verified yet.
    #[inline]
    pub fn new(buffer: B) -> Self {
        Self { buffer, checksum: ChecksumStatus::Unknown }
    }

    /// Wraps a buffer whose TCP or UDP checksum is right.
    #[inline]
    pub fn verified(buffer: B) -> Self {
        Self { buffer, checksum: ChecksumStatus::Verified }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}
