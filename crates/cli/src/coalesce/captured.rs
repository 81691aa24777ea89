//! Captured frames as engine inputs.

use nichrome_port::capture::{PacketOptions, Record};
use nichrome_wire::EthernetHeader;

/// A captured frame. Engines see an Ethernet frame, whose header may replace a cooked header, or an IP
/// packet, or nothing if the record has neither. Boxed, because engines reserve places for hundreds of
/// thousands of frames.
pub(super) struct Captured(Box<Contents>);

struct Contents {
    /// The frame. If it had a cooked header, an Ethernet header replaces the end of it.
    bytes: Vec<u8>,
    /// Offset in `bytes` of the part that engines see.
    start: usize,
    /// The cooked or loopback header of the capture; empty with other link types.
    header: Box<[u8]>,
    /// Length on the wire, in bytes.
    original_len: u32,
    comment: Option<Box<str>>,
    flags: Option<u32>,
    dropped: Option<u64>,
}

impl Captured {
    pub(super) fn new(record: &Record, mut bytes: Vec<u8>, options: PacketOptions<'_>) -> Self {
        let Record { link_type, original_len, .. } = *record;
        let (header, start): (Box<[u8]>, usize) = match link_type.cooked(&bytes) {
            Some(cooked) => {
                let (len, start) = (cooked.header_len(), cooked.header_len() - EthernetHeader::LEN);
                let header = bytes[..len].into();
                bytes[start..len].copy_from_slice(&cooked.to_ethernet());
                (header, start)
            }
            None => {
                let len = link_type.header_len(&bytes);
                (bytes[..len].into(), len)
            }
        };
        let PacketOptions { comment, flags, dropped } = options;
        let comment = comment.map(Into::into);
        Self(Box::new(Contents { bytes, start, header, original_len, comment, flags, dropped }))
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

    /// Returns true if engines would see nothing: the record is known to be no IP packet.
    pub(super) fn is_not_ip(&self) -> bool {
        self.0.start > 0 && self.0.start == self.0.bytes.len()
    }

    /// Returns true if the capture's snap length cut the packet.
    pub(super) fn is_cut(&self) -> bool {
        (self.0.bytes.len() as u64) < u64::from(self.0.original_len)
    }

    /// Converts a packet of the engine to the capture's link type. Returns its two parts: this frame's
    /// captured header instead of the Ethernet header that replaced it, and the rest of `packet`.
    pub(super) fn as_captured<'a>(&'a self, packet: &'a [u8]) -> [&'a [u8]; 2] {
        let Contents { header, start, .. } = &*self.0;
        [header, packet.get(header.len() - start..).unwrap_or_default()]
    }
}

impl AsRef<[u8]> for Captured {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes[self.0.start..]
    }
}
