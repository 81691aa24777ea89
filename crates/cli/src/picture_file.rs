//! An output file for a figure or a page, opened before the work, so that the command fails early.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// An open output file. An existing file keeps its content, and a new one is removed, unless [`PictureFile::finish`] is
/// called.
pub(crate) struct PictureFile {
    path: PathBuf,
    file: File,
    is_unfinished: bool,
    is_new: bool,
}

impl PictureFile {
    /// Opens the file for writing, and creates it if there is none.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true);
        let (file, is_new) = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (options.open(path), false),
            file => (file, true),
        };
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_unfinished: true, is_new })
    }

    /// Replaces the file's content.
    pub(crate) fn finish(mut self, text: &str) -> anyhow::Result<()> {
        self.is_unfinished = false;
        self.replace(text).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn replace(&mut self, text: &str) -> std::io::Result<()> {
        // Devices and pipes have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for PictureFile {
    fn drop(&mut self) {
        if self.is_unfinished && self.is_new {
            // Another process may have removed it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        fs::write(&old, "a longer text").unwrap();
        for path in [&old, &new] {
            drop(PictureFile::create(path).unwrap());
        }
        assert_eq!(fs::read_to_string(&old).unwrap(), "a longer text");
        assert!(!new.exists());
        for path in [&old, &new] {
            PictureFile::create(path).unwrap().finish("text").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "text");
        }
        assert!(PictureFile::create(folder.path()).is_err());
        PictureFile::create(Path::new("/dev/null")).unwrap().finish("text").unwrap();
    }
}
