//! The terms of a connection, on which both ends agree before the first FPDU.

use nichrome_wire::iwarp::{Crc, MARKER_INTERVAL, MARKER_LEN, MAX_ULPDU, fpdu_len};

/// The result of MPA's start-up, for [`Device::connect`](crate::Device::connect).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Which end of the connection this is.
    pub role: Role,
    /// Whether FPDUs have CRCs, in both directions.
    pub crc: Crc,
    /// The peer requested markers in the stream that it receives.
    pub markers_out: bool,
    /// This end requested markers in the stream that it receives.
    pub markers_in: bool,
    /// Maximum number of outstanding READ and atomic requests of the peer.
    pub ird: u16,
    /// Maximum number of outstanding READ and atomic requests of this end.
    pub ord: u16,
    /// The ready-to-receive message of peer-to-peer mode, the initiator's first FPDU; `None` in client-server
    /// mode.
    pub rtr: Option<RtrMessage>,
    /// The peer has the immediate data and atomic operations of RFC 7306.
    pub extended: bool,
    /// The longest DDP segment that is sent, in bytes (MULPDU, RFC 5044 section 3); with markers at most
    /// [`MAX_MARKED_ULPDU`](nichrome_wire::iwarp::MAX_MARKED_ULPDU).
    pub max_ulpdu: u16,
}

impl Terms {
    /// The longest DDP segment between software ends. Its FPDU is 64 KiB long.
    pub const LONGEST_ULPDU: u16 = MAX_ULPDU as u16 - 5;

    /// Bytes of the longest FPDU that may arrive, with markers. A driver must be able to keep as many bytes
    /// of a stream, since an FPDU with CRC or markers is consumed whole.
    pub const LONGEST_FPDU: usize = {
        let unmarked = fpdu_len(MAX_ULPDU);
        unmarked + (unmarked / (MARKER_INTERVAL - MARKER_LEN) + 2) * MARKER_LEN
    };
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It opened the stream and sent the MPA Request. Sends the first FPDU.
    Initiator,
    /// It sent the MPA Reply. Sends no FPDU before the first one of the initiator (RFC 5044 section 7.1.3).
    Responder,
}

/// The ready-to-receive message: a message without payload that consumes no receive (RFC 6581 section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RtrMessage {
    /// A SEND.
    Send,
    /// A WRITE.
    Write,
    /// A READ.
    Read,
}
