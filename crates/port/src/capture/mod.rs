//! Capture files: classic pcap and pcapng are read, also compressed by gzip or zstd; pcapng with nanoseconds is written.
//!
//! [`open`] and [`create`] take a path, `-` for the standard streams; [`create_durable`] makes captures of processes that may be
//! killed; [`Reader`] and [`Writer`] take any stream. The
//! formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. A file that is cut off, as the file of a
//! capture still running is, is read up to its last whole record.

mod block;
mod clock;
mod compression;
mod durable_file;
mod error;
mod link_type;
mod pcap;
mod pcapng;
mod reader;
mod source;
#[cfg(test)]
mod testing;
mod writer;

pub use error::{ReadError, WriteError};
pub use link_type::LinkType;
pub use reader::{Reader, open};
pub use writer::{Writer, create, create_durable};

use nichrome_wire::Instant;

/// The bytes of a record that other tools read, and the most that is written.
pub const MAX_SNAP_LEN: u32 = 256 * 1024;

/// The captured bytes beyond which a record is taken for corrupt: [`MAX_SNAP_LEN`] and some slack.
pub const MAX_RECORD: u32 = MAX_SNAP_LEN + 4096;

/// What a capture says about a record besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970. A pcapng Simple Packet Block has no time: that of the record before it stands in.
    pub time: Instant,
    /// The interface, counted from 0 through all sections of the file.
    pub interface: u32,
    /// What the bytes begin with.
    pub link_type: LinkType,
    /// The length of the packet on the wire, in bytes; more than was captured where the capture cut it short.
    pub original_len: u32,
}

/// How far a capture has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whole records read.
    pub records: u64,
    /// Bytes of the file up to the end of the last whole record or other block.
    pub bytes: u64,
}
