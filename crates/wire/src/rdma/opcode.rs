//! The table of opcodes: transport, operation, position and extension headers of each.

use std::fmt;

use Extension::{Aeth, AtomicAckEth, AtomicEth, CnpReserved, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
use Operation::{
    Acknowledge, AtomicAcknowledge, AtomicWrite, CompareSwap, CongestionNotification, FetchAdd, Flush,
    ReadRequest, ReadResponse, Send, Write,
};
use Position::{First, Last, Middle, Only};
use Transport::{Cnp, Rc, Uc, Ud, Xrc};

/// Length of the base transport header, in bytes.
pub(super) const BTH_LEN: usize = 12;

/// A transport service: the top three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection: each request names the shared receive queue of its receives (annex A14).
    Xrc,
    /// None: congestion notification.
    Cnp,
}

/// The operation that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A SEND, into memory that the receiver posted.
    Send,
    /// A WRITE, into memory that the sender names.
    Write,
    /// A READ request.
    ReadRequest,
    /// A READ response.
    ReadResponse,
    /// An ACK, RNR NAK or NAK.
    Acknowledge,
    /// The response to an atomic operation.
    AtomicAcknowledge,
    /// A compare and swap request.
    CompareSwap,
    /// A fetch and add request.
    FetchAdd,
    /// A FLUSH request: places earlier WRITEs (annex A19).
    Flush,
    /// An ATOMIC WRITE request of 8 bytes (annex A19).
    AtomicWrite,
    /// Congestion notification: asks the sender to slow down (annex A17.9).
    CongestionNotification,
}

/// A packet's position in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The only packet.
    Only,
}

impl Position {
    /// Returns true for the first packet of a message.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, First | Only)
    }

    /// Returns true for the last packet of a message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Last | Only)
    }
}

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Datagram: Q key and source queue pair.
    Deth,
    /// Extended reliable connection: the shared receive queue.
    XrcEth,
    /// Remote memory: address, key and length.
    Reth,
    /// Atomic operation: address, key and operands.
    AtomicEth,
    /// Flush: placement type and selectivity.
    Feth,
    /// Acknowledgement: syndrome and message sequence number.
    Aeth,
    /// Response to an atomic operation: the value before.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// The key to invalidate.
    Ieth,
    /// The reserved bytes of a notification of congestion.
    CnpReserved,
}

impl Extension {
    /// Bytes of the header.
    pub const fn bytes(self) -> usize {
        match self {
            ImmDt | Ieth | Aeth | Feth | XrcEth => 4,
            Deth | AtomicAckEth => 8,
            Reth | CnpReserved => 16,
            AtomicEth => 28,
        }
    }
}

/// The extension header at the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tail {
    Nothing,
    Immediate,
    Invalidate,
}

/// The properties of an opcode.
#[derive(Debug)]
struct Row {
    code: u8,
    transport: Transport,
    operation: Operation,
    position: Position,
    extensions: &'static [Extension],
}

const fn row(
    code: u8,
    transport: Transport,
    operation: Operation,
    position: Position,
    extensions: &'static [Extension],
) -> Row {
    Row { code, transport, operation, position, extensions }
}

impl Row {
    const fn tail(&self) -> Tail {
        match self.extensions {
            [.., ImmDt] => Tail::Immediate,
            [.., Ieth] => Tail::Invalidate,
            _ => Tail::Nothing,
        }
    }

    const fn header_len(&self) -> usize {
        let mut len = BTH_LEN;
        let mut nth = 0;
        while nth < self.extensions.len() {
            len += self.extensions[nth].bytes();
            nth += 1;
        }
        len
    }
}

