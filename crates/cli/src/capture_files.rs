//! Capture files that commands read and write.

pub(crate) mod application;
mod filter;
mod folder;
mod inputs;
mod interface;
mod interruption;
mod kept;
mod merged;
mod progress;
mod stream;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nichrome_port::capture::{ReadError, Skipped, WriteError};

pub(crate) use self::filter::Filter;
pub(crate) use self::inputs::{Capture, Ended, Inputs};
pub(crate) use self::interface::Interface;
pub(crate) use self::interruption::Interruption;
pub(crate) use self::kept::{Kept, Outputs};
pub(crate) use self::merged::Merged;
pub(crate) use self::progress::Progress;
use crate::failure;

/// Returns true if the path is `-`, which stands for standard input or output.
pub(crate) fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns true if the path is the pipe or file that standard output is, such as `/dev/stdout`.
fn is_standard_output(path: &Path) -> bool {
    let (Ok(named), Ok(standard)) = (fs::metadata(path), fs::metadata("/dev/stdout")) else { return false };
    !named.file_type().is_char_device() && (named.dev(), named.ino()) == (standard.dev(), standard.ino())
}

/// Returns true if the path is a stream, which can be read only once: `-`, a pipe, a socket or a device.
pub(crate) fn is_stream(path: &Path) -> bool {
    is_standard_stream(path) || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Returns an input's name for messages.
pub(crate) fn input_name(path: &Path) -> String {
    if is_standard_stream(path) { "standard input".into() } else { path.display().to_string() }
}

/// Prints a summary: to standard error if standard output is one of `captures`.
pub(crate) fn print_summary<'a>(
    text: &str,
    captures: impl IntoIterator<Item = &'a PathBuf>,
) -> anyhow::Result<()> {
    let is_taken = captures.into_iter().any(|path| is_standard_stream(path) || is_standard_output(path));
    let (name, mut output): (_, Box<dyn Write>) = if is_taken {
        ("standard error", Box::new(io::stderr().lock()))
    } else {
        ("standard output", Box::new(io::stdout().lock()))
    };
    let printed = writeln!(output, "{}", text.trim_end());
    Ok(printed.map_err(|error| WriteError::Io { destination: name.into(), error })?)
}

/// Warns about the packets of a capture that the reader skipped.
pub(crate) fn warn_skipped(skipped: impl IntoIterator<Item = Skipped>, input: &Path) {
    for skipped in skipped {
        failure::warn(format_args!("{}: {skipped}: skipped", input_name(input)));
    }
}

/// Handles the early end of a capture: a truncated one is a warning, a corrupt one an error.
fn judge(error: ReadError, input: &Path) -> anyhow::Result<()> {
    let input = input_name(input);
    if let ReadError::Truncated { .. } = error {
        failure::warn(format_args!("{input}: {error}; the packets before that were processed"));
        return Ok(());
    }
    Err(error).context(input)
}
