//! Capture files: reads pcap and pcapng, also compressed by gzip or zstd; writes pcapng with nanosecond
//! timestamps.
//!
//! [`open`] and [`create`] take a path, or `-` for the standard streams; [`Reader`] and [`Writer`] take any
//! stream. The formats follow draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. A truncated file, such as
//! that of a running capture, is read up to its last whole record.

mod block;
mod capture_file;
mod clock;
#[cfg(feature = "compression")]
mod compressed_input;
mod compression;
mod cooked;
mod error;
#[cfg(feature = "compression")]
mod gzip;
mod link_type;
mod output;
mod pcap;
mod pcapng;
mod reader;
mod source;
#[cfg(test)]
mod testing;
mod writer;
#[cfg(feature = "compression")]
mod zstd;

pub use cooked::CookedHeader;
pub use error::{ReadError, WriteError};
pub use link_type::{LinkType, Skipped};
pub use output::{Output, create, create_or_continue};
pub use reader::{Reader, open};
pub use writer::Writer;

use nichrome_wire::Instant;

/// The maximum length of a written record, in bytes; other tools reject longer ones.
pub const MAX_SNAP_LEN: u32 = 256 * 1024;

/// The captured length, in bytes, above which a record counts as corrupt: [`MAX_SNAP_LEN`] with some slack.
pub const MAX_RECORD: u32 = MAX_SNAP_LEN + 4096;

/// The maximum number of interfaces in a section of pcapng; bounds the memory that a file can claim.
pub const MAX_INTERFACES: usize = 65_536;

/// The metadata of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970. A pcapng Simple Packet Block has no timestamp and gets that of the previous
    /// record.
    pub time: Instant,
    /// The interface index, counted from 0 through all sections of the file.
    pub interface: u32,
    /// The header that the bytes begin with.
    pub link_type: LinkType,
    /// The length of the packet on the wire, in bytes. Exceeds the captured length if the capture truncated
    /// the packet.
    pub original_len: u32,
}

/// The pcapng options of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions<'a> {
    /// Comments, one per line, of at most 65,535 bytes.
    pub comment: Option<&'a str>,
    /// Direction, kind of reception, length of the frame check sequence, and link-layer errors (`epb_flags`).
    pub flags: Option<u32>,
    /// Number of packets lost between this packet and the previous one of the same interface
    /// (`epb_dropcount`).
    pub dropped: Option<u64>,
}

/// The position of a reader in a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whole records read.
    pub records: u64,
    /// Offset of the end of the last whole block, in bytes.
    pub bytes: u64,
}
