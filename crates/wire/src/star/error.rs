//! Why a datagram is not a StaR packet.

use thiserror::Error;

use super::header::Flags;
use super::packet_type::PacketType;

/// Why a datagram is not a StaR packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StarError {
    /// The bytes are fewer or more than headers, payload and trailer take.
    #[error("the StaR packet has {len} bytes where its header says {expected}")]
    Length {
        /// The bytes at hand.
        len: usize,
        /// The bytes that it should have.
        expected: usize,
    },
    /// Another version than 2.
    #[error("version {0} of StaR where 2 is expected")]
    Version(u8),
    /// No type that is spoken.
    #[error("unknown StaR packet type {0}")]
    Type(u8),
    /// A flag that packets of this type do not have, or not one that they must have.
    #[error("flags {:#04x} on a {} packet", flags.bits(), kind.name())]
    Flags {
        /// What the packet is.
        kind: PacketType,
        /// Its flags.
        flags: Flags,
    },
    /// The number of a connection has more than 24 bits.
    #[error("connection number {0:#x} is longer than 24 bits")]
    Connection(u32),
    /// Rights of a capability that are unknown.
    #[error("unknown rights {0:#04x} of a capability")]
    Rights(u8),
    /// A length that the type has no use for.
    #[error("length {length} on a {} packet", kind.name())]
    UnusedLength {
        /// What the packet is.
        kind: PacketType,
        /// Its length.
        length: u16,
    },
    /// No reason for a refusal that is known.
    #[error("unknown reason {0} of a refusal")]
    Reason(u16),
    /// No opcode of an element that is known.
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
    /// The buffers of an element do not have the length that it says, or there are none where it has no others.
    #[error("the buffers of a work queue element have {len} bytes where it says {expected}")]
    Buffers {
        /// What they have.
        len: u64,
        /// What the element says.
        expected: u32,
    },
    /// A completion of an operation that is unknown.
    #[error("unknown operation {0} in a completion")]
    Completed(u8),
    /// A completion with a status that is unknown.
    #[error("unknown status {0} of a completion")]
    Status(u8),
    /// A completion with a notice that is unknown.
    #[error("unknown notice {0} in a completion")]
    Notice(u8),
}
