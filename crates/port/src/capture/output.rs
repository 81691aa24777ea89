//! The output of a capture, opened before the capture begins.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::capture_file::CaptureFile;
use super::{WriteError, Writer};

/// Creates the capture at `path`, replacing an existing file; `-` is the standard output. `application` is
/// recorded as the writing program. In a regular file, flushed records survive SIGKILL.
pub fn create(path: &Path, application: &str) -> Result<Writer<Box<dyn Write + Send>>, WriteError> {
    Output::open(path)?.begin(application)
}

/// As [`create`], but adds a section to a regular file that an earlier call of this function in this process
/// has created.
pub fn create_or_continue(
    path: &Path,
    application: &str,
) -> Result<Writer<Box<dyn Write + Send>>, WriteError> {
    Output::open(path)?.write(application, Existing::ContinueOwn)
}

/// What happens to the content of an existing regular file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Replace,
    /// Keeps the content if this process has created the file.
    ContinueOwn,
}

/// Name, device and inode of the files that [`create_or_continue`] has created.
static CREATED: Mutex<BTreeSet<(String, u64, u64)>> = Mutex::new(BTreeSet::new());

/// An output that is open for a capture. Until [`Output::begin`], an existing file keeps its content. A new
/// file is removed if the output is dropped before.
pub struct Output {
    target: Target,
    destination: String,
}

enum Target {
    /// A locked regular file.
    Regular(File, Created),
    Other(File),
}

/// The path of a file that was created here; removes the file when dropped.
struct Created(Option<PathBuf>);

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("destination", &self.destination).finish_non_exhaustive()
    }
}

impl Output {
    /// Opens the file at `path`, or creates it; `-` is the standard output. A regular file is locked, so that
    /// no other capture is written to it.
    pub fn open(path: &Path) -> Result<Self, WriteError> {
        let (target, destination) = if path.as_os_str() == "-" {
            (standard_output(), "the standard output".to_owned())
        } else {
            (open_file(path), path.display().to_string())
        };
        match target {
            Ok(target) => Ok(Self { target, destination }),
            Err(error) => Err(WriteError::Io { destination, error }),
        }
    }

    /// Begins the capture, replacing the content of an existing file. `application` is recorded as the
    /// writing program.
    pub fn begin(self, application: &str) -> Result<Writer<Box<dyn Write + Send>>, WriteError> {
        self.write(application, Existing::Replace)
    }

    fn write(
        self,
        application: &str,
        existing: Existing,
    ) -> Result<Writer<Box<dyn Write + Send>>, WriteError> {
        let Self { target, destination } = self;
        let output: Box<dyn Write + Send> = match target {
            Target::Other(file) => Box::new(file),
            Target::Regular(file, mut created) => match capture_file(file, &destination, existing) {
                Ok(file) => {
                    created.0 = None;
                    Box::new(file)
                }
                Err(error) => return Err(WriteError::Io { destination, error }),
            },
        };
        Ok(Writer::with_destination(output, application, destination))
    }
}

fn capture_file(file: File, name: &str, existing: Existing) -> io::Result<CaptureFile> {
    let is_continued = existing == Existing::ContinueOwn && {
        let metadata = file.metadata()?;
        let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
        !created.insert((name.to_owned(), metadata.dev(), metadata.ino()))
    };
    if !is_continued {
        file.set_len(0)?;
    }
    CaptureFile::new(file)
}

fn standard_output() -> io::Result<Target> {
    Ok(Target::Other(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

fn open_file(path: &Path) -> io::Result<Target> {
    let mut options = File::options();
    options.write(true);
    let (file, is_new) = match options.clone().create_new(true).open(path) {
        // The file exists, or the path is a symbolic link to a file that does not.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => (options.create(true).open(path)?, false),
        file => (file?, true),
    };
    if !file.metadata()?.is_file() {
        return Ok(Target::Other(file));
    }
    lock(&file)?;
    Ok(Target::Regular(file, Created(is_new.then(|| path.to_owned()))))
}

/// Locks a file until it is closed.
fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::other("another process writes a capture to it")),
        // Not every file system has locks.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the path of a file in the temporary folder.
    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nichrome-output-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_capture_that_is_being_written_is_not_written_by_another() {
        let path = temporary("locked");
        fs::write(&path, "older and longer than a section header").unwrap();
        let mut first = create(&path, "test").unwrap();
        let error = create(&path, "test").map(drop).unwrap_err().to_string();
        assert!(error.ends_with(": another process writes a capture to it"), "{error}");
        first.flush().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]) && !bytes.ends_with(b"header"));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_existing_file_keeps_its_content_until_the_capture_begins() {
        let path = temporary("existing");
        fs::write(&path, "precious").unwrap();
        drop(Output::open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let output = Output::open(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        drop(output.begin("test").unwrap());
        assert!(fs::read(&path).unwrap().starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_new_file_is_removed_unless_the_capture_begins() {
        let path = temporary("new");
        let output = Output::open(&path).unwrap();
        assert!(path.exists());
        drop(output);
        assert!(!path.exists());
        drop(Output::open(&path).unwrap().begin("test").unwrap());
        assert!(path.exists());
        fs::remove_file(path).unwrap();
    }
}
