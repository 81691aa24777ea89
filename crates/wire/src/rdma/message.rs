//! Typed opcodes and extension headers.

use super::aeth::Aeth;
use super::extension::{AtomicEth, Deth, Reth};
use super::feth::Feth;
use super::number::{ImmediateData, RKey, SrqNumber};
use super::opcode::{Extension, Opcode, Operation, Position, Tail, Transport};

/// A packet's position in a message, with the headers of its first and last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part<Start, End> {
    /// The first packet of several.
    First(Start),
    /// Neither the first nor the last.
    Middle,
    /// The last packet of several.
    Last(End),
    /// The only packet.
    Only(Start, End),
}

impl<Start, End> Part<Start, End> {
    /// Returns the position of a packet that starts its message if `start` is given, and ends it if `end` is.
    #[inline]
    pub fn new(start: Option<Start>, end: Option<End>) -> Self {
        match (start, end) {
            (Some(start), None) => Self::First(start),
            (None, None) => Self::Middle,
            (None, Some(end)) => Self::Last(end),
            (Some(start), Some(end)) => Self::Only(start, end),
        }
    }

    /// Returns the headers at the start of the message.
    #[inline]
    pub const fn start(&self) -> Option<&Start> {
        match self {
            Self::First(start) | Self::Only(start, _) => Some(start),
            Self::Middle | Self::Last(_) => None,
        }
    }

    /// Returns the headers at the end of the message.
    #[inline]
    pub const fn end(&self) -> Option<&End> {
        match self {
            Self::Last(end) | Self::Only(_, end) => Some(end),
            Self::First(_) | Self::Middle => None,
        }
    }

    /// Returns the position without headers.
    #[inline]
    pub const fn position(&self) -> Position {
        match self {
            Self::First(_) => Position::First,
            Self::Middle => Position::Middle,
            Self::Last(_) => Position::Last,
            Self::Only(..) => Position::Only,
        }
    }

    #[inline]
    fn map_end<Other>(self, map: impl FnOnce(End) -> Other) -> Part<Start, Other> {
        match self {
            Self::First(start) => Part::First(start),
            Self::Middle => Part::Middle,
            Self::Last(end) => Part::Last(map(end)),
            Self::Only(start, end) => Part::Only(start, map(end)),
        }
    }
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Of a reliable connection.
    Rc(RcMessage),
    /// Of an unreliable connection.
    Uc(UcMessage),
    /// Of an extended reliable connection, with the shared receive queue that the request names; 0 in
    /// responses, which name none.
    Xrc(SrqNumber, RcMessage),
    /// An unreliable datagram, always a whole message.
    Ud(Deth, Option<ImmediateData>),
    /// Congestion notification packet: asks the sender to slow down.
    CongestionNotification,
}

/// A packet of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RcMessage {
    /// Part of a SEND, into memory that the receiver posted.
    Send(Part<(), SendEnd>),
    /// Part of a WRITE, into memory that the sender names.
    Write(Part<Reth, Option<ImmediateData>>),
    /// A READ request.
    ReadRequest(Reth),
    /// Part of a READ response.
    ReadResponse(ReadResponse),
    /// An ACK, RNR NAK or NAK.
    Acknowledge(Aeth),
    /// The response to an atomic operation, with the value before.
    AtomicAcknowledge(Aeth, u64),
    /// A compare and swap request.
    CompareSwap(AtomicEth),
    /// A fetch and add request.
    FetchAdd(AtomicEth),
    /// A FLUSH request: places earlier WRITEs to a range or a region.
    Flush(Feth, Reth),
    /// An ATOMIC WRITE request of 8 bytes.
    AtomicWrite(Reth),
}

/// The extension header at the end of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendEnd {
    /// Nothing.
    Plain,
    /// Immediate data for the receiver's completion.
    Immediate(ImmediateData),
    /// A key of the receiver to invalidate.
    Invalidate(RKey),
}

/// Part of a READ response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadResponse {
    /// The first packet of several.
    First(Aeth),
    /// Neither the first nor the last: no header.
    Middle,
    /// The last packet of several.
    Last(Aeth),
    /// The only packet.
    Only(Aeth),
}

