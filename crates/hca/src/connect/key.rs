//! The pre-shared key of handshakes, and its errors.

use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// A key that both sides of a handshake know.
#[derive(Clone)]
pub(crate) struct PreSharedKey(pub(super) [u8; 32]);

impl PreSharedKey {
    /// Derives the key from a secret of any length.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let mut hash = Sha256::new_with_prefix(b"nichrome set-up key\0");
        hash.update(secret);
        Self(hash.finalize().into())
    }
}

/// Does not print the key.
impl fmt::Debug for PreSharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreSharedKey")
    }
}

/// Why the two sides cannot exchange encrypted messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SealError {
    /// Only this side has a key.
    #[error("the peer's set-up is not encrypted: give it the same --key-file")]
    PeerHasNoKey,
    /// Only the peer has a key.
    #[error("the peer's set-up is encrypted: give this side the same --key-file")]
    PeerHasKey,
    /// The keys differ, or bytes were changed in transit.
    #[error("the peer's set-up is encrypted with another key: both sides need the same --key-file")]
    WrongKey,
    /// The peer closed the stream at the first message.
    #[error("the peer does not accept this side's key: both sides need the same --key-file")]
    Unanswered,
    /// The handshake cannot be encrypted.
    #[error("the set-up cannot be encrypted")]
    Failed,
}
