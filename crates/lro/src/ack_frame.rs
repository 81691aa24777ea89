//! Storage for the ACK frames that active ACK generates.

use std::fmt;

use crate::recycle::{Recycle, Recycled};

/// Longest ACK frame in bytes: Ethernet with two VLAN tags, IPv6, TCP with timestamps.
const MAX_LEN: usize = 14 + 8 + 40 + 20 + 12;

/// The buffer of one ACK frame.
pub(crate) struct AckBytes {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl AckBytes {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; MAX_LEN], len: 0 }
    }

    /// Sets the frame length and returns the bytes to fill; `None` above [`MAX_LEN`].
    pub(crate) fn resize(&mut self, len: usize) -> Option<&mut [u8]> {
        let bytes = self.bytes.get_mut(..len)?;
        self.len = len;
        Some(bytes)
    }
}

impl Recycle for AckBytes {
    /// Does nothing: [`AckBytes::resize`] sets the length of the next frame.
    fn clear(&mut self) {}
}

/// An ACK frame, ready to send, with complete checksums.
pub struct AckFrame(Recycled<AckBytes>);

impl AckFrame {
    pub(crate) fn new(bytes: Recycled<AckBytes>) -> Self {
        Self(bytes)
    }

    /// The frame's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes[..self.0.len]
    }
}

impl fmt::Debug for AckFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AckFrame").field(&self.bytes()).finish()
    }
}