impl ReadResponse {
    /// Returns the packet's position in the response.
    #[inline]
    pub const fn position(&self) -> Position {
        match self {
            Self::First(_) => Position::First,
            Self::Middle => Position::Middle,
            Self::Last(_) => Position::Last,
            Self::Only(_) => Position::Only,
        }
    }

    /// Returns the acknowledgement header, if any.
    #[inline]
    pub const fn aeth(&self) -> Option<&Aeth> {
        match self {
            Self::First(aeth) | Self::Last(aeth) | Self::Only(aeth) => Some(aeth),
            Self::Middle => None,
        }
    }
}

/// A packet of an unreliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UcMessage {
    /// Part of a SEND, into memory that the receiver posted.
    Send(Part<(), Option<ImmediateData>>),
    /// Part of a WRITE, into memory that the sender names.
    Write(Part<Reth, Option<ImmediateData>>),
}

impl From<UcMessage> for RcMessage {
    /// Converts to the equivalent message of a reliable connection.
    #[inline]
    fn from(message: UcMessage) -> Self {
        match message {
            UcMessage::Send(part) => Self::Send(part.map_end(SendEnd::from)),
            UcMessage::Write(part) => Self::Write(part),
        }
    }
}

impl From<Option<ImmediateData>> for SendEnd {
    #[inline]
    fn from(immediate: Option<ImmediateData>) -> Self {
        immediate.map_or(Self::Plain, Self::Immediate)
    }
}

/// Reads extension headers from the bytes behind BTH.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    #[inline]
    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (header, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*header)
    }

    #[inline]
    fn aeth(&mut self) -> Option<Aeth> {
        Aeth::from_bytes(self.take()?)
    }

    #[inline]
    fn reth(&mut self) -> Option<Reth> {
        Some(Reth::from_bytes(self.take()?))
    }

    #[inline]
    fn atomic_eth(&mut self) -> Option<AtomicEth> {
        Some(AtomicEth::from_bytes(self.take()?))
    }

    #[inline]
    fn immediate(&mut self) -> Option<ImmediateData> {
        Some(ImmediateData(self.take()?))
    }
}

impl Reader<'_> {
    #[inline]
    fn part<Start, End>(
        &mut self,
        position: Position,
        start: impl FnOnce(&mut Self) -> Option<Start>,
        end: impl FnOnce(&mut Self) -> Option<End>,
    ) -> Option<Part<Start, End>> {
        let start = if position.starts() { Some(start(self)?) } else { None };
        let end = if position.ends() { Some(end(self)?) } else { None };
        Some(Part::new(start, end))
    }

    #[inline]
    fn optional_immediate(&mut self, opcode: Opcode) -> Option<Option<ImmediateData>> {
        match opcode.tail() {
            Tail::Immediate => Some(Some(self.immediate()?)),
            Tail::Nothing | Tail::Invalidate => Some(None),
        }
    }

    #[inline]
    fn send_end(&mut self, opcode: Opcode) -> Option<SendEnd> {
        Some(match opcode.tail() {
            Tail::Nothing => SendEnd::Plain,
            Tail::Immediate => SendEnd::Immediate(self.immediate()?),
            Tail::Invalidate => SendEnd::Invalidate(RKey(u32::from_be_bytes(self.take()?))),
        })
    }

    #[inline]
    fn write_part(&mut self, opcode: Opcode) -> Option<Part<Reth, Option<ImmediateData>>> {
        self.part(opcode.position(), Self::reth, |reader| reader.optional_immediate(opcode))
    }

    #[inline]
    fn read_response(&mut self, position: Position) -> Option<ReadResponse> {
        Some(match position {
            Position::First => ReadResponse::First(self.aeth()?),
            Position::Middle => ReadResponse::Middle,
            Position::Last => ReadResponse::Last(self.aeth()?),
            Position::Only => ReadResponse::Only(self.aeth()?),
        })
    }

    #[inline]
    fn rc(&mut self, opcode: Opcode) -> Option<RcMessage> {
        let position = opcode.position();
        Some(match opcode.operation() {
            Operation::Send => {
                RcMessage::Send(self.part(position, |_| Some(()), |reader| reader.send_end(opcode))?)
            }
            Operation::Write => RcMessage::Write(self.write_part(opcode)?),
            Operation::ReadRequest => RcMessage::ReadRequest(self.reth()?),
            Operation::ReadResponse => RcMessage::ReadResponse(self.read_response(position)?),
            Operation::Acknowledge => RcMessage::Acknowledge(self.aeth()?),
            Operation::AtomicAcknowledge => {
                RcMessage::AtomicAcknowledge(self.aeth()?, u64::from_be_bytes(self.take()?))
            }
            Operation::CompareSwap => RcMessage::CompareSwap(self.atomic_eth()?),
            Operation::FetchAdd => RcMessage::FetchAdd(self.atomic_eth()?),
            Operation::Flush => RcMessage::Flush(Feth::from_bytes(self.take()?)?, self.reth()?),
            Operation::AtomicWrite => RcMessage::AtomicWrite(self.reth()?),
            Operation::CongestionNotification => return None,
        })
    }

    #[inline]
    fn uc(&mut self, opcode: Opcode) -> Option<UcMessage> {
        match opcode.operation() {
            Operation::Send => {
                let end = |reader: &mut Self| reader.optional_immediate(opcode);
                Some(UcMessage::Send(self.part(opcode.position(), |_| Some(()), end)?))
            }
            Operation::Write => Some(UcMessage::Write(self.write_part(opcode)?)),
            _ => None,
        }
    }
}

