//! Zstandard frames (RFC 8878), one after another, decompressed while they are read, and checked against
//! their content checksums. Skippable frames, such as those of pzstd and of the seekable format, are skipped.

use super::compressed_input::CompressedInput;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, ErrorKind, Read};

const ONE_BLOCK: BlockDecodingStrategy = BlockDecodingStrategy::UptoBlocks(1);

/// An empty raw block, the last of its frame (RFC 8878 §3.1.1.2), and a checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// The decompressed bytes of a sequence of frames.
pub(super) struct Zstd<R> {
    input: CompressedInput<R>,
    decoder: FrameDecoder,
    position: Position,
}

/// The position in the input.
#[derive(Clone, Copy)]
enum Position {
    BetweenFrames,
    InFrame,
    /// After the end of an input that ends within a frame.
    CutOff,
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input: CompressedInput::new(input),
            decoder: FrameDecoder::new(),
            position: Position::BetweenFrames,
        }
    }

    /// Begins a frame, decodes its next block, or ends it. Returns false at the end of the input.
    fn advance(&mut self) -> io::Result<bool> {
        match self.position {
            Position::BetweenFrames => {
                if self.input.is_at_end()? {
                    return Ok(false);
                }
                self.begin_frame()?;
            }
            Position::InFrame if self.decoder.is_finished() => {
                self.check()?;
                self.position = Position::BetweenFrames;
            }
            Position::InFrame => {
                if let Err(error) = self.decoder.decode_blocks(&mut self.input, ONE_BLOCK) {
                    self.failed_in_frame(&error)?;
                }
            }
            Position::CutOff => return Err(ErrorKind::UnexpectedEof.into()),
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
                let skipped = io::copy(&mut self.input.by_ref().take(length), &mut io::sink());
                match skipped {
                    Ok(skipped) if skipped < length => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) => return Err(self.input.cause(error)),
                }
            }
            Err(error) => return Err(self.input.cause(describe(&error))),
        }
        Ok(())
    }

    /// Ends a cut-off frame with an empty last block: until the last block, the decoder keeps the last bytes
    /// of a frame, up to the size of the window.
    ///
    /// # Errors
    /// The block is corrupt, or the input cannot be read.
    fn failed_in_frame(&mut self, error: &FrameDecoderError) -> io::Result<()> {
        let cause = self.input.cause(describe(error));
        if cause.kind() != ErrorKind::UnexpectedEof {
            return Err(cause);
        }
        self.position = Position::CutOff;
        self.decoder.decode_blocks(&LAST_BLOCK[..], ONE_BLOCK).map_err(|error| describe(&error))?;
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

/// Returns the error for a frame that cannot be decompressed although its input has not ended.
fn describe(error: &FrameDecoderError) -> io::Error {
    match error {
        FrameDecoderError::WindowSizeTooBig { requested, max } => invalid(format!(
            "the zstd data needs a window of {requested} bytes, more than {max}: decompress it first"
        )),
        FrameDecoderError::DictNotProvided { .. } => {
            invalid("the zstd data needs a dictionary: decompress it first")
        }
        FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::BadMagicNumber(_)) => {
            invalid("bytes that are no zstd data follow the zstd data")
        }
        _ => invalid("the zstd data is corrupt"),
    }
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
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

    #[test]
    fn corrupt_frames_are_named() {
        // A reserved block type.
        let mut file = raw_frame();
        let header = file.len() - 300_000 % (128 << 10) - 4 - 3;
        file[header] |= 6;
        assert_eq!(read(&file), Err("the zstd data is corrupt".into()));
        let followed = [&raw_frame()[..], b"the next"].concat();
        assert_eq!(read(&followed), Err("bytes that are no zstd data follow the zstd data".into()));
        // A window of 2 GiB, and a dictionary (RFC 8878 §3.1.1.1).
        let window =
            "the zstd data needs a window of 2147483648 bytes, more than 134217728: decompress it first";
        assert_eq!(read(&[0x28, 0xB5, 0x2F, 0xFD, 0, 21 << 3]), Err(window.into()));
        let dictionary = "the zstd data needs a dictionary: decompress it first";
        assert_eq!(read(&[0x28, 0xB5, 0x2F, 0xFD, 1, 0, 9, 1, 0, 0]), Err(dictionary.into()));
    }
}
