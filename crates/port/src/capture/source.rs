//! The bytes of a capture, read in order, with the count of what has been read whole.

use super::{Progress, ReadError};
use std::io::{self, Read};

/// An input and how far it has been read.
pub(super) struct Source<R> {
    input: R,
    /// Bytes read.
    offset: u64,
    /// Where the unit being read ends, as far as is known.
    unit_end: u64,
    progress: Progress,
}

impl<R: Read> Source<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, offset: 0, unit_end: 0, progress: Progress { records: 0, bytes: 0 } }
    }

    /// What has been read whole.
    pub(super) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Reads as many bytes as the input still has, at most all of `bytes`, and returns their number.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..)
            && !rest.is_empty()
        {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        Ok(filled)
    }

    /// Reads all of `bytes`; the capture is cut off where they are not there.
    #[inline]
    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        let filled = self.read(bytes)?;
        if filled < bytes.len() {
            return Err(self.truncated((bytes.len() - filled) as u64));
        }
        Ok(())
    }

    /// Reads the first bytes of a unit; `false` where the capture ends properly before it.
    #[inline]
    pub(super) fn begin(&mut self, header: &mut [u8]) -> Result<bool, ReadError> {
        match self.read(header)? {
            0 => Ok(false),
            filled if filled < header.len() => Err(self.truncated((header.len() - filled) as u64)),
            _ => Ok(true),
        }
    }

    /// Reads `len` bytes in place of what `data` held, which is not cleared first: that would cost a second pass.
    #[inline]
    pub(super) fn fill_vec(&mut self, data: &mut Vec<u8>, len: u32) -> Result<(), ReadError> {
        data.resize(len as usize, 0);
        self.fill(data)
    }

    /// Reads `len` bytes and forgets them.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), ReadError> {
        let mut scratch = [0; 512];
        while len > 0 {
            let step = len.min(scratch.len() as u64);
            self.fill(&mut scratch[..step as usize])?;
            len -= step;
        }
        Ok(())
    }

    /// Says that the unit being read has `len` bytes in all.
    #[inline]
    pub(super) const fn unit_len(&mut self, len: u64) {
        self.unit_end = self.progress.bytes.saturating_add(len);
    }

    /// Says that a unit that is not a record has been read whole.
    #[inline]
    pub(super) const fn end_unit(&mut self) {
        self.progress.bytes = self.offset;
    }

    /// Says that a record has been read whole.
    #[inline]
    pub(super) const fn end_record(&mut self) {
        self.progress.records += 1;
        self.end_unit();
    }

    /// The error for a rule that the unit being read breaks.
    #[cold]
    pub(super) fn corrupt(&self, what: impl Into<String>) -> ReadError {
        ReadError::Corrupt { offset: self.progress.bytes, what: what.into() }
    }

    /// The error for an input that ends `wanted` bytes short of a read.
    #[cold]
    fn truncated(&self, wanted: u64) -> ReadError {
        let needed = wanted.max(self.unit_end.saturating_sub(self.offset));
        ReadError::truncated(self.progress, needed)
    }
}

/// The byte order of the numbers in a file or section.
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
