//! Work queue elements: what the server's driver hands to the client.

use std::ops::BitOr;

use crate::bytes::{array, be32, put};
use crate::rdma::{ImmediateData, RKey};

use super::capability::{GrantCode, Lease};
use super::completion::StatusCode;
use super::error::StarError;
use super::segment::{Segment, segments};

/// What an element says. They have one sequence, so that the client learns of work and memory in the order in which
/// the server's program asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A request of the server's program.
    Work(Wqe),
    /// Memory that the server's program has registered, or registered anew under the same key.
    Register(Registration),
    /// The key of memory that is no longer registered.
    Deregister(RKey),
    /// The next lease of the connection.
    Lease(NextLease),
    /// The server has closed the connection, for this reason.
    Close(StatusCode),
    /// The rights that the server's queue pair gives from now on (`enum ibv_access_flags`, the low 8 bits). The regions follow.
    Rights(u8),
}

/// A request of the server's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wqe {
    /// What the completion is to call it.
    pub wr_id: u64,
    /// What is asked.
    pub request: Request,
    /// How.
    pub flags: WqeFlags,
    /// Bytes of all buffers together.
    pub len: u32,
    /// Where they are.
    pub data: Data,
}

/// Where the bytes of a request are: what the payload of its packet consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// In so many pieces of the server's memory, each described by a [`Segment`].
    Segments(u8),
    /// In the packet itself. Of SENDs and WRITEs only.
    Inline,
}

/// A piece of the client's memory: where, and by which key. The length is that of the server's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its first byte, as the client's region or window counts.
    pub address: u64,
    /// The key that the client has given.
    pub rkey: RKey,
}

/// The operands of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operands {
    /// What must stand there to be exchanged; 0 where it is added to.
    pub compare: u64,
    /// What to put there or to add.
    pub swap_or_add: u64,
}

impl Operands {
    /// Bytes on the wire, between the element and its segments.
    pub const LEN: usize = 16;
}

/// What the server's program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Fills the client's next receive.
    Send,
    /// Fills the client's next receive and brings four bytes more.
    SendWithImmediate(ImmediateData),
    /// Fills the client's next receive and invalidates a key there.
    SendWithInvalidate(RKey),
    /// Copies to the client's memory.
    Write(Target),
    /// Copies to the client's memory, then completes its next receive.
    WriteWithImmediate(Target, ImmediateData),
    /// Copies from the client's memory.
    Read(Target),
    /// Exchanges 8 bytes of the client's memory where they are as expected.
    CompareSwap(Target, Operands),
    /// Adds to 8 bytes of the client's memory.
    FetchAdd(Target, Operands),
    /// A receive for the client's next SEND or WRITE with immediate data.
    Receive,
}

/// Memory that the server's program has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// The key, for its own program and for peers.
    pub key: RKey,
    /// The first byte, as the region counts.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// What the region lets others do (`enum ibv_access_flags`, the low 8 bits).
    pub rights: u8,
    /// The code by which the card recognizes the region; 0 without tags.
    pub code: GrantCode,
}

impl Registration {
    /// Bytes of the code, behind the element.
    const CODE_LEN: usize = 8;
}

/// A lease, and its key, which only the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextLease {
    /// When it ends.
    pub lease: Lease,
    /// Its key, masked by the key of the connection.
    pub masked_key: [u8; 16],
}

/// What a request asks for besides its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WqeFlags(u8);

impl WqeFlags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Completes visibly; else the completion of a later request of the same queue stands for it.
    pub const SIGNALED: Self = Self(0x01);
    /// Not begun before all READs and atomics before it are complete.
    pub const FENCE: Self = Self(0x02);
    /// The completion at the client counts as solicited.
    pub const SOLICITED: Self = Self(0x04);

    /// On the wire only: the data are [`Data::Inline`].
    const INLINE: u8 = 0x08;
    const ALL: u8 = 0x07;

    /// Whether all of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for WqeFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

mod opcode {
    pub(super) const SEND: u8 = 1;
    pub(super) const SEND_WITH_IMMEDIATE: u8 = 2;
    pub(super) const SEND_WITH_INVALIDATE: u8 = 3;
    pub(super) const WRITE: u8 = 4;
    pub(super) const WRITE_WITH_IMMEDIATE: u8 = 5;
    pub(super) const READ: u8 = 6;
    pub(super) const COMPARE_SWAP: u8 = 7;
    pub(super) const FETCH_ADD: u8 = 8;
    pub(super) const RECEIVE: u8 = 9;
    pub(super) const REGISTER: u8 = 16;
    pub(super) const DEREGISTER: u8 = 17;
    pub(super) const CLOSE: u8 = 18;
    pub(super) const LEASE: u8 = 19;
    pub(super) const RIGHTS: u8 = 20;
}

/// The fields of an element at their places.
#[derive(Clone, Copy, Default)]
struct Fields {
    opcode: u8,
    flags: u8,
    segments: u8,
    value: [u8; 4],
    id: u64,
    address: u64,
    key: u32,
    len: u32,
    operands: Option<Operands>,
    code: Option<GrantCode>,
}

