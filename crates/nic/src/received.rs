//! Received frames, in the wire's memory or in the worker's.

use nichrome_port::Piece;

/// A received frame.
pub(crate) enum Received<B> {
    /// In the wire's memory.
    Wire(B),
    /// Segmented from a frame with pending offloads of a local sender.
    Cut(Piece),
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
