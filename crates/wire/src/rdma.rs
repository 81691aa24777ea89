//! RoCEv2: InfiniBand's transport over UDP (InfiniBand Architecture Specification volume 1, chapter 9 and
//! annex A17).
//!
//! A datagram is a base transport header ([`Bth`]), the extension headers of its opcode, the payload, up to 3
//! bytes of padding and the invariant CRC. [`Repr`] holds typed headers: a [`Message`] cannot combine an
//! opcode with the wrong extension headers. One table ([`Opcode`]) drives parsing and building.

mod aeth;
mod bth;
mod crc_algebra;
mod datagram;
mod extension;
mod feth;
mod icrc;
mod message;
mod number;
mod opcode;
mod path_mtu;
mod writer;

pub use aeth::{Aeth, Credit, NakCode, RnrTimer, Syndrome};
pub use bth::{Bth, BthFlags, BthHeader};
pub use datagram::{RdmaError, Repr};
pub use extension::{AtomicEth, Deth, Reth};
pub use feth::{Feth, Placement, Selectivity};
pub use icrc::{IcrcCheck, IcrcChecker, UdpFlow};
pub use message::{Message, Part, RcMessage, ReadResponse, SendEnd, UcMessage};
pub use number::{ImmediateData, Msn, PKey, Psn, QKey, QpNumber, RKey, SrqNumber};
pub use opcode::{Extension, Opcode, Operation, Position, Transport};
pub use path_mtu::PathMtu;
pub use writer::DatagramWriter;

/// The UDP port of RoCEv2 (annex A17, registered with IANA).
pub const ROCE_PORT: u16 = 4791;

/// Bytes of the invariant CRC.
pub const ICRC_LEN: usize = 4;
