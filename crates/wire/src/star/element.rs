//! Work queue elements, sent by the server's driver to the client.

use std::ops::BitOr;

use crate::bytes::{array, be32, put};
use crate::rdma::{ImmediateData, RKey};

use super::capability::{GrantCode, Lease};
use super::completion::StatusCode;
use super::error::StarError;
use super::segment::{Segment, segments};

/// An element. All elements share one sequence, so that the client learns of work and memory in program
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A work request of the server's program.
    Work(Wqe),
    /// A memory region that the server's program registered, or reregistered under the same key.
    Register(Registration),
    /// The key of a deregistered region.
    Deregister(RKey),
    /// The next lease of the connection.
    Lease(NextLease),
    /// The server closed the connection, with this status.
    Close(StatusCode),
    /// New access rights of the server's queue pair (the low 8 bits of `enum ibv_access_flags`). The regions
    /// follow.
    Rights(u8),
}

/// A work request of the server's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wqe {
    /// The identifier for the completion.
    pub wr_id: u64,
    /// The operation.
    pub request: Request,
    /// Options.
    pub flags: WqeFlags,
    /// Total length of the buffers, in bytes.
    pub len: u32,
    /// The buffers.
    pub data: Data,
}

/// The buffers of a request: the payload of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// This many pieces of the server's memory, each described by a [`Segment`].
    Segments(u8),
    /// The data itself; for SENDs and WRITEs only.
    Inline,
}

/// Remote memory at the client. The length is that of the server's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The address in the client's region or window.
    pub address: u64,
    /// The client's key.
    pub rkey: RKey,
}

/// The operands of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operands {
    /// The expected value of a compare and swap; 0 for a fetch and add.
    pub compare: u64,
    /// The value to swap in or add.
    pub swap_or_add: u64,
}

impl Operands {
    /// Length on the wire, in bytes: between the element and its segments.
    pub const LEN: usize = 16;
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A SEND.
    Send,
    /// A SEND with immediate data.
    SendWithImmediate(ImmediateData),
    /// A SEND that invalidates a key of the client.
    SendWithInvalidate(RKey),
    /// A WRITE to the client's memory.
    Write(Target),
    /// A WRITE with immediate data, which consumes a receive of the client.
    WriteWithImmediate(Target, ImmediateData),
    /// A READ from the client's memory.
    Read(Target),
    /// A compare and swap on 8 bytes of the client's memory.
    CompareSwap(Target, Operands),
    /// A fetch and add on 8 bytes of the client's memory.
    FetchAdd(Target, Operands),
    /// A receive for a SEND or WRITE with immediate data of the client.
    Receive,
}

/// A memory region of the server's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// The key, local and remote.
    pub key: RKey,
    /// The region's first address.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access rights of the region (the low 8 bits of `enum ibv_access_flags`).
    pub rights: u8,
    /// The grant code of the region; 0 without tags.
    pub code: GrantCode,
}

impl Registration {
    /// Length of the grant code behind the element, in bytes.
    const CODE_LEN: usize = 8;
}

/// A lease with its key, masked so that only the client can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextLease {
    /// The end of the lease.
    pub lease: Lease,
    /// The lease's key, masked by the connection's key.
    pub masked_key: [u8; 16],
}

/// Options of a work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WqeFlags(u8);

impl WqeFlags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Generates a completion; without it, a later completion of the same queue implies this one.
    pub const SIGNALED: Self = Self(0x01);
    /// Starts only after all earlier READs and atomics are complete.
    pub const FENCE: Self = Self(0x02);
    /// The client's completion is a solicited event.
    pub const SOLICITED: Self = Self(0x04);

    /// Wire format only: the data are [`Data::Inline`].
    const INLINE: u8 = 0x08;
    const ALL: u8 = 0x07;

    /// Returns true if all of `other` are set.
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

/// The fixed fields of an element.
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
    /// Length on the wire without operands and payload, in bytes.
    pub const LEN: usize = 32;

    /// Returns the number of bytes that follow an element with this `body`: the operands of an atomic
    /// operation, or the grant code of a region.
    pub(super) fn trailing_len(body: &[u8]) -> usize {
        if body.first() == Some(&opcode::REGISTER) { Registration::CODE_LEN } else { Operands::LEN }
    }

    /// Returns the length of the element with its operands, in bytes.
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

    /// Returns the required payload length; `None` if it exceeds a datagram.
    pub(super) fn payload_len(&self) -> Option<u16> {
        match self {
            Self::Work(Wqe { data: Data::Segments(count), .. }) => {
                Some(u16::from(*count) * Segment::LEN as u16)
            }
            Self::Work(Wqe { data: Data::Inline, len, .. }) => u16::try_from(*len).ok(),
            _ => Some(0),
        }
    }

    /// Parses an element from the bytes behind the common header; returns it with its payload.
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

    /// Returns the buffers: inline data or segments of the stated total length.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_given_twice_is_set() {
        let flags = WqeFlags::SIGNALED | WqeFlags::FENCE | WqeFlags::SIGNALED;
        let flags =
            [WqeFlags::SIGNALED, WqeFlags::FENCE, WqeFlags::SOLICITED].map(|flag| flags.contains(flag));
        assert_eq!(flags, [true, true, false]);
    }
}
