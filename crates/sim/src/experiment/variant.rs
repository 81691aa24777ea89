//! A joint change of several parameters: a reading of a paper's open setting, or a sample of assumed
//! parameters.

use super::parameter::{ParameterSpec, Value};

/// A joint change of several parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name.
    pub name: String,
    /// The source.
    pub source: String,
    /// The parameters and their values.
    pub set: Vec<(&'static ParameterSpec, Value)>,
}
