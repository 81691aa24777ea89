//! Captured frames as engine inputs.

use nichrome_port::capture::{PacketOptions, Record};

/// A captured frame. If engines do not know the link header, they see the bytes from the IP packet on, or nothing if
/// there is none. A pointer: engines reserve places for hundreds of thousands of frames.
pub(super) struct Captured(Box<Contents>);

struct Contents {
    bytes: Vec<u8>,
    /// Length of the header that engines do not see, in bytes.
    header_len: usize,
    /// Length on the wire, in bytes.
    original_len: u32,
    comment: Option<Box<str>>,
    flags: Option<u32>,
    dropped: Option<u64>,
}

impl Captured {
    pub(super) fn new(record: &Record, bytes: Vec<u8>, options: PacketOptions<'_>) -> Self {
        let header_len = record.link_type.header_len(&bytes);
        let PacketOptions { comment, flags, dropped } = options;
        let comment = comment.map(Into::into);
        let original_len = record.original_len;
        Self(Box::new(Contents { bytes, header_len, original_len, comment, flags, dropped }))
    }

    /// Returns the options of the record.
    pub(super) fn options(&self) -> PacketOptions<'_> {
        let Contents { comment, flags, dropped, .. } = &*self.0;
        PacketOptions { comment: comment.as_deref(), flags: *flags, dropped: *dropped }
    }

    /// Returns the length on the wire, in bytes.
    pub(super) fn original_len(&self) -> u32 {
        self.0.original_len
    }

    /// Returns true if the record is known to be no IP packet: engines would see nothing of it.
    pub(super) fn is_not_ip(&self) -> bool {
        self.0.header_len > 0 && self.0.header_len == self.0.bytes.len()
    }

    /// Returns true if the capture's snap length cut the packet.
    pub(super) fn is_cut(&self) -> bool {
        (self.0.bytes.len() as u64) < u64::from(self.0.original_len)
    }

    /// Returns the link header that engines do not see.
    pub(super) fn link_header(&self) -> &[u8] {
        &self.0.bytes[..self.0.header_len]
    }
}

impl AsRef<[u8]> for Captured {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes[self.0.header_len..]
    }
}
