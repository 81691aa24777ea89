//! Any packet.

use nichrome_wire::AddressPair;
use nichrome_wire::rdma::{
    Aeth, AtomicEth, Bth, BthFlags, Credit, Deth, Feth, ImmediateData, Message, Msn, NakCode, PKey, Part,
    Placement, Psn, QKey, QpNumber, RKey, RcMessage, ReadResponse, Repr, Reth, RnrTimer, Selectivity,
    SendEnd, SrqNumber, Syndrome, UcMessage, UdpFlow,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A packet: headers, payload and addresses.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) repr: Repr,
    pub(crate) payload: Vec<u8>,
    pub(crate) flow: UdpFlow,
}

pub(crate) fn packet() -> impl Strategy<Value = Generated> {
    (bth(), message(), vec(any::<u8>(), 0..200), flow()).prop_map(|(bth, message, mut payload, flow)| {
        if !message.opcode().carries_payload() {
            payload.clear();
        }
        Generated { repr: Repr { bth, message }, payload, flow }
    })
}

pub(crate) fn flow() -> impl Strategy<Value = UdpFlow> {
    let v4 =
        any::<[[u8; 4]; 2]>().prop_map(|[src, dst]| AddressPair::V4 { src: src.into(), dst: dst.into() });
    let v6 =
        any::<[[u8; 16]; 2]>().prop_map(|[src, dst]| AddressPair::V6 { src: src.into(), dst: dst.into() });
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|(addresses, port)| UdpFlow::to_roce(addresses, port))
}

fn bth() -> impl Strategy<Value = Bth> {
    let all =
        [BthFlags::SOLICITED, BthFlags::MIGRATED, BthFlags::FECN, BthFlags::BECN, BthFlags::ACK_REQUEST];
    let flags = any::<[bool; 5]>().prop_map(move |set| {
        all.into_iter().zip(set).filter(|(_, set)| *set).fold(BthFlags::NONE, |flags, (flag, _)| flags | flag)
    });
    (flags, any::<u16>(), qp(), any::<u32>()).prop_map(|(flags, pkey, dest_qp, psn)| Bth {
        flags,
        pkey: PKey(pkey),
        dest_qp,
        psn: Psn::new(psn),
    })
}

fn message() -> impl Strategy<Value = Message> {
    let datagram = (any::<u32>(), qp(), option::of(immediate()));
    prop_oneof![
        8 => rc_message().prop_map(Message::Rc),
        4 => uc_message().prop_map(Message::Uc),
        4 => (0u32..1 << 24, rc_message()).prop_map(|(srq, message)| {
            let srq = if message.is_answer() { 0 } else { srq };
            Message::Xrc(SrqNumber::new(srq).unwrap(), message)
        }),
        2 => datagram.prop_map(|(qkey, src_qp, immediate)| {
            Message::Ud(Deth { qkey: QKey(qkey), src_qp }, immediate)
        }),
        1 => Just(Message::CongestionNotification),
    ]
}

fn rc_message() -> impl Strategy<Value = RcMessage> {
    let end = prop_oneof![
        Just(SendEnd::Plain),
        immediate().prop_map(SendEnd::Immediate),
        any::<u32>().prop_map(|key| SendEnd::Invalidate(RKey(key))),
    ];
    prop_oneof![
        part(Just(()), end).prop_map(RcMessage::Send),
        part(reth(), option::of(immediate())).prop_map(RcMessage::Write),
        reth().prop_map(RcMessage::ReadRequest),
        read_response().prop_map(RcMessage::ReadResponse),
        aeth().prop_map(RcMessage::Acknowledge),
        (aeth(), any::<u64>()).prop_map(|(aeth, original)| RcMessage::AtomicAcknowledge(aeth, original)),
        atomic_eth().prop_map(RcMessage::CompareSwap),
        atomic_eth().prop_map(RcMessage::FetchAdd),
        (feth(), reth()).prop_map(|(feth, reth)| RcMessage::Flush(feth, reth)),
        reth().prop_map(RcMessage::AtomicWrite),
    ]
}

fn uc_message() -> impl Strategy<Value = UcMessage> {
    prop_oneof![
        part(Just(()), option::of(immediate())).prop_map(UcMessage::Send),
        part(reth(), option::of(immediate())).prop_map(UcMessage::Write),
    ]
}

fn part<S: Clone + std::fmt::Debug, E: Clone + std::fmt::Debug>(
    start: impl Strategy<Value = S>,
    end: impl Strategy<Value = E>,
) -> impl Strategy<Value = Part<S, E>> {
    (option::of(start), option::of(end)).prop_map(|(start, end)| Part::new(start, end))
}

fn read_response() -> impl Strategy<Value = ReadResponse> {
    prop_oneof![
        aeth().prop_map(ReadResponse::First),
        Just(ReadResponse::Middle),
        aeth().prop_map(ReadResponse::Last),
        aeth().prop_map(ReadResponse::Only),
    ]
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(va, rkey, len)| Reth { va, rkey: RKey(rkey), len })
}

fn feth() -> impl Strategy<Value = Feth> {
    (0u32..4, any::<bool>()).prop_map(|(bits, is_region)| Feth {
        placement: Placement::from_bits(bits).unwrap(),
        selectivity: if is_region { Selectivity::Region } else { Selectivity::Range },
    })
}

fn atomic_eth() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(va, rkey, swap_or_add, compare)| AtomicEth {
        va,
        rkey: RKey(rkey),
        swap_or_add,
        compare,
    })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let nak = prop_oneof![
        Just(NakCode::PsnSequence),
        Just(NakCode::InvalidRequest),
        Just(NakCode::RemoteAccess),
        Just(NakCode::RemoteOperation),
        Just(NakCode::InvalidRdRequest),
    ];
    let syndrome = prop_oneof![
        (0u32..40_000).prop_map(|receives| Syndrome::Ack(Credit::for_receives(receives))),
        Just(Syndrome::Ack(Credit::UNLIMITED)),
        (0u8..32).prop_map(|code| Syndrome::RnrNak(RnrTimer::new(code).unwrap())),
        nak.prop_map(Syndrome::Nak),
    ];
    (syndrome, any::<u32>()).prop_map(|(syndrome, msn)| Aeth { syndrome, msn: Msn::new(msn) })
}

fn qp() -> impl Strategy<Value = QpNumber> {
    (0u32..1 << 24).prop_map(|number| QpNumber::new(number).unwrap())
}

fn immediate() -> impl Strategy<Value = ImmediateData> {
    any::<[u8; 4]>().prop_map(ImmediateData)
}
