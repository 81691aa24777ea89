//! Captures compressed by gzip or zstd, decompressed while they are read. Reads all members or frames of a
//! file, as written by concatenation and by parallel compressors. Without the feature `compression`, such
//! files are refused.

use std::io::{self, BufReader, Read};

/// Size of the read-ahead buffers, for compressed and for decompressed bytes.
pub(super) const READ_AHEAD: usize = 256 * 1024;

const GZIP: &[u8] = &[0x1F, 0x8B];

/// Length of the longest magic number, in bytes.
const MAGIC_LEN: u64 = 4;

/// The decompressed bytes of a capture.
pub(super) struct Plain {
    pub(super) bytes: Box<dyn Read + Send>,
    pub(super) was_compressed: bool,
}

impl Plain {
    /// Detects compression by the first bytes.
    pub(super) fn new(mut input: impl Read + Send + 'static) -> io::Result<Self> {
        // A pipe may give fewer bytes than the magic number at a time.
        let mut start = Vec::new();
        input.by_ref().take(MAGIC_LEN).read_to_end(&mut start)?;
        let (is_gzip, is_zstd) = (start.starts_with(GZIP), is_zstd(&start));
        let input = BufReader::with_capacity(READ_AHEAD, io::Cursor::new(start).chain(input));
        let decompressed: Box<dyn Read + Send> = if is_gzip {
            decompress::gzip(input)?
        } else if is_zstd {
            decompress::zstd(input)?
        } else {
            return Ok(Self { bytes: Box::new(input), was_compressed: false });
        };
        let bytes = Box::new(BufReader::with_capacity(READ_AHEAD, decompressed));
        Ok(Self { bytes, was_compressed: true })
    }
}

/// Returns true for the magic number of a zstd frame or a skippable frame.
const fn is_zstd(start: &[u8]) -> bool {
    matches!(start, [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..])
}

#[cfg(feature = "compression")]
mod decompress {
    use std::io::{self, BufRead, Read};

    use super::super::gzip::Gzip;
    use super::super::zstd::Zstd;

    pub(super) fn gzip(input: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Gzip::new(input)))
    }

    pub(super) fn zstd(input: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Zstd::new(input)))
    }
}

#[cfg(not(feature = "compression"))]
mod decompress {
    use std::io::{self, BufRead, Read};

    pub(super) fn gzip(_input: impl BufRead) -> io::Result<Box<dyn Read + Send>> {
        Err(unsupported("gzip"))
    }

    pub(super) fn zstd(_input: impl BufRead) -> io::Result<Box<dyn Read + Send>> {
        Err(unsupported("zstd"))
    }

    fn unsupported(format: &str) -> io::Error {
        let error = format!("{format} is not supported: this build lacks the feature 'compression'");
        io::Error::new(io::ErrorKind::Unsupported, error)
    }
}

#[cfg(test)]
#[cfg(feature = "compression")]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::{ErrorKind, Write};

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn read(file: Vec<u8>) -> io::Result<(Vec<u8>, bool)> {
        let Plain { mut bytes, was_compressed } = Plain::new(io::Cursor::new(file))?;
        let mut read = Vec::new();
        bytes.read_to_end(&mut read)?;
        Ok((read, was_compressed))
    }

    #[test]
    fn every_member_of_a_compressed_file_is_read() {
        let (first, second) = (vec![7; 700_000], b"the rest".to_vec());
        let whole = [&first[..], &second].concat();
        for compress in [gzip, zstd] {
            let file = [compress(&first), compress(&second)].concat();
            assert_eq!(read(file).unwrap(), (whole.clone(), true));
        }
        assert_eq!(read(whole.clone()).unwrap(), (whole, false));
        assert_eq!(read(Vec::new()).unwrap(), (Vec::new(), false));
    }

    #[test]
    fn a_compressed_file_that_is_cut_off_gives_the_bytes_before() {
        let bytes: Vec<u8> =
            (0..300_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for compress in [gzip, zstd] {
            let file = compress(&bytes);
            for cut in [file.len() - 1, file.len() - 4, file.len() - 100, file.len() * 2 / 3, 5] {
                let (mut read, mut plain) =
                    (Vec::new(), Plain::new(io::Cursor::new(file[..cut].to_vec())).unwrap());
                let error = plain.bytes.read_to_end(&mut read).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "cut at {cut}: {error}");
                assert!(bytes.starts_with(&read));
                // A zstd block holds up to 128 KiB, and is decoded as a whole.
                assert!(read.len() + (128 << 10) + 100 > cut, "cut at {cut}: {} bytes read", read.len());
            }
        }
    }

    #[test]
    fn an_error_of_the_system_is_not_an_end() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is on fire"))
            }
        }
        for compress in [gzip, zstd] {
            let file = compress(&[7; 1000]);
            for len in [file.len() / 2, file.len()] {
                let start = io::Cursor::new(file[..len].to_vec());
                let mut plain = Plain::new(start.chain(Failing)).unwrap();
                let error = plain.bytes.read_to_end(&mut Vec::new()).unwrap_err();
                assert_eq!(error.to_string(), "the disk is on fire");
            }
        }
    }

    #[test]
    fn a_skippable_frame_may_begin_a_zstd_file() {
        for number in [0x50, 0x5F] {
            let file = [&[number, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 9, 9, 9][..], &zstd(b"the rest")].concat();
            assert_eq!(read(file).unwrap(), (b"the rest".to_vec(), true));
        }
    }
}
