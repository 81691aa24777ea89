//! A capture that another program is still writing: standard input or a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nichrome_port::clock;
use nichrome_wire::Instant;
use rustix::fs::{Mode, OFlags, open};

use super::interruption::Interruption;
use super::is_standard_stream;
use super::kept::Outputs;

/// Time for which the stream is read after an interruption: Ctrl-C ends its writer too, which may first pass
/// on its last packets.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// A stream that flushes the command's outputs before it waits for its writer.
pub(super) struct Stream {
    file: File,
    outputs: Outputs,
    interruption: Interruption,
    /// End of the time for which the stream is read after an interruption.
    until: Option<Instant>,
}

impl Stream {
    /// Opens the stream at `path`; `-` is standard input. Does not wait for the writer of a named pipe.
    ///
    /// # Errors
    /// The stream cannot be opened.
    pub(super) fn open(path: &Path, outputs: Outputs, interruption: Interruption) -> io::Result<Self> {
        let file = if is_standard_stream(path) {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?
        };
        Ok(Self { file: file.into(), outputs, interruption, until: None })
    }

    /// Waits until bytes or the stream's end can be read; returns false [`GRACE_PERIOD`] after an
    /// interruption.
    fn wait(&mut self) -> io::Result<bool> {
        loop {
            if self.interruption.is_requested() {
                let until = *self.until.get_or_insert_with(|| clock::now() + GRACE_PERIOD);
                if until <= clock::now() {
                    return Ok(false);
                }
                if let [true] = clock::wait([self.file.as_fd()], Some(until))? {
                    return Ok(true);
                }
            } else if let [true, _] =
                clock::wait([self.file.as_fd(), self.interruption.waker().as_fd()], None)?
            {
                return Ok(true);
            }
        }
    }
}

impl Read for Stream {
    /// After an interruption, reads on until the stream ends, for at most [`GRACE_PERIOD`].
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let [false] = clock::wait([self.file.as_fd()], Some(Instant::ZERO))? {
            self.outputs.flush();
        }
        while self.wait()? {
            match self.file.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
        Ok(0)
    }
}
