//! Received frames, in the wire's memory or in a pool buffer.

use nichrome_port::Buffer;

/// A received frame.
pub(crate) enum Received<B> {
    /// In the wire's memory.
    Wire(B),
    /// In a pool buffer: segmented from a frame with pending offloads of a local sender.
    Cut(Buffer),
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Received<B> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Wire(buffer) => buffer.as_ref(),
            Self::Cut(buffer) => buffer,
        }
    }
}
