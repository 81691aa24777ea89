//! The table of packet types: receiver, length and flags of each.

use super::header::{CommonHeader, Flags};
use super::{AUTHENTICATION_LEN, CHECK_LEN};

/// The type of a packet (section 3.1 of the paper, "Packet types"; the paper has the first seven).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Work queue element: the server's driver passes work to the client.
    Wqep = 1,
    /// Completion queue element: the client reports a result to the server's driver.
    Cqep = 2,
    /// Element acknowledgement, between the drivers.
    Ea = 3,
    /// Receiving data: payload for the memory of the server.
    Rdp = 4,
    /// Receiving acknowledgement: the server's card has stored or refused a payload.
    Ra = 5,
    /// Getting data: the client requests memory of the server.
    Gd = 6,
    /// Sending data: the requested memory.
    Sdp = 7,
    /// Atomic operation: the client changes 8 bytes of the server; the answer is their previous value. Not in
    /// the paper.
    Aop = 8,
}

/// The properties of a packet type.
struct Row {
    name: &'static str,
    /// Bytes between the common header and the payload.
    body_len: u8,
    /// Allowed flags.
    flags: Flags,
    /// Mandatory flags.
    required: Flags,
}

const NONE: Flags = Flags::NONE;
const TAG: Flags = Flags::AUTHENTICATED;
const SPAN: Flags = Flags::LAST.with(TAG);
const ANSWER: Flags = SPAN.with(Flags::ECN_ECHO).with(Flags::REFUSED);
const DONE: Flags = Flags::SOLICITED.with(Flags::TO_SERVER).with(TAG);

const fn row(name: &'static str, body_len: u8, flags: Flags, required: Flags) -> Row {
    Row { name, body_len, flags, required }
}

/// In the order of the codes, from 1 on.
static TABLE: [Row; 8] = [
    row("WQEP", 32, TAG, NONE),
    row("CQEP", 20, DONE, Flags::TO_SERVER),
    row("EA", 0, Flags::TO_SERVER.with(TAG), NONE),
    row("RDP", 36, SPAN, NONE),
    row("RA", 0, ANSWER, NONE),
    row("GD", 36, SPAN, NONE),
    row("SDP", 0, ANSWER, NONE),
    row("AOP", 60, SPAN, NONE),
];

impl PacketType {
    /// All types in the order of the codes.
    pub const ALL: [Self; 8] =
        [Self::Wqep, Self::Cqep, Self::Ea, Self::Rdp, Self::Ra, Self::Gd, Self::Sdp, Self::Aop];

    /// Decodes a type; `None` if unknown.
    #[inline]
    pub const fn new(code: u8) -> Option<Self> {
        match code {
            1..=8 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    #[inline]
    const fn row(self) -> &'static Row {
        &TABLE[self as usize - 1]
    }

    /// Returns the paper's name.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the length of the headers before the payload, in bytes. Elements of atomic operations have 16
    /// more.
    #[inline]
    pub const fn header_len(self) -> usize {
        CommonHeader::LEN + self.row().body_len as usize
    }

    /// Bytes of a datagram, a UDP payload, with `payload_len` bytes of payload and without authentication.
    #[inline]
    pub const fn datagram_len(self, payload_len: usize) -> usize {
        self.header_len() + payload_len + CHECK_LEN
    }

    /// Bytes of a datagram with authentication.
    #[inline]
    pub const fn authenticated_len(self, payload_len: usize) -> usize {
        self.header_len() + payload_len + AUTHENTICATION_LEN
    }

    /// Returns the allowed flags.
    #[inline]
    pub(super) const fn flags(self) -> Flags {
        self.row().flags
    }

    /// Returns true if `flags` are all allowed and include the mandatory ones.
    #[inline]
    pub(super) const fn allows(self, flags: Flags) -> bool {
        self.row().flags.contains(flags) && flags.contains(self.row().required)
    }

    /// Returns true for packets to the stateless server's card, which looks up no connection.
    #[inline]
    pub const fn is_for_card(self) -> bool {
        matches!(self, Self::Rdp | Self::Gd | Self::Aop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_the_places_in_the_table() {
        for code in 0..=u8::MAX {
            let known = PacketType::new(code);
            assert_eq!(known.map(|kind| kind as u8), (1..=8).contains(&code).then_some(code));
        }
        let names = PacketType::ALL.map(PacketType::name);
        assert_eq!(names, ["WQEP", "CQEP", "EA", "RDP", "RA", "GD", "SDP", "AOP"]);
    }

    /// The lengths that the simulator's experiments assume, with 42 bytes of Ethernet, IPv4 and UDP.
    #[test]
    fn frames_are_as_long_as_the_specification_says() {
        let frame = |kind: PacketType, payload| 42 + kind.datagram_len(payload);
        assert_eq!([frame(PacketType::Rdp, 8), frame(PacketType::Ra, 0)], [106, 62]);
        assert_eq!([frame(PacketType::Gd, 0), frame(PacketType::Sdp, 1400)], [98, 1462]);
        assert_eq!([frame(PacketType::Ea, 0), frame(PacketType::Cqep, 0)], [62, 82]);
        assert_eq!([frame(PacketType::Wqep, 24), frame(PacketType::Aop, 0)], [118, 122]);
    }

    #[test]
    fn three_types_are_for_the_stateless_servers_card() {
        let is_for_card = PacketType::ALL.map(PacketType::is_for_card);
        assert_eq!(is_for_card, [false, false, false, true, false, true, false, true]);
    }
}
