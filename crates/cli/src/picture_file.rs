//! An output file for a figure or a page, opened before the work, so that the command fails early.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use clap::builder::{PathBufValueParser, TypedValueParser};
use nichrome_port::capture::WriteError;

use crate::failure;
use crate::signals;

/// Files and folders that this process created and has not finished. Not locked while a pipe is opened or
/// written, which may block: the thread that handles signals needs the lock.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, a signal removes unfinished files and folders that this process created, and ends the
/// process.
///
/// # Errors
/// Signals cannot be received.
pub(crate) fn end_on_signals() -> anyhow::Result<()> {
    signals::forward(&signals::ending_or_quitting(), |signal| -> Result<(), Infallible> {
        remove_unfinished();
        failure::notice(format_args!("nichrome: interrupted"));
        process::exit(128 + signal)
    })
}

/// Removes the unfinished files and folders, before the process ends by a signal.
pub(crate) fn remove_unfinished() {
    for path in unfinished().iter().rev() {
        remove(path);
    }
}

/// Removes the file or folder at this path if this process created it and has not finished it.
fn remove_if_unfinished(path: &Path) {
    let mut unfinished = unfinished();
    if let Some(at) = unfinished.iter().position(|created| created == path) {
        remove(&unfinished.remove(at));
    }
}

/// Removes a file or an empty folder. Another process may have removed it, or put a file into the folder.
fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
}

/// A folder for pictures. Dropping it removes the folder if this process created it and it is empty.
pub(crate) struct PictureFolder {
    path: PathBuf,
}

impl PictureFolder {
    /// Creates the folder, unless it exists.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut unfinished = unfinished();
        match fs::create_dir(path) {
            Ok(()) => unfinished.push(path.to_owned()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
        }
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for PictureFolder {
    fn drop(&mut self) {
        remove_if_unfinished(&self.path);
    }
}

/// Returns the parser of the name of an SVG picture.
pub(crate) fn svg() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(svg_name)
}

/// Returns the parser of the name of an HTML page.
pub(crate) fn html() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(html_name)
}

fn svg_name(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" {
        return Err("expected the name of a file");
    }
    match is_of_another_kind(&path, &["svg"]) {
        true => Err("pictures are SVG: expected a name that ends in .svg"),
        false => Ok(path),
    }
}

fn html_name(path: PathBuf) -> Result<PathBuf, &'static str> {
    match is_of_another_kind(&path, &["htm", "html"]) {
        true => Err("pages are HTML: expected a name that ends in .html"),
        false => Ok(path),
    }
}

/// Returns true if a name has the ending of a picture or page, and none of `endings`.
fn is_of_another_kind(path: &Path, endings: &[&str]) -> bool {
    const KINDS: [&str; 10] = ["gif", "htm", "html", "jpeg", "jpg", "pdf", "png", "ps", "svg", "webp"];
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    KINDS.contains(&&*ending) && !endings.contains(&&*ending)
}

/// An open output file. An existing file keeps its content, and a new one is removed, unless
/// [`PictureFile::finish`] is called.
pub(crate) struct PictureFile {
    path: PathBuf,
    file: File,
}

impl PictureFile {
    /// Opens the file for writing, and creates it if it does not exist.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true);
        let created = {
            let mut unfinished = unfinished();
            options.clone().create_new(true).open(path).inspect(|_| unfinished.push(path.to_owned()))
        };
        let file = match created {
            // Opening a named pipe waits for its reader.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(path),
            file => file,
        };
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Replaces the file's content.
    pub(crate) fn finish(mut self, text: &str) -> anyhow::Result<()> {
        let replaced = self.replace(text);
        unfinished().retain(|path| *path != self.path);
        let destination = || self.path.display().to_string();
        Ok(replaced.map_err(|error| WriteError::Io { destination: destination(), error })?)
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // Devices and pipes have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for PictureFile {
    fn drop(&mut self) {
        remove_if_unfinished(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use rustix::io::ioctl_fionread;

    use super::*;

    #[test]
    fn the_names_of_other_pictures_and_pages_are_refused() {
        for name in ["a.png", "a.svg.PDF", "folder/a.html", "-"] {
            assert!(svg_name(name.into()).is_err(), "{name}");
        }
        for name in ["a.svg", "a", "/dev/stdout", "./-", "png"] {
            assert_eq!(svg_name(name.into()), Ok(name.into()));
        }
        for name in ["a.png", "a.html.PDF", "folder/a.svg"] {
            assert!(html_name(name.into()).is_err(), "{name}");
        }
        for name in ["a.html", "a.HTM", "a", "/dev/stdout", "-", "svg"] {
            assert_eq!(html_name(name.into()), Ok(name.into()));
        }
    }

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

    #[test]
    fn a_folder_that_was_created_is_removed_unless_a_picture_is_in_it() {
        let outer = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| outer.path().join(name));
        fs::create_dir(&old).unwrap();
        for folder in [&new, &old] {
            let _folder = PictureFolder::create(folder).unwrap();
            drop(PictureFile::create(&folder.join("a.svg")).unwrap());
        }
        assert!(!new.exists() && old.exists());
        {
            let _folder = PictureFolder::create(&new).unwrap();
            PictureFile::create(&new.join("a.svg")).unwrap().finish("text").unwrap();
        }
        assert!(new.join("a.svg").exists());
    }

    /// The thread that handles signals needs the lock that a file in progress could hold.
    #[test]
    fn a_reader_that_stalls_does_not_delay_a_signal() {
        const PIPE: usize = 65_536;
        let folder = tempfile::tempdir().unwrap();
        let pipe = pipe_in(folder.path());
        let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let file = PictureFile::create(&pipe).unwrap();
        let writer = thread::spawn(move || file.finish(&"x".repeat(PIPE + 1)));
        while ioctl_fionread(&reader).unwrap() < PIPE as u64 {
            thread::yield_now();
        }
        wait_for_unfinished();
        reader.read_exact(&mut [0; PIPE + 1]).unwrap();
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn a_pipe_without_a_reader_does_not_delay_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = pipe_in(folder.path());
        let (to, from) = mpsc::channel();
        let opener = thread::spawn({
            let pipe = pipe.clone();
            move || {
                to.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
                PictureFile::create(&pipe).unwrap().finish("text")
            }
        });
        let stat = Path::new("/proc").join(from.recv().unwrap()).join("stat");
        // The state follows the name in brackets (proc_pid_stat(5)).
        while !fs::read_to_string(&stat).unwrap().rsplit_once(") ").unwrap().1.starts_with('S') {
            thread::yield_now();
        }
        wait_for_unfinished();
        assert_eq!(fs::read_to_string(&pipe).unwrap(), "text");
        opener.join().unwrap().unwrap();
    }

    fn pipe_in(folder: &Path) -> PathBuf {
        let pipe = folder.join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        pipe
    }

    /// Waits until the list of unfinished files is not locked.
    fn wait_for_unfinished() {
        let deadline = Instant::now() + Duration::from_secs(10);
        while UNFINISHED.try_lock().is_err() {
            assert!(Instant::now() < deadline);
        }
    }
}
