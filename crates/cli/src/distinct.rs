//! Ensures that no file is read and written, or written twice, in one run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::failure;

/// The files of a run, with their option names.
#[derive(Default)]
pub(crate) struct Distinct {
    read: Vec<(&'static str, Identity)>,
    written: Vec<(&'static str, Identity)>,
}

/// The identity of a file under any name.
#[derive(PartialEq, Eq)]
enum Identity {
    /// An existing file: device and inode.
    There(u64, u64),
    /// A new file: its resolved folder, which may be new, and its name.
    New(PathBuf),
}

impl Distinct {
    /// Adds a file to read; `-` is standard input.
    ///
    /// # Errors
    /// The command also writes the file.
    pub(crate) fn read(&mut self, name: &'static str, path: &Path) -> anyhow::Result<()> {
        let Some(identity) = identity(path, "/dev/stdin") else { return Ok(()) };
        refuse_one_of(&self.written, &identity, name, path)?;
        self.read.push((name, identity));
        Ok(())
    }

    /// Adds the files to write that are given; `-` is standard output.
    ///
    /// # Errors
    /// The command already reads or writes one of the files.
    pub(crate) fn write<'a>(
        &mut self,
        files: impl IntoIterator<Item = (&'static str, Option<&'a Path>)>,
    ) -> anyhow::Result<()> {
        for (name, path) in files {
            if let Some(path) = path
                && let Some(identity) = identity(path, "/dev/stdout")
            {
                for others in [&self.read, &self.written] {
                    refuse_one_of(others, &identity, name, path)?;
                }
                self.written.push((name, identity));
            }
        }
        Ok(())
    }
}

fn refuse_one_of(
    others: &[(&'static str, Identity)],
    identity: &Identity,
    name: &str,
    path: &Path,
) -> anyhow::Result<()> {
    match others.iter().find(|(_, known)| known == identity) {
        Some((other, _)) => {
            let path = path.display();
            Err(failure::usage(format!("{other} and {name} are the same file, {path}: name another")))
        }
        None => Ok(()),
    }
}

/// Returns a path's identity, where `-` is the file behind `standard`; `None` for devices, which may be used
/// twice, and for unreadable paths.
fn identity(path: &Path, standard: &str) -> Option<Identity> {
    if path.as_os_str() == "-" {
        // A standard stream can be used only once, even if it is a device.
        let standard = Path::new(standard);
        return identity_of_file(standard).or_else(|| Some(Identity::New(standard.into())));
    }
    identity_of_file(path)
}

fn identity_of_file(path: &Path) -> Option<Identity> {
    if let Ok(metadata) = fs::metadata(path) {
        return metadata.is_file().then(|| Identity::There(metadata.dev(), metadata.ino()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(Identity::New(resolved(folder)?.join(path.file_name()?)))
}

/// Resolves a folder that the run may create: follows the links in the existing part, and appends the rest.
fn resolved(folder: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(folder).ok()?;
    let there = absolute.ancestors().find(|folder| folder.exists())?;
    let mut resolved = fs::canonicalize(there).ok()?;
    for part in absolute.strip_prefix(there).ok()?.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            part => resolved.push(part),
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_written_once_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let [there, link, new, other] =
            ["there", "link", "new", "other"].map(|name| folder.path().join(name));
        fs::write(&there, "").unwrap();
        symlink(&there, &link).unwrap();
        let mut files = Distinct::default();
        files.read("IN", &there).unwrap();
        files.read("--config", &link).unwrap();
        let error = files.write([("OUT", None), ("--plot", Some(&*link))]).unwrap_err().to_string();
        assert_eq!(error, format!("IN and --plot are the same file, {}: name another", link.display()));
        files.write([("OUT", Some(&*new)), ("--plot", Some(&*other))]).unwrap();
        let dotted = folder.path().join(".").join("new");
        let error = files.write([("--html", Some(&*dotted))]).unwrap_err().to_string();
        assert!(error.starts_with("OUT and --html are the same file"), "{error}");
        let error = files.read("--trace", &new).unwrap_err().to_string();
        assert!(error.starts_with("OUT and --trace are the same file"), "{error}");
        for device in ["/dev/null", "/dev/null"] {
            files.write([("--plot", Some(Path::new(device)))]).unwrap();
        }
    }

    #[test]
    fn a_file_in_a_folder_that_does_not_exist_has_one_identity() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut files = Distinct::default();
        files.write([("--out", Some(&*at("a/b/new")))]).unwrap();
        files.write([("--plot", Some(&*at("a/new")))]).unwrap();
        for same in ["a/b/new", "a/b/../../a/./b/new"] {
            let error = files.write([("--html", Some(&*at(same)))]).unwrap_err().to_string();
            assert!(error.starts_with("--out and --html are the same file"), "{error}");
        }
    }
}
