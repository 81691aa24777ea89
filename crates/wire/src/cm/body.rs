//! The body of a MAD. In most messages it begins with the identifiers of the connection.

use super::identifier::{CommId, CommIds};
use crate::bytes::{be32, put};

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;

/// Bytes of the header.
pub(super) const HEADER_LEN: usize = 24;

/// The message after the header.
pub(super) type Body = [u8; MAD_LEN - HEADER_LEN];

impl CommIds {
    pub(super) fn from_body(body: &Body) -> Self {
        Self { local: CommId(be32(body, 0)), remote: CommId(be32(body, 4)) }
    }

    /// Returns a body that begins with the identifiers; the rest is zeros.
    pub(super) fn to_body(self) -> Body {
        let mut body: Body = [0; _];
        put(&mut body, 0, self.local.0.to_be_bytes());
        put(&mut body, 4, self.remote.0.to_be_bytes());
        body
    }
}
