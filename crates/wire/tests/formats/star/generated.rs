//! Any packet.

use nichrome_wire::rdma::{ImmediateData, QpNumber, RKey, UdpFlow};
use nichrome_wire::star::{
    Atomic, AtomicKind, Capability, Completed, Cqe, CqeNotice, Data, Element, Epoch, Flags, GrantCode, Lease,
    Message, NextLease, Operands, PacketCheck, PacketType, PacketWriter, Reason, Registration, Repr, Request,
    Rights, Segment, Span, Stamp, StatusCode, Target, Wqe, WqeFlags,
};
use nichrome_wire::{AddressPair, SeqNumber};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// A packet: headers, payload, authentication if any, and addresses.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) repr: Repr,
    pub(crate) payload: Vec<u8>,
    pub(crate) flow: UdpFlow,
    pub(crate) epoch: Epoch,
}

impl Generated {
    /// The datagram, with [`sum`] as its tag.
    pub(crate) fn built(&self) -> Vec<u8> {
        let mut buffer = vec![0xA5; self.repr.datagram_len(self.payload.len())];
        let mut writer = PacketWriter::new(&self.repr, self.payload.len(), &mut buffer).unwrap();
        writer.payload().copy_from_slice(&self.payload);
        let check = PacketCheck::new(self.epoch);
        let len = match self.repr.flags.contains(Flags::AUTHENTICATED) {
            true => writer.finish_authenticated(&self.flow, sum),
            false => writer.finish(&self.flow, check),
        };
        assert_eq!(len, buffer.len());
        buffer
    }
}

/// Some hash that sees every byte.
pub(crate) fn sum(addresses: &[u8], covered: &[u8]) -> u64 {
    addresses.iter().chain(covered).fold(1, |sum, byte| sum.wrapping_mul(257).wrapping_add((*byte).into()))
}

pub(crate) fn packet() -> impl Strategy<Value = Generated> {
    let header = (any::<bool>(), any::<[bool; 4]>(), 0u32..1 << 24, any::<u32>());
    (header, message(), any::<(u32, u32)>(), flow()).prop_map(|(header, message, trailer, flow)| {
        let (authenticated, set, connection, sequence) = header;
        let (message, payload) = message;
        let (stamp, epoch) = trailer;
        let repr = Repr {
            flags: flags(message.packet_type(), message, authenticated, set),
            connection: QpNumber::new(connection).unwrap(),
            sequence: SeqNumber(sequence),
            stamp: Stamp(stamp),
            message,
        };
        Generated { repr, payload, flow, epoch: Epoch(epoch) }
    })
}

/// Flags that the type may have, chosen by `set`, and those that follow from the message.
fn flags(kind: PacketType, message: Message, authenticated: bool, set: [bool; 4]) -> Flags {
    let chosen = |flag: Flags, place: usize| if set[place] { flag } else { Flags::NONE };
    let flags = match kind {
        PacketType::Wqep => Flags::NONE,
        PacketType::Cqep => Flags::TO_SERVER | chosen(Flags::SOLICITED, 0),
        PacketType::Ea => chosen(Flags::TO_SERVER, 0),
        PacketType::Rdp | PacketType::Gd | PacketType::Aop => chosen(Flags::LAST, 0),
        PacketType::Ra | PacketType::Sdp => chosen(Flags::LAST, 0) | chosen(Flags::ECN_ECHO, 2),
    };
    let refused = matches!(message, Message::Ra(Err(_)) | Message::Sdp(Err(_)));
    let refused = if refused { Flags::REFUSED } else { Flags::NONE };
    let authenticated = if authenticated { Flags::AUTHENTICATED } else { Flags::NONE };
    flags | refused | authenticated
}

pub(crate) fn flow() -> impl Strategy<Value = UdpFlow> {
    let v4 =
        any::<[[u8; 4]; 2]>().prop_map(|[src, dst]| AddressPair::V4 { src: src.into(), dst: dst.into() });
    let v6 =
        any::<[[u8; 16]; 2]>().prop_map(|[src, dst]| AddressPair::V6 { src: src.into(), dst: dst.into() });
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|(addresses, port)| UdpFlow::to_star(addresses, port))
}

fn message() -> impl Strategy<Value = (Message, Vec<u8>)> {
    let alone = |message| (message, Vec::new());
    let reason = || select(&Reason::ALL[..]);
    prop_oneof![
        4 => work().prop_map(|(wqe, payload)| (Message::Wqep(Element::Work(wqe)), payload)),
        2 => control().prop_map(move |element| alone(Message::Wqep(element))),
        2 => cqe().prop_map(move |cqe| alone(Message::Cqep(cqe))),
        1 => Just(alone(Message::Ea)),
        2 => (span(), bytes()).prop_map(|(span, payload)| (Message::Rdp(span), payload)),
        1 => any::<u16>().prop_map(move |len| alone(Message::Ra(Ok(len)))),
        1 => reason().prop_map(move |reason| alone(Message::Ra(Err(reason)))),
        2 => (span(), any::<u16>()).prop_map(move |(span, len)| alone(Message::Gd(span, len))),
        1 => (span(), atomic()).prop_map(move |(span, atomic)| alone(Message::Aop(span, atomic))),
        1 => bytes().prop_map(|payload| (Message::Sdp(Ok(())), payload)),
        1 => reason().prop_map(move |reason| alone(Message::Sdp(Err(reason)))),
    ]
}

