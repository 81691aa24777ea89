//! Errors of reading and writing capture files, each a one-line message.

use super::link_type::{LinkCode, LinkType};
use super::{MAX_INTERFACES, MAX_SNAP_LEN, Progress};
use std::fmt;
use std::io;

/// Why a capture could not be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// An I/O error.
    #[error("cannot read the capture: {0}")]
    Io(io::Error),
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The first bytes match no capture format.
    #[error("not a pcap or pcapng file: it begins with {}", Hex(magic))]
    NotACapture {
        /// The first bytes, at most four.
        magic: Vec<u8>,
    },
    /// The file is compressed by a method that Nichrome does not decompress.
    #[error("the file is compressed with {method}: decompress it first")]
    Compressed {
        /// The name of the compression program.
        method: &'static str,
    },
    /// The file has an unsupported version of pcap.
    #[error("pcap version {major}.{minor} is not supported: use 2.0 to 2.4")]
    UnsupportedVersion {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// All packets begin with a link-layer header that Nichrome does not parse.
    #[error("link type {} is not supported: supported are {}", LinkCode(*code), LinkType::SUPPORTED)]
    UnsupportedLinkType {
        /// The link type code in the file.
        code: u32,
    },
    /// The file ends within a record or another block.
    #[error("the capture is cut off after {} ({bytes} bytes): the next lacks {needed} bytes or more", Records(*records))]
    Truncated {
        /// Whole records before the cut.
        records: u64,
        /// The end of the last whole record or other block, in bytes from the start of the file.
        bytes: u64,
        /// The minimum number of missing bytes.
        needed: u64,
    },
    /// The file violates its format.
    #[error("the capture is corrupt at byte {offset}: {what}")]
    Corrupt {
        /// The start of the record or other block in question, in bytes from the start of the file.
        offset: u64,
        /// The violated rule.
        what: String,
    },
}

impl ReadError {
    pub(super) const fn truncated(Progress { records, bytes }: Progress, needed: u64) -> Self {
        Self::Truncated { records, bytes, needed }
    }
}

/// Why a capture could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An I/O error.
    #[error("cannot write {destination}: {error}")]
    Io {
        /// The path, or the name of a stream.
        destination: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The record has more bytes than readers accept.
    #[error("cannot write a record to {destination}: it is longer than {MAX_SNAP_LEN} bytes")]
    TooLong {
        /// The path, or the name of a stream.
        destination: String,
    },
    /// The record's interface was not added.
    #[error("cannot write a record to {destination}: it has no interface {interface}")]
    NoInterface {
        /// The path, or the name of a stream.
        destination: String,
        /// The interface asked for.
        interface: u32,
    },
    /// The section has as many interfaces as readers accept.
    #[error("cannot write to {destination}: a section has at most {MAX_INTERFACES} interfaces")]
    TooManyInterfaces {
        /// The path, or the name of a stream.
        destination: String,
    },
}

/// A number of records, in words.
struct Records(u64);

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} whole record{plural}", self.0)
    }
}

/// Bytes in hexadecimal, with spaces between.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_error_its_place_and_the_remedy() {
        let messages = [
            (
                ReadError::UnsupportedLinkType { code: 105 },
                "link type 105 (IEEE 802.11) is not supported: supported are Ethernet (1), raw IP (101, 12, 14, 228, \
                 229), Linux cooked (113, 276) and loopback (0, 108)",
            ),
            (
                ReadError::UnsupportedLinkType { code: 9999 },
                "link type 9999 is not supported: supported are Ethernet (1), raw IP (101, 12, 14, 228, 229), Linux \
                 cooked (113, 276) and loopback (0, 108)",
            ),
            (
                ReadError::truncated(Progress { records: 1, bytes: 100 }, 7),
                "the capture is cut off after 1 whole record (100 bytes): the next lacks 7 bytes or more",
            ),
            (
                ReadError::truncated(Progress { records: 12, bytes: 3456 }, 7),
                "the capture is cut off after 12 whole records (3456 bytes): the next lacks 7 bytes or more",
            ),
            (
                ReadError::NotACapture { magic: b"\x7fELF".to_vec() },
                "not a pcap or pcapng file: it begins with 7f 45 4c 46",
            ),
            (
                ReadError::Corrupt { offset: 24, what: "a record of 4294967295 bytes".into() },
                "the capture is corrupt at byte 24: a record of 4294967295 bytes",
            ),
        ];
        for (error, message) in messages {
            assert_eq!(error.to_string(), message);
        }
    }
}
