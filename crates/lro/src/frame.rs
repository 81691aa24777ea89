//! What a driver gives to an engine.

/// What is known of the checksums of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// Nothing: the engine verifies them.
    #[default]
    Unknown,
    /// A card or driver has verified them (virtio's `DATA_VALID`).
    Verified,
    /// The TCP checksum field holds the pseudo-header's sum only: the frame comes from a sender on this machine and
    /// has not been on a wire (virtio's `NEEDS_CSUM`).
    Unfinished,
}

/// A received frame: a buffer, which goes back to where it came from when it is dropped, and what is known of it.
#[derive(Clone, Debug)]
pub struct Frame<B> {
    /// The bytes from the link header on, or from the IP header on where the medium is IP.
    pub buffer: B,
    /// What is known of the checksums.
    pub checksum: ChecksumStatus,
}

impl<B: AsRef<[u8]>> Frame<B> {
    /// A frame of which nothing is known.
    #[inline]
    pub fn new(buffer: B) -> Self {
        Self { buffer, checksum: ChecksumStatus::Unknown }
    }

    /// A frame whose checksums are known to be right.
    #[inline]
    pub fn verified(buffer: B) -> Self {
        Self { buffer, checksum: ChecksumStatus::Verified }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}
