//! The one table of packet types: who takes them, how long they are, which flags they may have.

use super::header::{CommonHeader, Flags};
use super::{AUTHENTICATION_LEN, CHECK_LEN};

/// What a packet is (section 3.1 of the paper, "Packet types"; the paper has the first seven).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Work queue element: the server's driver hands work to the client.
    Wqep = 1,
    /// Completion queue element: the client tells the server's driver what became of it.
    Cqep = 2,
    /// Element acknowledgement, of the drivers on both sides.
    Ea = 3,
    /// Receiving data: payload for the memory of the server.
    Rdp = 4,
    /// Receiving acknowledgement: the server's card has stored a payload, or refuses to.
    Ra = 5,
    /// Getting data: the client asks for memory of the server.
    Gd = 6,
    /// Sending data: the memory that was asked for.
    Sdp = 7,
    /// Atomic operation: the client changes 8 bytes of the server, whose value before is sent as data. Not in the paper.
    Aop = 8,
}

/// What a type says of its packets.
struct Row {
    name: &'static str,
    /// Bytes between the common header and the payload.
    body_len: u8,
    /// The flags that may be set.
    flags: Flags,
    /// Those of them that must be set.
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
    /// Every type, in the order of the codes.
    pub const ALL: [Self; 8] =
        [Self::Wqep, Self::Cqep, Self::Ea, Self::Rdp, Self::Ra, Self::Gd, Self::Sdp, Self::Aop];

    /// The type of this code; `None` where there is none.
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

    /// The paper's name of it.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Bytes of the headers before the payload. Elements of atomic operations have 16 more.
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

    /// The flags that packets of this type may have.
    #[inline]
    pub(super) const fn flags(self) -> Flags {
        self.row().flags
    }

    /// Whether these are flags for it: none that has no meaning, and all that it cannot be without.
    #[inline]
    pub(super) const fn allows(self, flags: Flags) -> bool {
        self.row().flags.contains(flags) && flags.contains(self.row().required)
    }

    /// Whether the card of the stateless side takes it, which looks up no connection.
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

    /// What the experiments of the simulator count on, with 42 bytes of Ethernet, IPv4 and UDP.
    #[test]
    fn frames_are_as_long_as_the_specification_says() {
        let frame = |kind: PacketType, payload| 42 + kind.datagram_len(payload);
        assert_eq!([frame(PacketType::Rdp, 8), frame(PacketType::Ra, 0)], [106, 62]);
        assert_eq!([frame(PacketType::Gd, 0), frame(PacketType::Sdp, 1400)], [98, 1462]);
        assert_eq!([frame(PacketType::Ea, 0), frame(PacketType::Cqep, 0)], [62, 82]);
        assert_eq!([frame(PacketType::Wqep, 24), frame(PacketType::Aop, 0)], [118, 122]);
    }
}
