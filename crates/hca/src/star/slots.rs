//! Several processes at one address: each has a slot of connection numbers, and a TCP port for its set-ups.
//!
//! The side that connects knows the other side's connection number, and so its slot if the address is shared.
//! It first tries [`STAR_PORT`], at which a process with an unshared address listens; if that is refused, the
//! slot's port.

use nichrome_port::udp::{OtherKinds, Steering};
use nichrome_rdma::{QpNumber, STEERING_BITS};
use nichrome_wire::star::{PacketType, STAR_PORT};

/// The slot is in the top bits of the 24 bits of a connection's number.
pub(crate) const SLOT_BITS: u32 = STEERING_BITS;

/// Slot n listens at this TCP port plus n. The ports are not registered, and
/// Linux does not use them for outgoing connections (`ip_local_port_range`).
const FIRST_PORT: u16 = 31_793;

/// Bytes of a packet in front of the server's number of the connection, in RDP, GD and AOP.
const BEFORE_SERVER: u32 = 16 + 12 + 16;

/// The kernel selects the process by a connection number: the receiver's, in the common header; in packets
/// for a card (RDP, GD, AOP) the server's, in the capability.
pub(crate) const STEERING: Steering = Steering {
    byte: 5,
    bits: SLOT_BITS,
    others: Some(OtherKinds {
        kinds: [PacketType::Rdp as u8, PacketType::Gd as u8, PacketType::Aop as u8],
        byte: BEFORE_SERVER + 1,
    }),
    management: None,
};

/// The TCP port of a process: its slot's if it shares its address.
pub(super) const fn port_of(slot: Option<usize>) -> u16 {
    match slot {
        None => STAR_PORT,
        Some(slot) => FIRST_PORT + slot as u16,
    }
}

/// The slot of the process that has a connection with this number, if it shares its address.
pub(super) const fn slot_of(number: QpNumber) -> usize {
    (number.value() >> (24 - SLOT_BITS)) as usize
}
