//! Gzip members (RFC 1952), one after another, decompressed while they are read. Zeros after a member are
//! padding, as for gzip(1).

use super::compressed_input::CompressedInput;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, ErrorKind, Read};

/// The decompressed bytes of a sequence of members.
pub(super) struct Gzip<R> {
    /// The member being read; `None` after the last.
    member: Option<GzDecoder<CompressedInput<R>>>,
}

impl<R: BufRead> Gzip<R> {
    pub(super) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(CompressedInput::new(input))) }
    }

    /// Skips padding and begins the next member, if any. Fails if other bytes follow.
    fn next_member(&mut self) -> io::Result<()> {
        let Some(mut input) = self.member.take().map(GzDecoder::into_inner) else { return Ok(()) };
        while !input.is_at_end()? {
            let bytes = input.fill_buf()?;
            let padding = bytes.iter().take_while(|byte| **byte == 0).count();
            match bytes.get(padding) {
                None => input.consume(padding),
                Some(0x1F) => {
                    input.consume(padding);
                    self.member = Some(GzDecoder::new(input));
                    return Ok(());
                }
                Some(_) => {
                    let what = "bytes that are no gzip data follow the gzip data";
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
            }
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            match member.read(buffer) {
                Ok(0) if !buffer.is_empty() => self.next_member()?,
                Ok(count) => return Ok(count),
                Err(error) => return Err(member.get_mut().cause(error)),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut member = Vec::new();
        GzEncoder::new(bytes, Compression::fast()).read_to_end(&mut member).unwrap();
        member
    }

    fn read(file: &[u8]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        Gzip::new(io::BufReader::with_capacity(7, file))
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    #[test]
    fn zeros_after_a_member_are_padding() {
        for zeros in [1, 7, 100] {
            let padding = vec![0; zeros];
            let file = [&member(b"first")[..], &padding, &member(b", second"), &padding].concat();
            assert_eq!(read(&file), Ok(b"first, second".to_vec()));
        }
    }

    #[test]
    fn corrupt_data_is_named() {
        let file = member(b"the bytes");
        let mut damaged = file.clone();
        let checksum = file.len() - 8;
        damaged[checksum] ^= 1;
        let mismatch = "corrupt gzip stream does not have a matching checksum";
        assert_eq!(read(&damaged), Err(mismatch.into()));
        let followed = [&file[..], &[0, 0], b"the next"].concat();
        assert_eq!(read(&followed), Err("bytes that are no gzip data follow the gzip data".into()));
    }
}