/// Every opcode (IBA 9.2.1 and table 38; annex A14 for XRC, A17.9 for the notification, A19 for FLUSH and
/// ATOMIC WRITE), with its extension headers in order.
static TABLE: [Row; 65] = [
    row(0x00, Rc, Send, First, &[]),
    row(0x01, Rc, Send, Middle, &[]),
    row(0x02, Rc, Send, Last, &[]),
    row(0x03, Rc, Send, Last, &[ImmDt]),
    row(0x04, Rc, Send, Only, &[]),
    row(0x05, Rc, Send, Only, &[ImmDt]),
    row(0x06, Rc, Write, First, &[Reth]),
    row(0x07, Rc, Write, Middle, &[]),
    row(0x08, Rc, Write, Last, &[]),
    row(0x09, Rc, Write, Last, &[ImmDt]),
    row(0x0A, Rc, Write, Only, &[Reth]),
    row(0x0B, Rc, Write, Only, &[Reth, ImmDt]),
    row(0x0C, Rc, ReadRequest, Only, &[Reth]),
    row(0x0D, Rc, ReadResponse, First, &[Aeth]),
    row(0x0E, Rc, ReadResponse, Middle, &[]),
    row(0x0F, Rc, ReadResponse, Last, &[Aeth]),
    row(0x10, Rc, ReadResponse, Only, &[Aeth]),
    row(0x11, Rc, Acknowledge, Only, &[Aeth]),
    row(0x12, Rc, AtomicAcknowledge, Only, &[Aeth, AtomicAckEth]),
    row(0x13, Rc, CompareSwap, Only, &[AtomicEth]),
    row(0x14, Rc, FetchAdd, Only, &[AtomicEth]),
    row(0x16, Rc, Send, Last, &[Ieth]),
    row(0x17, Rc, Send, Only, &[Ieth]),
    row(0x1C, Rc, Flush, Only, &[Feth, Reth]),
    row(0x1D, Rc, AtomicWrite, Only, &[Reth]),
    row(0x20, Uc, Send, First, &[]),
    row(0x21, Uc, Send, Middle, &[]),
    row(0x22, Uc, Send, Last, &[]),
    row(0x23, Uc, Send, Last, &[ImmDt]),
    row(0x24, Uc, Send, Only, &[]),
    row(0x25, Uc, Send, Only, &[ImmDt]),
    row(0x26, Uc, Write, First, &[Reth]),
    row(0x27, Uc, Write, Middle, &[]),
    row(0x28, Uc, Write, Last, &[]),
    row(0x29, Uc, Write, Last, &[ImmDt]),
    row(0x2A, Uc, Write, Only, &[Reth]),
    row(0x2B, Uc, Write, Only, &[Reth, ImmDt]),
    row(0x64, Ud, Send, Only, &[Deth]),
    row(0x65, Ud, Send, Only, &[Deth, ImmDt]),
    row(0xA0, Xrc, Send, First, &[XrcEth]),
    row(0xA1, Xrc, Send, Middle, &[XrcEth]),
    row(0xA2, Xrc, Send, Last, &[XrcEth]),
    row(0xA3, Xrc, Send, Last, &[XrcEth, ImmDt]),
    row(0xA4, Xrc, Send, Only, &[XrcEth]),
    row(0xA5, Xrc, Send, Only, &[XrcEth, ImmDt]),
    row(0xA6, Xrc, Write, First, &[XrcEth, Reth]),
    row(0xA7, Xrc, Write, Middle, &[XrcEth]),
    row(0xA8, Xrc, Write, Last, &[XrcEth]),
    row(0xA9, Xrc, Write, Last, &[XrcEth, ImmDt]),
    row(0xAA, Xrc, Write, Only, &[XrcEth, Reth]),
    row(0xAB, Xrc, Write, Only, &[XrcEth, Reth, ImmDt]),
    row(0xAC, Xrc, ReadRequest, Only, &[XrcEth, Reth]),
    row(0xAD, Xrc, ReadResponse, First, &[Aeth]),
    row(0xAE, Xrc, ReadResponse, Middle, &[]),
    row(0xAF, Xrc, ReadResponse, Last, &[Aeth]),
    row(0xB0, Xrc, ReadResponse, Only, &[Aeth]),
    row(0xB1, Xrc, Acknowledge, Only, &[Aeth]),
    row(0xB2, Xrc, AtomicAcknowledge, Only, &[Aeth, AtomicAckEth]),
    row(0xB3, Xrc, CompareSwap, Only, &[XrcEth, AtomicEth]),
    row(0xB4, Xrc, FetchAdd, Only, &[XrcEth, AtomicEth]),
    row(0xB6, Xrc, Send, Last, &[XrcEth, Ieth]),
    row(0xB7, Xrc, Send, Only, &[XrcEth, Ieth]),
    row(0xBC, Xrc, Flush, Only, &[XrcEth, Feth, Reth]),
    row(0xBD, Xrc, AtomicWrite, Only, &[XrcEth, Reth]),
    row(0x81, Cnp, CongestionNotification, Only, &[CnpReserved]),
];

