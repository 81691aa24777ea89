//! The parse error of this crate's types.

use thiserror::Error;

/// Unparsable text. The one-line message states the expected format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not a valid {what}: expected {allowed}")]
pub struct ParseError {
    text: String,
    what: &'static str,
    allowed: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, what: &'static str, allowed: &'static str) -> Self {
        Self { text: text.into(), what, allowed }
    }
}
