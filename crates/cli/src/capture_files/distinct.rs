//! That no file is read and written, or written twice, in one run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure;

/// The files that a run uses, with what the command line calls them.
#[derive(Default)]
pub(crate) struct Distinct {
    files: Vec<(&'static str, Identity)>,
}

/// What makes a file the same, by whatever name.
#[derive(PartialEq, Eq)]
enum Identity {
    /// A file that is there: device and inode.
    There(u64, u64),
    /// One that is not there yet: its folder, resolved, and its name.
    New(PathBuf),
}

impl Distinct {
    /// Adds a file, or what stands for it where `path` is `-`.
    ///
    /// # Errors
    /// It is one that was added before.
    pub(crate) fn add(&mut self, name: &'static str, path: &Path, standard: &Path) -> anyhow::Result<()> {
        let stream = path.as_os_str() == "-";
        let path = if stream { standard } else { path };
        // A stream can be used once, whatever is behind it.
        let named = stream.then(|| Identity::New(path.into()));
        let Some(identity) = identity(path).or(named) else { return Ok(()) };
        if let Some((other, _)) = self.files.iter().find(|(_, known)| *known == identity) {
            let path = path.display();
            return Err(failure::usage(format!(
                "{other} and {name} are the same file, {path}: name another"
            )));
        }
        self.files.push((name, identity));
        Ok(())
    }
}

/// What a path leads to; `None` for devices, which may be used twice, and for what cannot be opened.
fn identity(path: &Path) -> Option<Identity> {
    if let Ok(metadata) = fs::metadata(path) {
        return metadata.is_file().then(|| Identity::There(metadata.dev(), metadata.ino()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder).ok()?;
    Some(Identity::New(folder.join(path.file_name()?)))
}
