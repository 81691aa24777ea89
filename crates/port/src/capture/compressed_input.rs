//! The input of a decompressor. Distinguishes why decompression failed: decompressors report an input that
//! ends, an error of the system and corrupt data in the same way.

use crate::uninterrupted;
use std::io::{self, BufRead, ErrorKind, Read};

/// A compressed input that keeps its error and notes its end.
pub(super) struct CompressedInput<R> {
    input: R,
    error: Option<io::Error>,
    has_ended: bool,
}

impl<R: BufRead> CompressedInput<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, error: None, has_ended: false }
    }

    /// Returns true if the input has no more bytes.
    pub(super) fn is_at_end(&mut self) -> io::Result<bool> {
        match self.fill_buf().map(<[u8]>::is_empty) {
            Ok(is_empty) => Ok(is_empty),
            Err(error) => Err(self.cause(error)),
        }
    }

    /// Returns why decompression failed: the error of the input, `UnexpectedEof` if the decompressor needed
    /// bytes after its end, else `other`.
    pub(super) fn cause(&mut self, other: io::Error) -> io::Error {
        match self.error.take() {
            Some(error) => error,
            None if self.has_ended => ErrorKind::UnexpectedEof.into(),
            None => other,
        }
    }
}

impl<R: BufRead> BufRead for CompressedInput<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match uninterrupted(|| self.input.fill_buf().map(<[u8]>::len)) {
            Ok(0) => {
                self.has_ended = true;
                Ok(&[])
            }
            Ok(_) => self.input.fill_buf(),
            Err(error) => {
                let kind = error.kind();
                self.error = Some(error);
                Err(kind.into())
            }
        }
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }
}

impl<R: BufRead> Read for CompressedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