impl Element {
    /// Bytes on the wire, without operands and payload.
    pub const LEN: usize = 32;

    /// Bytes that stand behind an element that begins like `body`: the operands of an atomic operation, the code of a region.
    pub(super) fn behind(body: &[u8]) -> usize {
        if body.first() == Some(&opcode::REGISTER) { Registration::CODE_LEN } else { Operands::LEN }
    }

    /// Bytes of the element with its operands, before the payload.
    #[inline]
    pub(super) const fn header_len(&self) -> usize {
        match self {
            Self::Work(Wqe { request: Request::CompareSwap(..) | Request::FetchAdd(..), .. }) => {
                Self::LEN + Operands::LEN
            }
            Self::Register(_) => Self::LEN + Registration::CODE_LEN,
            _ => Self::LEN,
        }
    }

    /// Bytes that the payload must have; `None` where no datagram holds them.
    pub(super) fn payload_len(&self) -> Option<u16> {
        match self {
            Self::Work(Wqe { data: Data::Segments(count), .. }) => {
                Some(u16::from(*count) * Segment::LEN as u16)
            }
            Self::Work(Wqe { data: Data::Inline, len, .. }) => u16::try_from(*len).ok(),
            _ => Some(0),
        }
    }

    /// Reads an element from what follows the common header and gives it with its payload.
    pub(super) fn read(body: &[u8]) -> Option<(Result<Self, StarError>, &[u8])> {
        let (bytes, rest) = body.split_first_chunk::<{ Self::LEN }>()?;
        let mut fields = Fields {
            opcode: bytes[0],
            flags: bytes[1],
            segments: bytes[2],
            value: array(bytes, 4),
            id: u64::from_be_bytes(array(bytes, 8)),
            address: u64::from_be_bytes(array(bytes, 16)),
            key: be32(bytes, 24),
            len: be32(bytes, 28),
            operands: None,
            code: None,
        };
        let mut payload = rest;
        if matches!(fields.opcode, opcode::COMPARE_SWAP | opcode::FETCH_ADD) {
            let (operands, after) = rest.split_first_chunk::<{ Operands::LEN }>()?;
            let compare = u64::from_be_bytes(array(operands, 0));
            let swap_or_add = u64::from_be_bytes(array(operands, 8));
            fields.operands = Some(Operands { compare, swap_or_add });
            payload = after;
        }
        if fields.opcode == opcode::REGISTER {
            let (code, after) = rest.split_first_chunk()?;
            fields.code = Some(GrantCode(u64::from_be_bytes(*code)));
            payload = after;
        }
        Some((fields.element(payload), payload))
    }

    /// Appends the element and its operands.
    pub(super) fn write(&self, put: &mut impl FnMut(&[u8])) {
        let fields = self.fields();
        put(&fields.to_bytes());
        if let Some(Operands { compare, swap_or_add }) = fields.operands {
            put(&compare.to_be_bytes());
            put(&swap_or_add.to_be_bytes());
        }
        if let Some(GrantCode(code)) = fields.code {
            put(&code.to_be_bytes());
        }
    }

    fn fields(&self) -> Fields {
        match *self {
            Self::Work(wqe) => wqe.fields(),
            Self::Register(Registration { key, address, len, rights, code }) => Fields {
                opcode: opcode::REGISTER,
                value: u32::from(rights).to_be_bytes(),
                id: len,
                address,
                key: key.0,
                code: Some(code),
                ..Fields::default()
            },
            Self::Deregister(key) => Fields { opcode: opcode::DEREGISTER, key: key.0, ..Fields::default() },
            Self::Lease(NextLease { lease, masked_key }) => Fields {
                opcode: opcode::LEASE,
                id: u64::from_be_bytes(array(&masked_key, 0)),
                address: u64::from_be_bytes(array(&masked_key, 8)),
                key: lease.0,
                ..Fields::default()
            },
            Self::Close(status) => Fields {
                opcode: opcode::CLOSE,
                value: u32::from(status.code()).to_be_bytes(),
                ..Fields::default()
            },
            Self::Rights(rights) => {
                Fields { opcode: opcode::RIGHTS, value: u32::from(rights).to_be_bytes(), ..Fields::default() }
            }
        }
    }
}

impl Wqe {
    fn fields(&self) -> Fields {
        let (inline, segments) = match self.data {
            Data::Segments(count) => (0, count),
            Data::Inline => (WqeFlags::INLINE, 0),
        };
        let (flags, id, len) = (self.flags.0 | inline, self.wr_id, self.len);
        let plain = |opcode| Fields { opcode, flags, segments, id, len, ..Fields::default() };
        let at =
            |opcode, target: Target| Fields { address: target.address, key: target.rkey.0, ..plain(opcode) };
        match self.request {
            Request::Send => plain(opcode::SEND),
            Request::SendWithImmediate(data) => {
                Fields { value: data.0, ..plain(opcode::SEND_WITH_IMMEDIATE) }
            }
            Request::SendWithInvalidate(key) => {
                Fields { value: key.0.to_be_bytes(), ..plain(opcode::SEND_WITH_INVALIDATE) }
            }
            Request::Write(target) => at(opcode::WRITE, target),
            Request::WriteWithImmediate(target, data) => {
                Fields { value: data.0, ..at(opcode::WRITE_WITH_IMMEDIATE, target) }
            }
            Request::Read(target) => at(opcode::READ, target),
            Request::CompareSwap(target, operands) => {
                Fields { operands: Some(operands), ..at(opcode::COMPARE_SWAP, target) }
            }
            Request::FetchAdd(target, operands) => {
                Fields { operands: Some(operands), ..at(opcode::FETCH_ADD, target) }
            }
            Request::Receive => plain(opcode::RECEIVE),
        }
    }
}