/// The encoded headers of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderBytes {
    bytes: [u8; Opcode::MAX_HEADER_LEN],
    len: usize,
}

impl HeaderBytes {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; Opcode::MAX_HEADER_LEN], len: 0 }
    }

    #[inline]
    pub(super) fn put<const LEN: usize>(&mut self, header: [u8; LEN]) {
        self.bytes[self.len..self.len + LEN].copy_from_slice(&header);
        self.len += LEN;
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Message {
    /// Decodes the extension headers of `opcode` at the front of `bytes`; `None` if a value is reserved.
    #[inline]
    pub(super) fn read(opcode: Opcode, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        Some(match opcode.transport() {
            Transport::Rc => Self::Rc(reader.rc(opcode)?),
            Transport::Uc => Self::Uc(reader.uc(opcode)?),
            Transport::Ud => Self::Ud(Deth::from_bytes(reader.take()?), reader.optional_immediate(opcode)?),
            Transport::Xrc => {
                let srq = if opcode.names_srq() {
                    SrqNumber::from_bytes(reader.take()?)
                } else {
                    SrqNumber::default()
                };
                Self::Xrc(srq, reader.rc(opcode)?)
            }
            Transport::Cnp => Self::CongestionNotification,
        })
    }

    /// Appends the extension headers.
    #[inline]
    pub(super) fn write(&self, out: &mut HeaderBytes) {
        match self {
            Self::Rc(message) => message.write(out),
            Self::Uc(message) => RcMessage::from(*message).write(out),
            Self::Xrc(srq, message) => {
                if message.opcode(Transport::Xrc).names_srq() {
                    out.put(srq.to_bytes());
                }
                message.write(out);
            }
            Self::Ud(deth, immediate) => {
                out.put(deth.to_bytes());
                write_immediate(*immediate, out);
            }
            Self::CongestionNotification => out.put([0; Extension::CnpReserved.bytes()]),
        }
    }

    /// Returns the opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Rc(message) => message.opcode(Transport::Rc),
            Self::Uc(message) => RcMessage::from(*message).opcode(Transport::Uc),
            Self::Xrc(_, message) => message.opcode(Transport::Xrc),
            Self::Ud(_, immediate) => Opcode::meaning(
                Transport::Ud,
                Operation::Send,
                Position::Only,
                immediate_tail(Some(immediate)),
            ),
            Self::CongestionNotification => Opcode::meaning(
                Transport::Cnp,
                Operation::CongestionNotification,
                Position::Only,
                Tail::Nothing,
            ),
        }
    }
}