fn atomic() -> impl Strategy<Value = Atomic> {
    let kind = select(&[AtomicKind::CompareSwap, AtomicKind::FetchAdd][..]);
    (kind, any::<(u32, u64, u64)>()).prop_map(|(kind, (ticket, compare, swap_or_add))| Atomic {
        kind,
        ticket,
        operands: Operands { compare, swap_or_add },
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn span() -> impl Strategy<Value = Span> {
    let capability = (any::<(u64, u64, u32)>(), 0u8..16, 0u32..1 << 24);
    (any::<(u64, u32)>(), capability).prop_map(|((address, key), ((base, len, lease), rights, server))| {
        let (rights, server) = (Rights::from_bits(rights).unwrap(), QpNumber::new(server).unwrap());
        Span { address, key, capability: Capability { base, len, rights, server, lease: Lease(lease) } }
    })
}

fn control() -> impl Strategy<Value = Element> {
    let registration = any::<(u32, u64, u64, u8, u64)>().prop_map(|(key, address, len, rights, code)| {
        Element::Register(Registration { key: RKey(key), address, len, rights, code: GrantCode(code) })
    });
    prop_oneof![
        registration,
        any::<u32>().prop_map(|key| Element::Deregister(RKey(key))),
        any::<(u32, [u8; 16])>().prop_map(|(lease, masked_key)| {
            Element::Lease(NextLease { lease: Lease(lease), masked_key })
        }),
        status().prop_map(Element::Close),
        any::<u8>().prop_map(Element::Rights),
    ]
}

fn status() -> impl Strategy<Value = StatusCode> {
    (0u8..22).prop_map(|code| StatusCode::new(code).unwrap())
}

fn immediate() -> impl Strategy<Value = ImmediateData> {
    any::<[u8; 4]>().prop_map(ImmediateData)
}

/// A request with its segments, or with its inline bytes.
fn work() -> impl Strategy<Value = (Wqe, Vec<u8>)> {
    let flags = any::<[bool; 3]>().prop_map(|set| {
        [WqeFlags::SIGNALED, WqeFlags::FENCE, WqeFlags::SOLICITED]
            .into_iter()
            .zip(set)
            .filter(|(_, set)| *set)
            .fold(WqeFlags::NONE, |flags, (flag, _)| flags | flag)
    });
    let segment = (any::<u64>(), 0u32..1 << 24, any::<(u32, u64)>())
        .prop_map(|(address, len, (lkey, code))| Segment { address, len, lkey, code: GrantCode(code) });
    let buffers = prop_oneof![vec(segment, 0..8).prop_map(Ok), bytes().prop_map(Err)];
    (any::<u64>(), request(), flags, buffers).prop_map(|(wr_id, request, flags, buffers)| {
        let may_be_inline = matches!(
            request,
            Request::Send
                | Request::SendWithImmediate(_)
                | Request::SendWithInvalidate(_)
                | Request::Write(_)
                | Request::WriteWithImmediate(..)
        );
        let (data, len, payload) = match buffers {
            Ok(segments) => {
                let len = segments.iter().map(|segment| segment.len).sum();
                let payload = segments.iter().flat_map(|segment| segment.to_bytes()).collect();
                (Data::Segments(segments.len() as u8), len, payload)
            }
            Err(bytes) if may_be_inline => (Data::Inline, bytes.len() as u32, bytes),
            Err(_) => (Data::Segments(0), 0, Vec::new()),
        };
        (Wqe { wr_id, request, flags, len, data }, payload)
    })
}

fn request() -> impl Strategy<Value = Request> {
    let target = || any::<(u64, u32)>().prop_map(|(address, rkey)| Target { address, rkey: RKey(rkey) });
    let operands =
        || any::<(u64, u64)>().prop_map(|(compare, swap_or_add)| Operands { compare, swap_or_add });
    prop_oneof![
        Just(Request::Send),
        immediate().prop_map(Request::SendWithImmediate),
        any::<u32>().prop_map(|key| Request::SendWithInvalidate(RKey(key))),
        target().prop_map(Request::Write),
        (target(), immediate()).prop_map(|(target, data)| Request::WriteWithImmediate(target, data)),
        target().prop_map(Request::Read),
        (target(), operands()).prop_map(|(target, operands)| Request::CompareSwap(target, operands)),
        (target(), operands()).prop_map(|(target, operands)| Request::FetchAdd(target, operands)),
        Just(Request::Receive),
    ]
}

fn cqe() -> impl Strategy<Value = Cqe> {
    let completed = select(
        &[
            Completed::Send,
            Completed::Write,
            Completed::Read,
            Completed::CompareSwap,
            Completed::FetchAdd,
            Completed::Receive,
            Completed::ReceiveWithWrite,
            Completed::ReceiveRequest,
            Completed::Connection,
        ][..],
    );
    let notice = prop_oneof![
        immediate().prop_map(CqeNotice::Immediate),
        any::<u32>().prop_map(|key| CqeNotice::Invalidate(RKey(key))),
    ];
    (any::<u64>(), status(), completed, any::<u32>(), option::of(notice))
        .prop_map(|(wr_id, status, completed, len, notice)| Cqe { wr_id, status, completed, len, notice })
}
