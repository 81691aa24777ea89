//! The captures of a folder and its subfolders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nichrome_port::capture::{self, ReadError};
use nichrome_wire::Instant;

use super::input_name;
use crate::failure;

/// Maximum levels of subfolders.
const MAX_DEPTH: usize = 16;

/// Finds the captures below a folder, in the order of their first packets. Warns about everything else and skips it,
/// also symbolic links to folders, which can form circles.
///
/// # Errors
/// The folder cannot be read, or has no capture.
pub(super) fn captures(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut captures = Vec::new();
    search(folder, 0, &mut captures).with_context(|| input_name(folder))?;
    if captures.is_empty() {
        bail!("{}: there is no capture in this folder", input_name(folder));
    }
    captures.sort();
    Ok(captures.into_iter().map(|(_, path)| path).collect())
}

/// Adds the captures below a folder, with the times of their first packets.
fn search(folder: &Path, depth: usize, captures: &mut Vec<(Instant, PathBuf)>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if let Err(why) = visit(&path, depth, captures) {
            failure::warn(format_args!("{}: {why}: skipped", path.display()));
        }
    }
    Ok(())
}

/// Adds a capture, or the captures below a subfolder; fails for anything else.
fn visit(path: &Path, depth: usize, captures: &mut Vec<(Instant, PathBuf)>) -> anyhow::Result<()> {
    let found = fs::metadata(path)?;
    if found.is_file() {
        captures.push((first_time(path)?, path.to_owned()));
        return Ok(());
    }
    if !found.is_dir() {
        bail!("not a regular file");
    }
    if path.is_symlink() {
        bail!("a symbolic link to a folder");
    }
    if depth == MAX_DEPTH {
        bail!("more than {MAX_DEPTH} folders deep");
    }
    search(path, depth + 1, captures)
}

/// Returns the time of a capture's first packet; captures without packets sort first.
fn first_time(path: &Path) -> Result<Instant, ReadError> {
    let first = capture::open(path)?.next(&mut Vec::new());
    match first {
        Ok(Some(record)) => Ok(record.time),
        // Its error is reported when it is read.
        Ok(None) | Err(_) => Ok(Instant::ZERO),
    }
}