/// The opcode of each byte value.
static BY_CODE: [Option<Opcode>; 256] = {
    let mut opcodes = [None; 256];
    let mut nth = 0;
    while nth < TABLE.len() {
        opcodes[TABLE[nth].code as usize] = Some(opcode(nth));
        nth += 1;
    }
    opcodes
};

/// Opcodes by transport, operation, position and tail. Combinations without an opcode map to the first one;
/// [`Message`] cannot express them.
///
/// [`Message`]: super::message::Message
static BY_MEANING: [[[[Opcode; 3]; 4]; 11]; 5] = {
    let mut opcodes = [[[[opcode(0); 3]; 4]; 11]; 5];
    let mut nth = 0;
    while nth < TABLE.len() {
        let Row { transport, operation, position, .. } = TABLE[nth];
        let tail = TABLE[nth].tail();
        opcodes[transport as usize][operation as usize][position as usize][tail as usize] = opcode(nth);
        nth += 1;
    }
    opcodes
};

/// Returns the opcode of the `nth` row.
const fn opcode(nth: usize) -> Opcode {
    Opcode { row: nth as u8, header_len: TABLE[nth].header_len() as u8 }
}

/// A known opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode {
    row: u8,
    header_len: u8,
}

impl Opcode {
    /// Maximum length of the headers, in bytes.
    pub const MAX_HEADER_LEN: usize = BTH_LEN + XrcEth.bytes() + AtomicEth.bytes();

    /// Decodes an opcode byte; `None` if unknown.
    #[inline]
    pub const fn new(code: u8) -> Option<Self> {
        BY_CODE[code as usize]
    }

    /// Iterates over all opcodes.
    pub fn all() -> impl Iterator<Item = Self> {
        BY_CODE.into_iter().flatten()
    }

    /// Returns the opcode with these properties.
    #[inline]
    pub(super) const fn meaning(
        transport: Transport,
        operation: Operation,
        position: Position,
        tail: Tail,
    ) -> Self {
        BY_MEANING[transport as usize][operation as usize][position as usize][tail as usize]
    }

    #[inline]
    const fn row(self) -> &'static Row {
        &TABLE[self.row as usize]
    }

    /// Returns the byte on the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        self.row().code
    }

    /// Returns the transport service.
    #[inline]
    pub const fn transport(self) -> Transport {
        self.row().transport
    }

    /// Returns the operation.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.row().operation
    }

    /// Returns the position in the message.
    #[inline]
    pub const fn position(self) -> Position {
        self.row().position
    }

    /// Returns the extension headers in order.
    #[inline]
    pub const fn extensions(self) -> &'static [Extension] {
        self.row().extensions
    }

    /// Returns the length of base and extension headers, 12 to 44 bytes.
    #[inline]
    pub const fn header_len(self) -> usize {
        self.header_len as usize
    }

    /// Returns true for packets that name a shared receive queue: XRC requests.
    #[inline]
    pub(super) const fn names_srq(self) -> bool {
        matches!(self.extensions(), [XrcEth, ..])
    }

    /// Returns true for packets with payload.
    #[inline]
    pub const fn carries_payload(self) -> bool {
        matches!(self.operation(), Send | Write | ReadResponse | AtomicWrite)
    }

    #[inline]
    pub(super) const fn tail(self) -> Tail {
        self.row().tail()
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { code, transport, operation, position, extensions } = self.row();
        write!(f, "{transport:?} {operation:?} {position:?} {extensions:?} ({code:#04x})")
    }
}
