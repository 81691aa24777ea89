//! The source of an experiment: built in, or a file.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::definition::Definition;
use super::document::{FileError, joined};
use super::library::{Embedded, Library};
use super::text_file::read_text;

/// The source of an experiment.
#[derive(Clone, Debug)]
pub enum Source {
    /// A built-in experiment.
    BuiltIn(Embedded),
    /// A file.
    File(PathBuf),
}

/// A failure to load an experiment.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Neither a built-in name nor a path.
    #[error("there is no experiment '{name}': there are {known}, and files that end in .toml")]
    Unknown {
        /// The name given.
        name: String,
        /// The built-in names.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file's content is invalid.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Source {
    /// Resolves `name`: a built-in experiment, or a path that ends in `.toml`, relative to `folder`.
    pub fn find(name: &str, folder: &Path, library: &Library) -> Result<Self, LoadError> {
        if let Some(experiment) = library.experiment(name) {
            return Ok(Self::BuiltIn(experiment));
        }
        if name.ends_with(".toml") {
            return Ok(Self::File(folder.join(name)));
        }
        let known = joined(library.experiments.iter().map(|experiment| experiment.name));
        Err(LoadError::Unknown { name: name.into(), known })
    }

    /// Loads the experiment.
    pub fn load(&self, library: &Library) -> Result<Definition, LoadError> {
        match self {
            Self::BuiltIn(Embedded { name, text }) => {
                Ok(Definition::parse(&format!("experiments/{name}.toml"), text, library)?)
            }
            Self::File(path) => {
                let text = read_text(path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
                Ok(Definition::parse(&path.display().to_string(), &text, library)?)
            }
        }
    }
}
