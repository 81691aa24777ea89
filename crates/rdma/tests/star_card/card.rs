//! The card's answers to valid packets and to invalid requests.

use nichrome_rdma::{Access, ByteMemory, RKey};
use nichrome_wire::star::{
    Atomic, AtomicKind, Completed, Cqe, Element, Epoch, Flags, Message, Operands, Reason, Registration,
    Rights, STAR_PORT, StatusCode,
};
use nichrome_wire::{Ecn, TrafficClass};

use super::common::{BASE, EPOCH, NOW, PRIVATE, Packet, SHARED, Server, Tag, to_server};

fn answered(server: &mut Server, packet: &Packet) -> Message {
    server.exchange(&packet.clone().authenticated().built()).unwrap().repr.message
}

#[test]
fn an_rdp_is_stored_and_acknowledged() {
    let mut server = Server::new(None);
    let packet = Packet::rdp(SHARED, BASE + 100, b"hello").flags(Flags::LAST);
    let answered = server.exchange(&packet.built()).unwrap();
    assert_eq!(server.memory.bytes()[99..106], *b"\x63hello\x69");
    assert_eq!((answered.repr.message, answered.repr.flags), (Message::Ra(Ok(0)), Flags::LAST));
    assert_eq!(
        (answered.repr.connection, answered.repr.sequence),
        (packet.repr.connection, packet.repr.sequence)
    );
    let counters = server.card.counters();
    assert_eq!((counters.stored, counters.bytes_stored), (1, 5));
}

#[test]
fn a_gd_is_answered_with_memory() {
    let mut server = Server::new(None);
    let answered = server.exchange(&Packet::gd(SHARED, BASE + 250, 10).built()).unwrap();
    assert_eq!(
        (answered.repr.message, answered.payload.as_slice()),
        (Message::Sdp(Ok(())), &server.memory.bytes()[250..260])
    );
    let counters = server.card.counters();
    assert_eq!((counters.fetched, counters.bytes_fetched), (1, 10));
    let nothing = server.exchange(&Packet::gd(SHARED, BASE + 1000, 0).built()).unwrap();
    assert_eq!((nothing.repr.message, nothing.payload.len()), (Message::Sdp(Ok(())), 0));
}

#[test]
fn the_answer_goes_where_the_packet_came_from() {
    let mut server = Server::new(None);
    let class = TrafficClass(46 << 2);
    let data = server.respond(to_server(), class.0, &Packet::gd(SHARED, BASE, 8).built()).unwrap();
    let flow = data.answer.route.flow;
    assert_eq!(flow.addresses.src(), to_server().addresses.dst());
    assert_eq!(flow.addresses.dst(), to_server().addresses.src());
    assert_eq!((flow.src_port, flow.dst_port), (0xC123, STAR_PORT));
    // Data may be marked in the network; the class is that of the request.
    assert_eq!(data.answer.route.traffic_class, class.with_ecn(Ecn::Ect0));
    let marked = class.with_ecn(Ecn::Ce);
    let stored = server.respond(to_server(), marked.0, &Packet::rdp(SHARED, BASE, b"x").built()).unwrap();
    assert_eq!(stored.answer.route.traffic_class, class);
}

#[test]
fn a_mark_is_echoed() {
    let mut server = Server::new(None);
    for packet in [Packet::rdp(SHARED, BASE, b"x"), Packet::gd(SHARED, BASE, 1), Packet::gd(1, BASE, 1)] {
        for (class, echoed) in [(Ecn::Ce, true), (Ecn::Ect0, false)] {
            let answered = server.respond(to_server(), class as u8, &packet.built()).unwrap();
            assert_eq!(answered.repr.flags.contains(Flags::ECN_ECHO), echoed);
        }
    }
    assert_eq!(server.card.counters().congestion_marks, 3);
}