impl RcMessage {
    /// Returns true for acknowledgements and responses.
    #[inline]
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::Acknowledge(_) | Self::ReadResponse(_) | Self::AtomicAcknowledge(..))
    }

    #[inline]
    fn write(&self, out: &mut HeaderBytes) {
        match self {
            Self::Send(part) => match part.end() {
                None | Some(SendEnd::Plain) => {}
                Some(SendEnd::Immediate(immediate)) => out.put(immediate.0),
                Some(SendEnd::Invalidate(key)) => out.put(key.0.to_be_bytes()),
            },
            Self::Write(part) => {
                if let Some(reth) = part.start() {
                    out.put(reth.to_bytes());
                }
                write_immediate(part.end().copied().flatten(), out);
            }
            Self::ReadRequest(reth) | Self::AtomicWrite(reth) => out.put(reth.to_bytes()),
            Self::Flush(feth, reth) => {
                out.put(feth.to_bytes());
                out.put(reth.to_bytes());
            }
            Self::ReadResponse(part) => {
                if let Some(aeth) = part.aeth() {
                    out.put(aeth.to_bytes());
                }
            }
            Self::Acknowledge(aeth) => out.put(aeth.to_bytes()),
            Self::AtomicAcknowledge(aeth, original) => {
                out.put(aeth.to_bytes());
                out.put(original.to_be_bytes());
            }
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => out.put(atomic.to_bytes()),
        }
    }

    #[inline]
    fn opcode(&self, transport: Transport) -> Opcode {
        let (operation, position, tail) = match self {
            Self::Send(part) => {
                let tail = match part.end() {
                    None | Some(SendEnd::Plain) => Tail::Nothing,
                    Some(SendEnd::Immediate(_)) => Tail::Immediate,
                    Some(SendEnd::Invalidate(_)) => Tail::Invalidate,
                };
                (Operation::Send, part.position(), tail)
            }
            Self::Write(part) => (Operation::Write, part.position(), immediate_tail(part.end())),
            Self::ReadRequest(_) => (Operation::ReadRequest, Position::Only, Tail::Nothing),
            Self::ReadResponse(part) => (Operation::ReadResponse, part.position(), Tail::Nothing),
            Self::Acknowledge(_) => (Operation::Acknowledge, Position::Only, Tail::Nothing),
            Self::AtomicAcknowledge(..) => (Operation::AtomicAcknowledge, Position::Only, Tail::Nothing),
            Self::CompareSwap(_) => (Operation::CompareSwap, Position::Only, Tail::Nothing),
            Self::FetchAdd(_) => (Operation::FetchAdd, Position::Only, Tail::Nothing),
            Self::Flush(..) => (Operation::Flush, Position::Only, Tail::Nothing),
            Self::AtomicWrite(_) => (Operation::AtomicWrite, Position::Only, Tail::Nothing),
        };
        Opcode::meaning(transport, operation, position, tail)
    }
}

#[inline]
fn write_immediate(immediate: Option<ImmediateData>, out: &mut HeaderBytes) {
    if let Some(immediate) = immediate {
        out.put(immediate.0);
    }
}

#[inline]
const fn immediate_tail(end: Option<&Option<ImmediateData>>) -> Tail {
    match end {
        Some(Some(_)) => Tail::Immediate,
        Some(None) | None => Tail::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_read_and_written_with_the_headers_of_its_row() {
        for opcode in Opcode::all() {
            let lens = opcode.extensions().iter().map(|extension| extension.bytes());
            let bytes = vec![0; lens.sum()];
            let message = Message::read(opcode, &bytes).unwrap_or_else(|| panic!("{opcode:?}"));
            assert_eq!(message.opcode(), opcode);
            if let Message::Rc(message) | Message::Xrc(_, message) = message {
                // IBA table 38: READ responses, acknowledgements, atomic acknowledgements.
                assert_eq!(message.is_answer(), (13..=18).contains(&(opcode.code() & 0x1F)), "{opcode:?}");
            }
            let mut written = HeaderBytes::new();
            message.write(&mut written);
            assert_eq!(written.as_slice(), bytes, "{opcode:?}");
            if let Some(short) = bytes.len().checked_sub(1).filter(|_| opcode.transport() != Transport::Cnp) {
                assert_eq!(Message::read(opcode, &bytes[..short]), None, "{opcode:?}");
            }
        }
    }

    #[test]
    fn a_part_has_the_headers_of_its_start_and_end() {
        let parts: [Part<u8, u8>; 4] = [Part::First(1), Part::Middle, Part::Last(2), Part::Only(1, 2)];
        for part in parts {
            assert_eq!(part.start().is_some(), part.position().starts());
            assert_eq!(part.end().is_some(), part.position().ends());
            assert_eq!(Part::new(part.start().copied(), part.end().copied()), part);
        }
    }
}
