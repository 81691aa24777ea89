//! Where an experiment is from: built in, or a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::definition::Definition;
use super::document::{FileError, joined};
use super::library::{Embedded, Library};

/// Where an experiment is from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It is built in.
    BuiltIn(Embedded),
    /// A file.
    File(PathBuf),
}

/// Why there is no such experiment.
#[derive(Debug, Error)]
pub enum LoadError {
    /// No name that is built in, and no file.
    #[error("there is no experiment '{name}': there are {known}, and files that end in .toml")]
    Unknown {
        /// What was given.
        name: String,
        /// What is built in.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// There is something wrong in it.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Source {
    /// What `name` stands for: a name that is built in, or a path that ends in `.toml`, seen from `folder`.
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

    /// Reads it.
    pub fn load(&self, library: &Library) -> Result<Definition, LoadError> {
        match self {
            Self::BuiltIn(Embedded { name, text }) => {
                Ok(Definition::parse(&format!("experiments/{name}.toml"), text, library)?)
            }
            Self::File(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| LoadError::Read { path: path.clone(), error })?;
                Ok(Definition::parse(&path.display().to_string(), &text, library)?)
            }
        }
    }
}