#[test]
fn rights_are_those_of_peers_or_of_the_servers_own_elements() {
    let mut server = Server::authenticating();
    let private = BASE + 1000;
    let store = || Packet::rdp(PRIVATE, private, b"data");
    assert_eq!(answered(&mut server, &store()), Message::Ra(Err(Reason::Right)));
    assert_eq!(server.memory.bytes()[1000], 1000_u32 as u8);
    assert_eq!(answered(&mut server, &store().of_element()), Message::Ra(Ok(0)));
    assert_eq!(server.memory.bytes()[1000..1004], *b"data");
    let fetch = || Packet::gd(PRIVATE, private, 4);
    assert_eq!(answered(&mut server, &fetch()), Message::Sdp(Err(Reason::Right)));
    assert_eq!(answered(&mut server, &fetch().of_element()), Message::Sdp(Ok(())));
    server
        .table
        .register(Registration { rights: Access::REMOTE_READ.star_bits(), ..super::common::regions()[0] });
    let read_only = Packet::rdp(SHARED, BASE, b"data").of_element();
    assert_eq!(answered(&mut server, &read_only), Message::Ra(Err(Reason::Right)));
    assert_eq!(server.card.counters().refused_memory, 3);
}

#[test]
fn keys_and_bounds_are_checked() {
    let mut server = Server::authenticating();
    for (key, address, reason) in [
        (SHARED ^ 1, BASE, Reason::Key),
        (0, BASE, Reason::Key),
        (SHARED, BASE - 1, Reason::Bounds),
        (SHARED, BASE + 997, Reason::Bounds),
        (SHARED, u64::MAX - 1, Reason::Bounds),
    ] {
        assert_eq!(answered(&mut server, &Packet::rdp(key, address, b"data")), Message::Ra(Err(reason)));
        assert_eq!(answered(&mut server, &Packet::gd(key, address, 4)), Message::Sdp(Err(reason)));
    }
    assert_eq!(server.memory.bytes(), Server::authenticating().memory.bytes());
    assert_eq!(server.card.counters().refused_memory, 10);
}

#[test]
fn memory_that_is_deregistered_or_gone_is_out_of_reach_at_once() {
    let mut server = Server::authenticating();
    server.memory = ByteMemory::new(BASE, 500);
    assert_eq!(answered(&mut server, &Packet::gd(SHARED, BASE + 498, 4)), Message::Sdp(Err(Reason::Fault)));
    assert_eq!(
        answered(&mut server, &Packet::rdp(SHARED, BASE + 498, b"data")),
        Message::Ra(Err(Reason::Fault))
    );
    assert_eq!(server.memory.bytes(), [0; 500]);
    server.table.deregister(RKey(SHARED));
    assert_eq!(answered(&mut server, &Packet::gd(SHARED, BASE, 4)), Message::Sdp(Err(Reason::Key)));
}

#[test]
fn more_bytes_than_fit_a_packet_are_refused() {
    let mut server = Server::authenticating();
    let large = |len| Packet::gd(SHARED, BASE, len).changed(|capability| capability.len = 1 << 20);
    server.table.register(Registration { len: 1 << 20, ..super::common::regions()[0] });
    assert_eq!(answered(&mut server, &large(1024)), Message::Sdp(Ok(())));
    assert_eq!(answered(&mut server, &large(1025)), Message::Sdp(Err(Reason::Length)));
    assert_eq!(server.card.counters().refused_length, 1);
}

#[test]
fn a_duplicate_is_executed_and_answered_again() {
    let mut server = Server::new(None);
    let packet = Packet::rdp(SHARED, BASE, b"again").built();
    let first = server.exchange(&packet).unwrap();
    assert_eq!(server.exchange(&packet).unwrap(), first);
    assert_eq!(server.memory.bytes()[..5], *b"again");
}

