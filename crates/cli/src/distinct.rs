//! Ensures that no file is read and written, or written twice, in one run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure;

/// The files of a run, with their option names.
#[derive(Default)]
pub(crate) struct Distinct {
    files: Vec<(&'static str, Identity)>,
}

/// The identity of a file under any name.
#[derive(PartialEq, Eq)]
enum Identity {
    /// An existing file: device and inode.
    There(u64, u64),
    /// A new file: its resolved folder and its name.
    New(PathBuf),
}

impl Distinct {
    /// Adds a file; for `-`, the file behind the standard stream.
    ///
    /// # Errors
    /// The file was added before.
    pub(crate) fn add(&mut self, name: &'static str, path: &Path, standard: &Path) -> anyhow::Result<()> {
        let stream = path.as_os_str() == "-";
        let path = if stream { standard } else { path };
        // A stream can be used once, whatever file is behind it.
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

/// Returns a path's identity; `None` for devices, which may be used twice, and for unreadable paths.
fn identity(path: &Path) -> Option<Identity> {
    if let Ok(metadata) = fs::metadata(path) {
        return metadata.is_file().then(|| Identity::There(metadata.dev(), metadata.ino()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder).ok()?;
    Some(Identity::New(folder.join(path.file_name()?)))
}
