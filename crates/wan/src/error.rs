//! What is said about text that stands for none of this crate's types.

use thiserror::Error;

/// Text that cannot be read; the message is one line that says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is no {what}: {allowed}")]
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
