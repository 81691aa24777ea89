//! Received frames in whatever memory they lie.

use nichrome_port::Buffer;

/// A received frame in whatever memory it lies.
pub(crate) enum Received<B> {
    /// As the wire had it.
    Wire(B),
    /// Cut from a frame that a sender on this machine had left to be cut.
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
