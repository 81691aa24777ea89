//! Errors of a run.

use thiserror::Error;

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    /// The model requests an undeclared parameter, or one of another kind.
    #[error("the model requests parameter '{0}', which it does not declare or declares with another kind")]
    Undeclared(&'static str),
    /// Captures are requested of a model whose packets have no bytes.
    #[error("packets of model '{0}' are lengths: there is nothing to capture")]
    NothingToCapture(&'static str),
    /// Contradictory parameter values; the text names them and what would be consistent.
    #[error("{0}")]
    Impossible(String),
    /// The model reports an undeclared metric or a non-finite value.
    #[error("the model measures '{0}', which it does not declare or which is no finite number")]
    Metric(&'static str),
    /// The observer ended the run.
    #[error("interrupted")]
    Interrupted,
}
