//! Why a run has no outcome.

use thiserror::Error;

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    /// The model asks for a parameter that it has not declared, or not as that kind.
    #[error("the model asks for a parameter '{0}' of another kind than it declares")]
    Undeclared(&'static str),
    /// The observer wants to capture packets that are only lengths.
    #[error("packets of model '{0}' are lengths: there is nothing to capture")]
    NothingToCapture(&'static str),
    /// Values that do not go together; the text says which, and what would.
    #[error("{0}")]
    Impossible(String),
    /// The model has measured something else than it declares, or no number.
    #[error("the model measures '{0}', which it does not declare or which is no finite number")]
    Metric(&'static str),
    /// The observer wanted no more.
    #[error("interrupted")]
    Interrupted,
}
