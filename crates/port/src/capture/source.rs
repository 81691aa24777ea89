//! The input of a capture reader: tracks the offset, the end of the block or record being read, and the whole
//! records read.

use super::{Progress, ReadError};
use crate::uninterrupted;
use std::io::{ErrorKind, Read};

/// An input stream with its position.
pub(super) struct Source<R> {
    input: R,
    /// Bytes read.
    offset: u64,
    /// Offset of the end of the block or record being read, as far as known.
    unit_end: u64,
    progress: Progress,
}

impl<R: Read> Source<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, offset: 0, unit_end: 0, progress: Progress { records: 0, bytes: 0 } }
    }

    /// Returns the position after the last whole block or record.
    pub(super) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Reads up to `bytes.len()` bytes and returns the number read; fewer only at the end of the input. Fails
    /// with `Truncated` at the end of compressed data that is cut off.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..)
            && !rest.is_empty()
        {
            match uninterrupted(|| self.input.read(rest)) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(self.truncated((bytes.len() - filled) as u64));
                }
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        Ok(filled)
    }

    /// Reads exactly `bytes.len()` bytes. Fails with `Truncated` at the end of the input.
    #[inline]
    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        let filled = self.read(bytes)?;
        if filled < bytes.len() {
            return Err(self.truncated((bytes.len() - filled) as u64));
        }
        Ok(())
    }

    /// Reads the first bytes of a block or record. Returns false if the input ends before the first byte.
    #[inline]
    pub(super) fn begin(&mut self, header: &mut [u8]) -> Result<bool, ReadError> {
        match self.read(header)? {
            0 => Ok(false),
            filled if filled < header.len() => Err(self.truncated((header.len() - filled) as u64)),
            _ => Ok(true),
        }
    }

    /// Replaces `data` by the next `len` bytes. Zeroes only the bytes by which `data` grows: to zero all
    /// would cost a second pass.
    #[inline]
    pub(super) fn fill_vec(&mut self, data: &mut Vec<u8>, len: u32) -> Result<(), ReadError> {
        data.resize(len as usize, 0);
        self.fill(data)
    }

    /// Skips `len` bytes.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), ReadError> {
        let mut scratch = [0; 512];
        while len > 0 {
            let step = len.min(scratch.len() as u64);
            self.fill(&mut scratch[..step as usize])?;
            len -= step;
        }
        Ok(())
    }

    /// Sets the length of the current block or record.
    #[inline]
    pub(super) const fn unit_len(&mut self, len: u64) {
        self.unit_end = self.progress.bytes.saturating_add(len);
    }

    /// Marks the end of a block that is not a record.
    #[inline]
    pub(super) const fn end_unit(&mut self) {
        self.progress.bytes = self.offset;
    }

    /// Marks the end of a record.
    #[inline]
    pub(super) const fn end_record(&mut self) {
        self.progress.records += 1;
        self.end_unit();
    }

    /// Returns a `Corrupt` error for the current block or record.
    #[cold]
    pub(super) fn corrupt(&self, what: impl Into<String>) -> ReadError {
        ReadError::Corrupt { offset: self.progress.bytes, what: what.into() }
    }

    /// Returns a `Truncated` error for an input that lacks `wanted` bytes.
    #[cold]
    fn truncated(&self, wanted: u64) -> ReadError {
        let needed = wanted.max(self.unit_end.saturating_sub(self.offset));
        ReadError::truncated(self.progress, needed)
    }
}

/// The byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    #[inline]
    pub(super) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(super) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(super) const fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }
}
