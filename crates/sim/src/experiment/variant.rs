//! A change of several parameters at once: a reading of what a paper leaves open, or a sample of what is assumed.

use super::parameter::{ParameterSpec, Value};

/// A change of several parameters at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What it is.
    pub name: String,
    /// Where it is from.
    pub source: String,
    /// What is set.
    pub set: Vec<(&'static ParameterSpec, Value)>,
}
