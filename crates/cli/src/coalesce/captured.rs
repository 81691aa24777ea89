//! Frames of a capture file.

use nichrome_port::capture::Record;

/// A frame as it was captured. Engines see what begins with the IP packet where they do not know the link's header, and nothing
/// of frames without an IP packet there.
pub(super) struct Captured {
    bytes: Vec<u8>,
    /// Bytes before those that engines see.
    header_len: usize,
    /// The length on the wire.
    pub(super) original_len: u32,
    /// The comments of the record.
    pub(super) comment: Option<Box<str>>,
}

impl Captured {
    pub(super) fn new(record: &Record, bytes: Vec<u8>, comment: Option<&str>) -> Self {
        let header_len = record.link_type.header_len(&bytes);
        Self { bytes, header_len, original_len: record.original_len, comment: comment.map(Into::into) }
    }

    /// The link's header, where engines do not know it.
    pub(super) fn link_header(&self) -> &[u8] {
        &self.bytes[..self.header_len]
    }
}

impl AsRef<[u8]> for Captured {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.header_len..]
    }
}
