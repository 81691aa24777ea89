//! The captures of a folder and its subfolders.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nichrome_port::capture::{self, ReadError};
use nichrome_wire::Instant;

use super::input_name;
use crate::failure;
use crate::number::plural;

/// Maximum levels of subfolders.
const MAX_DEPTH: usize = 16;

/// Maximum number of skipped files that warnings name.
const NAMED: u64 = 20;

/// Finds the captures below a folder, in the order of their first packets. Warns about everything else and
/// skips it, also symbolic links to folders, which can form circles.
///
/// # Errors
/// The folder cannot be read, or has no capture.
pub(super) fn captures(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Found::default();
    found.search(folder, 0).with_context(|| input_name(folder))?;
    if let Some(others @ 1..) = found.skipped.checked_sub(NAMED) {
        failure::warn(format_args!(
            "{}: {} skipped",
            input_name(folder),
            plural(others, "other file is", "other files are")
        ));
    }
    if found.captures.is_empty() {
        bail!("{}: there is no capture in this folder", input_name(folder));
    }
    found.captures.sort();
    Ok(found.captures.into_iter().map(|(_, path)| path).collect())
}

/// The captures found so far.
#[derive(Default)]
struct Found {
    /// Time of the first packet, and path.
    captures: Vec<(Instant, PathBuf)>,
    /// Device and inode number of each file: links may name a file twice.
    files: HashSet<(u64, u64)>,
    /// Number of skipped files and folders.
    skipped: u64,
}

impl Found {
    /// Adds the captures below a folder.
    fn search(&mut self, folder: &Path, depth: usize) -> anyhow::Result<()> {
        let entries = fs::read_dir(folder)?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            if let Err(why) = self.visit(&path, depth) {
                self.skipped += 1;
                if self.skipped <= NAMED {
                    failure::warn(format_args!("{}: {why}: skipped", path.display()));
                }
            }
        }
        Ok(())
    }

    /// Adds a capture, or the captures below a subfolder; fails for anything else.
    fn visit(&mut self, path: &Path, depth: usize) -> anyhow::Result<()> {
        let file = fs::metadata(path)?;
        if file.is_file() {
            if self.files.contains(&(file.dev(), file.ino())) {
                bail!("a link to another file of the folder");
            }
            self.captures.push((first_time(path)?, path.to_owned()));
            self.files.insert((file.dev(), file.ino()));
            return Ok(());
        }
        if !file.is_dir() {
            bail!("not a regular file");
        }
        if path.is_symlink() {
            bail!("a symbolic link to a folder");
        }
        if depth == MAX_DEPTH {
            bail!("more than {MAX_DEPTH} folders deep");
        }
        self.search(path, depth + 1)
    }
}

/// Returns the time of a capture's first packet; captures without packets sort first.
fn first_time(path: &Path) -> Result<Instant, ReadError> {
    let first = capture::open(path)?.next(&mut Vec::new());
    match first {
        Ok(Some(record)) => Ok(record.time),
        Err(error @ ReadError::UnsupportedLinkType { .. }) => Err(error),
        // The error is reported when the capture is read.
        Ok(None) | Err(_) => Ok(Instant::ZERO),
    }
}
