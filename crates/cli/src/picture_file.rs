//! An output file for a figure, created before the work, so that the command fails early.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// An open output file.
pub(crate) struct PictureFile {
    path: PathBuf,
    file: File,
}

impl PictureFile {
    /// Creates the file.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the picture.
    pub(crate) fn finish(mut self, svg: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(svg.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}
