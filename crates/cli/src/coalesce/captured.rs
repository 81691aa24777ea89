//! Frames of a capture file.

/// A frame as it was captured.
pub(super) struct Captured {
    pub(super) bytes: Vec<u8>,
    /// The length on the wire.
    pub(super) original_len: u32,
}

impl AsRef<[u8]> for Captured {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
