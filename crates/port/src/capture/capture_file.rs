//! A capture in a regular file. Written bytes are in the file even if the process is then killed by SIGKILL.
//!
//! The file is never mapped into memory: a store behind the end of a file that another program truncates
//! raises SIGBUS.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use rustix::fs::fstat;
use rustix::io::pwrite;

use crate::uninterrupted;

/// A capture file under construction.
pub(super) struct CaptureFile {
    file: File,
    /// Offset of the end of the last block.
    end: u64,
}

impl CaptureFile {
    /// Appends to the content of `file`.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file, end })
    }

    /// Fails if the file is shorter than the bytes written to it: the next block would follow a gap of zeros,
    /// which no reader accepts.
    fn check_len(&self) -> io::Result<()> {
        if (fstat(&self.file)?.st_size as u64) < self.end {
            return Err(io::Error::other("another program has truncated it"));
        }
        Ok(())
    }

    /// Writes behind the last block, by rustix: the C library's pwrite(2) is a cancellation point
    /// (pthreads(7)), and the caller may hold locks.
    fn append(&self, mut blocks: &[u8]) -> io::Result<()> {
        let end = self.end + blocks.len() as u64;
        while !blocks.is_empty() {
            let at = end - blocks.len() as u64;
            match uninterrupted(|| Ok(pwrite(&self.file, blocks, at)?))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => blocks = blocks.get(written..).unwrap_or_default(),
            }
        }
        Ok(())
    }
}

impl Write for CaptureFile {
    /// Adds whole blocks, all or none of them.
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        self.check_len()?;
        self.append(blocks).inspect_err(|_| {
            // If this fails, readers report a truncated last block.
            let _ = self.file.set_len(self.end);
        })?;
        self.end += blocks.len() as u64;
        Ok(blocks.len())
    }

    /// Does nothing: written bytes are in the file already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
