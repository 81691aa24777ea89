//! The one table of opcodes: what each says of its packet, and which extension headers follow.

use std::fmt;

use Extension::{Aeth, AtomicAckEth, AtomicEth, CnpReserved, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
use Operation::{
    Acknowledge, AtomicAcknowledge, AtomicWrite, CompareSwap, CongestionNotification, FetchAdd, Flush,
    ReadRequest, ReadResponse, Send, Write,
};
use Position::{First, Last, Middle, Only};
use Transport::{Cnp, Rc, Uc, Ud, Xrc};

/// Bytes of the base transport header, which every packet begins with.
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
    /// No service: notification of congestion.
    Cnp,
}

/// What a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A message into memory that the receiver posted.
    Send,
    /// A message into memory that the sender names.
    Write,
    /// A request for memory that the requester names.
    ReadRequest,
    /// Its answer.
    ReadResponse,
    /// An acknowledgement, positive or negative.
    Acknowledge,
    /// The answer to an atomic operation.
    AtomicAcknowledge,
    /// A request to exchange 8 bytes where they are as expected.
    CompareSwap,
    /// A request to add to 8 bytes.
    FetchAdd,
    /// A request to place earlier writes (annex A19).
    Flush,
    /// A request to write 8 bytes at once (annex A19).
    AtomicWrite,
    /// A receiver of ECN marks asks the sender to slow down (annex A17.9).
    CongestionNotification,
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// All of it.
    Only,
}

impl Position {
    /// Whether a message begins here.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, First | Only)
    }

    /// Whether a message ends here.
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
    /// Answer to an atomic operation: what stood there before.
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

/// What the last extension header adds to the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tail {
    Nothing,
    Immediate,
    Invalidate,
}

/// What an opcode says.
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

/// Every opcode (IBA 9.2.1 and table 38; annex A14 for XRC, A17.9 for the notification, A19 for FLUSH and ATOMIC
/// WRITE), with its extension headers in order.
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

/// For each byte, the row of its opcode.
static BY_CODE: [Option<Opcode>; 256] = {
    let mut opcodes = [None; 256];
    let mut nth = 0;
    while nth < TABLE.len() {
        opcodes[TABLE[nth].code as usize] = Some(opcode(nth));
        nth += 1;
    }
    opcodes
};

/// The opcodes by transport, operation, position and tail. The first stands where there is none: [`Message`] cannot
/// express what no row has.
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

/// The opcode of the `nth` row.
const fn opcode(nth: usize) -> Opcode {
    Opcode { row: nth as u8, header_len: TABLE[nth].header_len() as u8 }
}

/// An opcode that the table knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode {
    row: u8,
    header_len: u8,
}

impl Opcode {
    /// Bytes of the longest headers.
    pub const MAX_HEADER_LEN: usize = BTH_LEN + XrcEth.bytes() + AtomicEth.bytes();

    /// The opcode of this byte; `None` where there is none.
    #[inline]
    pub const fn new(code: u8) -> Option<Self> {
        BY_CODE[code as usize]
    }

    /// Every opcode.
    pub fn all() -> impl Iterator<Item = Self> {
        BY_CODE.into_iter().flatten()
    }

    /// The opcode of a packet of this meaning.
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

    /// The byte on the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        self.row().code
    }

    /// The transport service.
    #[inline]
    pub const fn transport(self) -> Transport {
        self.row().transport
    }

    /// What the packet is part of.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.row().operation
    }

    /// Where the packet stands in its message.
    #[inline]
    pub const fn position(self) -> Position {
        self.row().position
    }

    /// The extension headers, in order.
    #[inline]
    pub const fn extensions(self) -> &'static [Extension] {
        self.row().extensions
    }

    /// Bytes of the base and extension headers, 12 to 44.
    #[inline]
    pub const fn header_len(self) -> usize {
        self.header_len as usize
    }

    /// Whether packets name a shared receive queue: the requests of XRC.
    #[inline]
    pub(super) const fn names_srq(self) -> bool {
        matches!(self.extensions(), [XrcEth, ..])
    }

    /// Whether packets carry payload.
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