#[test]
fn the_card_drops_packets_other_than_rdps_and_gds() {
    let mut server = Server::new(None);
    let completed = Completed::Receive;
    let cqe = Cqe { wr_id: 1, status: StatusCode::SUCCESS, completed, len: 0, notice: None };
    let messages = [
        Message::Wqep(Element::Deregister(RKey(SHARED))),
        Message::Cqep(cqe),
        Message::Ea,
        Message::Ra(Ok(0)),
        Message::Sdp(Ok(())),
    ];
    for message in messages {
        assert_eq!(server.exchange(&Packet::new(message, &[]).built()), None);
    }
    assert_eq!(server.exchange(b"rubbish"), None);
    assert_eq!(server.card.counters().dropped_malformed, 6);
}

#[test]
fn packets_of_before_a_restart_are_dropped() {
    let mut server = Server::new(None);
    let old = Packet { epoch: Epoch(EPOCH.0 - 1), ..Packet::rdp(SHARED, BASE, b"old") };
    assert_eq!(server.exchange(&old.built()), None);
    assert_eq!(server.memory.bytes()[..3], [0, 1, 2]);
    assert_eq!(server.card.counters().dropped_check, 1);
}

#[test]
fn a_buffer_that_is_too_short_costs_the_answer() {
    let mut server = Server::new(None);
    let bytes = Packet::gd(SHARED, BASE, 100).built();
    let datagram =
        nichrome_rdma::Datagram { flow: to_server(), traffic_class: TrafficClass(0), bytes: &bytes };
    let Server { card, memory, table, slots, .. } = &mut server;
    assert_eq!(card.respond(&datagram, NOW, table, (&mut *memory, &mut *slots), &mut [0; 119]), None);
    assert!(card.respond(&datagram, NOW, table, (&mut *memory, &mut *slots), &mut [0; 120]).is_some());
    assert_eq!(card.counters().dropped_buffer, 1);
}

#[test]
fn an_atomic_operation_takes_effect_once_and_its_copies_get_the_same_answer() {
    let mut server = Server::authenticating();
    let add = |ticket, address| {
        let operands = Operands { compare: 0, swap_or_add: 5 };
        Packet::aop(SHARED, address, Atomic { kind: AtomicKind::FetchAdd, ticket, operands }).authenticated()
    };
    let found = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
    for _ in 0..3 {
        let answer = server.exchange(&add(1, BASE).built()).unwrap();
        assert_eq!(answer.repr.message, Message::Sdp(Ok(())));
        assert_eq!((answer.payload, server.memory.bytes()[0]), (found.to_ne_bytes().to_vec(), 5));
    }
    let answer = server.exchange(&add(2, BASE).built()).unwrap();
    assert_eq!(answer.payload, (found + 5).to_ne_bytes());
    let refused = |server: &mut Server, packet: &Packet| {
        let before = server.memory.clone();
        let Message::Sdp(Err(reason)) = server.exchange(&packet.built()).unwrap().repr.message else {
            panic!()
        };
        assert_eq!(server.memory.bytes(), before.bytes());
        reason
    };
    assert_eq!(refused(&mut server, &add(1, BASE)), Reason::Atomic, "an old copy");
    assert_eq!(refused(&mut server, &add(4, BASE)), Reason::Atomic, "not the next");
    assert_eq!(refused(&mut server, &add(3, BASE + 1)), Reason::Atomic, "not aligned");
    assert_eq!(refused(&mut server, &add(3, BASE + 996)), Reason::Bounds);
    let not_granted = add(3, BASE).changed(|capability| capability.rights = Rights::STORE).authenticated();
    assert_eq!(refused(&mut server, &not_granted), Reason::Right);
    let of_element = add(3, BASE).of_element().authenticated();
    assert_eq!(refused(&mut server, &of_element), Reason::Right);
    let forged = add(3, BASE).tag(Tag::Fixed(7));
    assert_eq!((server.exchange(&forged.built()), server.memory.bytes()[0]), (None, 10));
    assert_eq!(server.card.counters().atomics, 4);
}
