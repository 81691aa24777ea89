//! Zstandard frames (RFC 8878), one after another, decompressed while they are read, and checked against their content
//! checksums. Skippable frames, such as those of pzstd and of the seekable format, are skipped.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, ErrorKind, Read};

/// The decompressed bytes of a sequence of frames.
pub(super) struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
    position: Position,
}

/// The position in the input.
#[derive(Clone, Copy)]
enum Position {
    BetweenFrames,
    InFrame,
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, decoder: FrameDecoder::new(), position: Position::BetweenFrames }
    }

    /// Begins a frame, decodes its next block, or ends it. Returns false at the end of the input.
    fn advance(&mut self) -> io::Result<bool> {
        match self.position {
            Position::BetweenFrames => {
                if self.input.fill_buf()?.is_empty() {
                    return Ok(false);
                }
                self.begin_frame()?;
            }
            Position::InFrame if self.decoder.is_finished() => {
                self.check()?;
                self.position = Position::BetweenFrames;
            }
            Position::InFrame => {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.input, one).map_err(describe)?;
            }
        }
        Ok(true)
    }

    /// Reads the header of a frame, or all of a skippable frame.
    fn begin_frame(&mut self) -> io::Result<()> {
        match self.decoder.reset(&mut self.input) {
            Ok(()) => self.position = Position::InFrame,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let length = u64::from(length);
                if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(describe(error)),
        }
        Ok(())
    }

    /// Compares the checksum of a frame, if it has one, with that of the bytes read.
    fn check(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(checksum) if self.decoder.get_calculated_checksum() != Some(checksum) => {
                Err(invalid("the zstd data does not match its checksum"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if !self.advance()? {
                return Ok(0);
            }
        }
        self.decoder.read(buffer)
    }
}

fn describe(error: FrameDecoderError) -> io::Error {
    io::Error::other(error)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    /// Returns a frame of bytes that do not compress, in raw blocks.
    fn raw_frame() -> Vec<u8> {
        let bytes = (0..300_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8);
        compress_to_vec(&*bytes.collect::<Vec<_>>(), CompressionLevel::Uncompressed)
    }

    fn read(file: &[u8]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        Zstd::new(file).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    #[test]
    fn a_changed_byte_does_not_match_the_checksum() {
        let mut file = raw_frame();
        assert_eq!(read(&file).map(|bytes| bytes.len()), Ok(300_000));
        let middle = file.len() / 2;
        file[middle] ^= 1;
        assert_eq!(read(&file), Err("the zstd data does not match its checksum".into()));
        assert!(read(&[&file[..], &raw_frame()].concat()).is_err());
    }

    #[test]
    fn skippable_frames_are_skipped_wherever_they_are() {
        let skippable = |number: u8, len: usize| {
            [&[0x50 + number, 0x2A, 0x4D, 0x18][..], &(len as u32).to_le_bytes(), &vec![0xFD; len]].concat()
        };
        let (first, between, last) = (skippable(0, 4), skippable(7, 100_000), skippable(15, 0));
        let file = [first, raw_frame(), between.clone(), between, raw_frame(), last.clone(), last].concat();
        assert_eq!(read(&file).unwrap(), [read(&raw_frame()).unwrap(), read(&raw_frame()).unwrap()].concat());
        assert_eq!(read(&skippable(3, 9)), Ok(Vec::new()));
        assert!(read(&[raw_frame(), skippable(3, 9)[..16].to_vec()].concat()).is_err());
    }
}
