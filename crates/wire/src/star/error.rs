//! Errors of parsing StaR packets.

use thiserror::Error;

use super::header::Flags;
use super::packet_type::PacketType;

/// An invalid StaR packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StarError {
    /// The length differs from that of headers, payload and trailer.
    #[error("the StaR packet has {len} bytes where its header says {expected}")]
    Length {
        /// Bytes available.
        len: usize,
        /// Bytes required.
        expected: usize,
    },
    /// A version other than 2.
    #[error("version {0} of StaR where 2 is expected")]
    Version(u8),
    /// Unknown packet type.
    #[error("unknown StaR packet type {0}")]
    Type(u8),
    /// A flag that the packet type forbids, or a missing mandatory one.
    #[error("flags {:#04x} on a {} packet", flags.bits(), kind.name())]
    Flags {
        /// The packet type.
        kind: PacketType,
        /// The flags.
        flags: Flags,
    },
    /// A connection number of more than 24 bits.
    #[error("connection number {0:#x} is longer than 24 bits")]
    Connection(u32),
    /// Unknown rights of a capability.
    #[error("unknown rights {0:#04x} of a capability")]
    Rights(u8),
    /// A non-zero length on a packet type that does not use it.
    #[error("length {length} on a {} packet", kind.name())]
    UnusedLength {
        /// The packet type.
        kind: PacketType,
        /// The length.
        length: u16,
    },
    /// Unknown reason of a refusal.
    #[error("unknown reason {0} of a refusal")]
    Reason(u16),
    /// Unknown opcode of an element.
    #[error("unknown opcode {0} of a work queue element")]
    Opcode(u8),
    /// A flag of an element that is unknown, or that the opcode does not have.
    #[error("flags {flags:#04x} on a work queue element with opcode {opcode}")]
    ElementFlags {
        /// The opcode.
        opcode: u8,
        /// The flags.
        flags: u8,
    },
    /// The length of the buffers differs from that of the element, or buffers are missing.
    #[error("the buffers of a work queue element have {len} bytes where it says {expected}")]
    Buffers {
        /// Length of the buffers, in bytes.
        len: u64,
        /// Length in the element, in bytes.
        expected: u32,
    },
    /// Unknown operation of a completion.
    #[error("unknown operation {0} in a completion")]
    Completed(u8),
    /// Unknown status of a completion.
    #[error("unknown status {0} of a completion")]
    Status(u8),
    /// Unknown notice of a completion.
    #[error("unknown notice {0} in a completion")]
    Notice(u8),
}
