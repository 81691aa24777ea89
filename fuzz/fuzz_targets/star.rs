//! Any bytes as a StaR packet, for the parser and for the stateless card.
#![no_main]

use nichrome_rdma::star::{
    CardAuthentication, CardConfig, MemoryTable, ResultSlots, ServerSecret, StatelessCard,
};
use nichrome_rdma::{Access, ByteMemory, Datagram, Instant, RKey};
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{
    CHECK_LEN, Epoch, Flags, GrantCode, Message, PacketCheck, PacketWriter, Registration, Repr,
};
use nichrome_wire::{AddressPair, TrafficClass};

const V4: AddressPair =
    AddressPair::V4 { src: std::net::Ipv4Addr::new(10, 0, 0, 1), dst: std::net::Ipv4Addr::new(10, 0, 0, 2) };
const V6: AddressPair =
    AddressPair::V6 { src: std::net::Ipv6Addr::LOCALHOST, dst: std::net::Ipv6Addr::LOCALHOST };
const EPOCH: Epoch = Epoch(7);
const BASE: u64 = 0;
const KEY: u32 = 1;
/// Memory before and behind the registered region.
const MARGIN: usize = 16;
const REGION: usize = 32;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    a_rebuilt_packet_parses_to_the_same(bytes);
    for addresses in [V4, V6] {
        let flow = UdpFlow::to_star(addresses, 0xC000);
        the_card_writes_only_its_region(&flow, bytes);
        an_authenticating_card_refuses_untagged_packets(&flow, bytes);
    }
});

fn a_rebuilt_packet_parses_to_the_same(datagram: &[u8]) {
    let Ok((repr, payload, authentication)) = Repr::parse(datagram) else { return };
    assert_eq!(repr.datagram_len(payload.len()), datagram.len());
    assert_eq!(authentication.is_some(), repr.flags.contains(Flags::AUTHENTICATED));
    let mut built = vec![0xA5; datagram.len()];
    let Some(mut writer) = PacketWriter::new(&repr, payload.len(), &mut built) else {
        panic!("{repr:?} cannot be written")
    };
    writer.payload().copy_from_slice(payload);
    let flow = UdpFlow::to_star(V4, 0xC000);
    let check = PacketCheck::new(EPOCH);
    let written = match authentication {
        Some(authentication) => writer.finish_authenticated(&flow, |_, _| authentication.tag),
        None => writer.finish(&flow, check),
    };
    assert_eq!(written, built.len());
    assert!(authentication.is_some() || check.is_valid(&flow, &built));
    assert_eq!(Repr::parse(&built), Ok((repr, payload, authentication)));
}

/// Returns the bytes with an early expiry, and a correct check in place of the last four.
fn with_valid_check(flow: &UdpFlow, bytes: &[u8]) -> Vec<u8> {
    let mut datagram = bytes.to_vec();
    if let Some(stamp) = datagram.get_mut(12..14) {
        stamp[0] = 0;
        stamp[1] &= 0x0F;
    }
    if let Some((covered, check)) = datagram.split_last_chunk_mut::<CHECK_LEN>() {
        *check = PacketCheck::new(EPOCH).compute(flow, covered);
    }
    datagram
}

fn card(authentication: Option<CardAuthentication>) -> StatelessCard {
    StatelessCard::new(CardConfig { epoch: EPOCH, max_payload: 16, hop_limit: 64, authentication })
}

fn table() -> MemoryTable {
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let (address, len) = (BASE + MARGIN as u64, REGION as u64);
    MemoryTable::from_iter([Registration {
        key: RKey(KEY),
        address,
        len,
        rights: all.star_bits(),
        code: GrantCode(0),
    }])
}

/// Returns slots with one for the connection that the packet names.
fn slots(datagram: &[u8]) -> ResultSlots {
    let mut slots = ResultSlots::default();
    if let Ok((Repr { message, .. }, ..)) = Repr::parse(datagram)
        && let Some(span) = message.span()
    {
        slots.open(span.capability.server);
    }
    slots
}

fn the_card_writes_only_its_region(flow: &UdpFlow, bytes: &[u8]) {
    let datagram = with_valid_check(flow, bytes);
    let mut memory = ByteMemory::new(BASE, MARGIN + REGION + MARGIN);
    let mut buffer = [0; 128];
    let received = Datagram { flow: *flow, traffic_class: TrafficClass(0), bytes: &datagram };
    let mut card = card(None);
    let answer =
        card.respond(&received, Instant::ZERO, &table(), (&mut memory, &mut slots(&datagram)), &mut buffer);
    let (before, rest) = memory.bytes().split_at(MARGIN);
    let (region, behind) = rest.split_at(REGION);
    assert!(before.iter().chain(behind).all(|byte| *byte == 0));
    let Some(answer) = answer else {
        assert!(region.iter().all(|byte| *byte == 0));
        return;
    };
    assert_eq!(answer.route.flow.addresses.dst(), flow.addresses.src());
    let answer_bytes = &buffer[..answer.len];
    assert!(PacketCheck::new(EPOCH).is_valid(&answer.route.flow, answer_bytes));
    let (Ok((answer, data, None)), Ok((request, _, None))) =
        (Repr::parse(answer_bytes), Repr::parse(&datagram))
    else {
        panic!("an answer of {answer_bytes:?} to {datagram:?}")
    };
    assert_eq!((answer.connection, answer.sequence), (request.connection, request.sequence));
    match (request.message, answer.message) {
        (Message::Rdp(_), Message::Ra(Ok(before))) => assert_eq!(before, 0),
        (Message::Gd(_, len), Message::Sdp(Ok(()))) => assert_eq!(usize::from(len), data.len()),
        (Message::Aop(..), Message::Sdp(Ok(()))) => assert_eq!(data, [0; 8]),
        (Message::Rdp(_), Message::Ra(Err(_)))
        | (Message::Gd(..) | Message::Aop(..), Message::Sdp(Err(_))) => {
            assert!(region.iter().all(|byte| *byte == 0));
        }
        (request, answer) => panic!("{answer:?} in answer to {request:?}"),
    }
}

fn an_authenticating_card_refuses_untagged_packets(flow: &UdpFlow, bytes: &[u8]) {
    let datagram = with_valid_check(flow, bytes);
    let mut memory = ByteMemory::new(BASE, MARGIN + REGION + MARGIN);
    let received = Datagram { flow: *flow, traffic_class: TrafficClass(0), bytes: &datagram };
    let secret = ServerSecret::new([0x5E; 16]);
    let mut card = card(Some(CardAuthentication { secret }));
    let answer =
        card.respond(&received, Instant::ZERO, &table(), (&mut memory, &mut slots(&datagram)), &mut [0; 128]);
    assert!(memory.bytes().iter().all(|byte| *byte == 0));
    assert_eq!(answer.is_some(), card.counters().refused_unauthenticated == 1);
}
