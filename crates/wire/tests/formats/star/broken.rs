//! Every broken rule has its error.

use nichrome_wire::rdma::{QpNumber, RKey, UdpFlow};
use nichrome_wire::star::{
    Atomic, AtomicKind, Capability, Completed, Cqe, Data, Element, Epoch, Flags, GrantCode, Lease, Message,
    Operands, PacketCheck, PacketType, PacketWriter, Repr, Request, Rights, Segment, Span, Stamp, StarError,
    StatusCode, Target, Wqe, WqeFlags,
};
use nichrome_wire::{AddressPair, SeqNumber};

fn built(message: Message, payload: &[u8]) -> Vec<u8> {
    let connection = QpNumber::new(0x11).unwrap();
    let repr = Repr { flags: Flags::NONE, connection, sequence: SeqNumber(7), stamp: Stamp(0), message };
    let mut datagram = vec![0; repr.datagram_len(payload.len())];
    let mut writer = PacketWriter::new(&repr, payload.len(), &mut datagram).unwrap();
    writer.payload().copy_from_slice(payload);
    let addresses = AddressPair::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    writer.finish(&UdpFlow::to_star(addresses, 4793), PacketCheck::new(Epoch(0)));
    datagram
}

/// The error of a message's datagram with one changed byte.
fn changed(message: Message, payload: &[u8], at: usize, byte: u8) -> StarError {
    let mut datagram = built(message, payload);
    assert!(Repr::parse(&datagram).is_ok());
    datagram[at] = byte;
    Repr::parse(&datagram).unwrap_err()
}

fn work(request: Request, data: Data, len: u32) -> Message {
    Message::Wqep(Element::Work(Wqe { wr_id: 1, request, flags: WqeFlags::SIGNALED, len, data }))
}

const CAPABILITY: Capability = Capability {
    base: 0x1000,
    len: 0x100,
    rights: Rights::STORE,
    server: match QpNumber::new(0x21) {
        Some(number) => number,
        None => panic!(),
    },
    lease: Lease(160),
};
const SPAN: Span = Span { address: 0x1000, key: 0x100, capability: CAPABILITY };
const RDP: Message = Message::Rdp(SPAN);
const CQE: Cqe =
    Cqe { wr_id: 1, status: StatusCode::SUCCESS, completed: Completed::Receive, len: 8, notice: None };

#[test]
fn of_the_common_header() {
    assert_eq!(changed(RDP, b"payload", 0, 0x14), StarError::Version(1));
    assert_eq!(changed(RDP, b"payload", 0, 0x20), StarError::Type(0));
    assert_eq!(changed(RDP, b"payload", 0, 0x29), StarError::Type(9));
    assert_eq!(changed(RDP, b"payload", 4, 1), StarError::Connection(0x0100_0011));
    assert_eq!(changed(RDP, b"payload", 3, 8), StarError::Length { len: 63, expected: 64 });
    assert_eq!(Repr::parse(&[0x24; 15]), Err(StarError::Length { len: 15, expected: 20 }));
    assert_eq!(Repr::parse(&built(RDP, b"")[..55]), Err(StarError::Length { len: 55, expected: 56 }));
    // Rights, in front of the server's number of the connection.
    assert_eq!(changed(RDP, b"payload", 16 + 12 + 16, 16), StarError::Rights(16));
    let kind = PacketType::Ea;
    assert_eq!(changed(Message::Ea, b"", 3, 1), StarError::UnusedLength { kind, length: 1 });
}

#[test]
fn of_the_flags() {
    let wrong = |message, kind, byte, flags: Flags| {
        let error = changed(message, b"", 1, byte);
        assert_eq!(error, StarError::Flags { kind, flags });
        assert_eq!(flags.bits(), byte);
    };
    wrong(RDP, PacketType::Rdp, 0x20, Flags::REFUSED);
    wrong(Message::Gd(SPAN, 8), PacketType::Gd, 0x10, Flags::ECN_ECHO);
    wrong(Message::Cqep(CQE), PacketType::Cqep, 0x02, Flags::SOLICITED);
    wrong(Message::Ra(Ok(8)), PacketType::Ra, 0x08, Flags::TO_SERVER);
    assert!(matches!(changed(RDP, b"", 1, 0x80), StarError::Flags { kind: PacketType::Rdp, .. }));
}