impl Fields {
    fn to_bytes(self) -> [u8; Element::LEN] {
        let mut bytes = [0; Element::LEN];
        put(&mut bytes, 0, [self.opcode, self.flags, self.segments]);
        put(&mut bytes, 4, self.value);
        put(&mut bytes, 8, self.id.to_be_bytes());
        put(&mut bytes, 16, self.address.to_be_bytes());
        put(&mut bytes, 24, self.key.to_be_bytes());
        put(&mut bytes, 28, self.len.to_be_bytes());
        bytes
    }

    fn element(&self, payload: &[u8]) -> Result<Element, StarError> {
        let rkey = RKey(self.key);
        let element = match self.opcode {
            opcode::REGISTER => {
                let (address, len) = (self.address, self.id);
                let (rights, code) = (self.value[3], self.code.unwrap_or_default());
                Element::Register(Registration { key: rkey, address, len, rights, code })
            }
            opcode::DEREGISTER => Element::Deregister(rkey),
            opcode::LEASE => {
                let mut masked_key = [0; 16];
                put(&mut masked_key, 0, self.id.to_be_bytes());
                put(&mut masked_key, 8, self.address.to_be_bytes());
                Element::Lease(NextLease { lease: Lease(self.key), masked_key })
            }
            opcode::CLOSE => {
                let status = StatusCode::new(self.value[3]).ok_or(StarError::Status(self.value[3]))?;
                Element::Close(status)
            }
            opcode::RIGHTS => Element::Rights(self.value[3]),
            _ => return self.wqe(payload).map(Element::Work),
        };
        self.has_no_flag_of(u8::MAX)?;
        match payload.len() {
            0 => Ok(element),
            len => Err(StarError::Buffers { len: len as u64, expected: 0 }),
        }
    }

    fn wqe(&self, payload: &[u8]) -> Result<Wqe, StarError> {
        let target = Target { address: self.address, rkey: RKey(self.key) };
        let operands = self.operands.unwrap_or(Operands { compare: 0, swap_or_add: 0 });
        let request = match self.opcode {
            opcode::SEND => Request::Send,
            opcode::SEND_WITH_IMMEDIATE => Request::SendWithImmediate(ImmediateData(self.value)),
            opcode::SEND_WITH_INVALIDATE => Request::SendWithInvalidate(RKey(u32::from_be_bytes(self.value))),
            opcode::WRITE => Request::Write(target),
            opcode::WRITE_WITH_IMMEDIATE => Request::WriteWithImmediate(target, ImmediateData(self.value)),
            opcode::READ => Request::Read(target),
            opcode::COMPARE_SWAP => Request::CompareSwap(target, operands),
            opcode::FETCH_ADD => Request::FetchAdd(target, operands),
            opcode::RECEIVE => Request::Receive,
            unknown => return Err(StarError::Opcode(unknown)),
        };
        self.has_no_flag_of(!(WqeFlags::ALL | WqeFlags::INLINE))?;
        let (wr_id, flags, len) = (self.id, WqeFlags(self.flags & WqeFlags::ALL), self.len);
        Ok(Wqe { wr_id, request, flags, len, data: self.data(payload)? })
    }

    /// Where the bytes are: as many as the element says, in the packet or in the segments.
    fn data(&self, payload: &[u8]) -> Result<Data, StarError> {
        let expected = self.len;
        let (data, len) = if self.flags & WqeFlags::INLINE == 0 {
            if payload.len() != usize::from(self.segments) * Segment::LEN {
                return Err(StarError::Buffers { len: payload.len() as u64, expected });
            }
            let sum = segments(payload).map(|segment| u64::from(segment.len)).sum();
            (Data::Segments(self.segments), sum)
        } else {
            if !matches!(self.opcode, opcode::SEND..=opcode::WRITE_WITH_IMMEDIATE) {
                self.has_no_flag_of(WqeFlags::INLINE)?;
            }
            (Data::Inline, payload.len() as u64)
        };
        if len == u64::from(expected) { Ok(data) } else { Err(StarError::Buffers { len, expected }) }
    }

    fn has_no_flag_of(&self, bits: u8) -> Result<(), StarError> {
        match self.flags & bits {
            0 => Ok(()),
            _ => Err(StarError::ElementFlags { opcode: self.opcode, flags: self.flags }),
        }
    }
}