#[test]
fn of_answers() {
    assert_eq!(changed(Message::Ra(Ok(77)), b"", 1, 0x20), StarError::Reason(77));
    assert_eq!(changed(Message::Sdp(Ok(())), b"", 1, 0x20), StarError::Reason(0));
    let mut with_payload = built(Message::Ra(Ok(8)), b"");
    with_payload.push(0);
    assert_eq!(Repr::parse(&with_payload), Err(StarError::Length { len: 21, expected: 20 }));
}

#[test]
fn of_atomic_operations() {
    let operands = Operands { compare: 0, swap_or_add: 1 };
    let atomic = Message::Aop(SPAN, Atomic { kind: AtomicKind::FetchAdd, ticket: 1, operands });
    assert_eq!(changed(atomic, b"", 16 + 36, 6), StarError::Opcode(6));
    assert_eq!(changed(atomic, b"", 3, 4), StarError::UnusedLength { kind: PacketType::Aop, length: 4 });
    let mut with_payload = built(atomic, b"");
    with_payload.push(0);
    assert_eq!(Repr::parse(&with_payload), Err(StarError::Length { len: 81, expected: 80 }));
}

#[test]
fn of_completions() {
    assert_eq!(changed(Message::Cqep(CQE), b"", 16 + 8, 22), StarError::Status(22));
    assert_eq!(changed(Message::Cqep(CQE), b"", 16 + 9, 5), StarError::Completed(5));
    assert_eq!(changed(Message::Cqep(CQE), b"", 16 + 10, 3), StarError::Notice(3));
}

#[test]
fn of_elements() {
    let segment = Segment { address: 0x1000, len: 8, lkey: 0x100, code: GrantCode(7) }.to_bytes();
    let send = work(Request::Send, Data::Segments(1), 8);
    assert_eq!(changed(send, &segment, 16, 10), StarError::Opcode(10));
    assert_eq!(changed(send, &segment, 17, 0x11), StarError::ElementFlags { opcode: 1, flags: 0x11 });
    assert_eq!(changed(send, &segment, 18, 2), StarError::Buffers { len: 24, expected: 8 });
    assert_eq!(changed(send, &segment, 47, 9), StarError::Buffers { len: 8, expected: 9 });
    let inline = work(Request::Send, Data::Inline, 5);
    assert_eq!(changed(inline, b"hello", 16, 6), StarError::ElementFlags { opcode: 6, flags: 0x09 });
    assert_eq!(changed(inline, b"hello", 47, 6), StarError::Buffers { len: 5, expected: 6 });
    let deregister = Message::Wqep(Element::Deregister(RKey(0x100)));
    assert_eq!(changed(deregister, b"", 17, 1), StarError::ElementFlags { opcode: 17, flags: 1 });
    let close = Message::Wqep(Element::Close(StatusCode::FLUSHED));
    assert_eq!(changed(close, b"", 23, 22), StarError::Status(22));
    // Turned into a registration it has no code.
    assert_eq!(changed(close, b"", 16, 16), StarError::Length { len: 52, expected: 60 });
    // Turned into an atomic operation it has no operands.
    assert_eq!(changed(close, b"", 16, 8), StarError::Length { len: 52, expected: 68 });
}

#[test]
fn values_that_cannot_be_encoded_are_not_written() {
    let connection = QpNumber::new(0x11).unwrap();
    let target = Target { address: 0, rkey: RKey(0) };
    let operands = Operands { compare: 0, swap_or_add: 1 };
    let add = work(Request::FetchAdd(target, operands), Data::Segments(1), 8);
    for (message, payload_len) in [(Message::Ea, 1), (RDP, 0x1_0000), (add, 8), (Message::Cqep(CQE), 4)] {
        let repr = Repr { flags: Flags::NONE, connection, sequence: SeqNumber(0), stamp: Stamp(0), message };
        let mut buffer = vec![0; 0x1_1000];
        assert!(PacketWriter::new(&repr, payload_len, &mut buffer).is_none());
    }
}
