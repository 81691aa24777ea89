//! The egress module: packets that pass, and packets that it blocks.

use std::net::IpAddr;

use nichrome_rdma::star::*;
use nichrome_rdma::{Access, RKey};
use nichrome_wire::AddressPair;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{
    Atomic, AtomicKind, Completed, Cqe, Element, Flags, GrantCode, Message, Operands, Reason, Registration,
    Stamp, StatusCode,
};

use super::common::{BASE, CLIENT, EPOCH, PRIVATE, Packet, SERVER, SHARED, connection, regions};

const ALL: Access = Access::REMOTE_WRITE;

fn admission() -> Admission {
    Admission { epoch: EPOCH, clock: Stamp(0), credentials: None, regions: regions().to_vec() }
}

/// The client's module, with an entry for connection 17.
fn admitted(access: Access) -> EgressModule {
    let mut module = EgressModule::default();
    module.admit(connection(17), SERVER.into(), access, &admission());
    module
}

fn check(module: &mut EgressModule, packet: &Packet) -> Result<(), Blocked> {
    module.check(&packet.flow, &packet.built())
}

fn completion() -> Message {
    let (status, completed) = (StatusCode::SUCCESS, Completed::Receive);
    Message::Cqep(Cqe { wr_id: 1, status, completed, len: 0, notice: None })
}

#[test]
fn an_empty_module_blocks_everything() {
    let mut module = EgressModule::default();
    let element = Message::Wqep(Element::Deregister(RKey(1)));
    for message in [element, Message::Ea, Message::Ra(Ok(1)), Message::Sdp(Ok(()))] {
        assert_eq!(check(&mut module, &Packet::new(message, &[])), Err(Blocked::Role));
    }
    assert_eq!(check(&mut module, &Packet::rdp(SHARED, BASE, b"x")), Err(Blocked::Role));
    assert_eq!(check(&mut module, &Packet::gd(SHARED, BASE, 1)), Err(Blocked::Role));
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Err(Blocked::Destination));
    assert_eq!(module.check(&Packet::gd(1, 1, 1).flow, b"rubbish"), Err(Blocked::Malformed));
    let EgressCounters { passed, blocked_malformed, blocked_role, blocked_destination, .. } =
        *module.counters();
    assert_eq!((passed, blocked_malformed, blocked_role, blocked_destination), (0, 1, 6, 1));
}

#[test]
fn an_admitted_connection_reaches_what_the_server_has_registered() {
    let mut module = admitted(Access::REMOTE_WRITE | Access::REMOTE_READ);
    assert_eq!(check(&mut module, &Packet::rdp(SHARED, BASE, b"data")), Ok(()));
    assert_eq!(check(&mut module, &Packet::gd(SHARED, BASE + 992, 8)), Ok(()));
    let local = Packet::rdp(PRIVATE, BASE + 1000, b"data").of_element();
    assert_eq!(check(&mut module, &local), Ok(()));
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Ok(()));
    assert_eq!(check(&mut module, &Packet::new(Message::Ea, &[]).flags(Flags::TO_SERVER)), Ok(()));
    assert_eq!(module.counters().passed, 5);
}

#[test]
fn a_forged_address_length_key_or_right_is_blocked() {
    let mut module = admitted(ALL);
    let mut blocked = |packet: &Packet, reason| {
        assert_eq!(check(&mut module, packet), Err(Blocked::Memory(reason)));
    };
    blocked(&Packet::rdp(SHARED, BASE - 1, b"data"), Reason::Bounds);
    blocked(&Packet::rdp(SHARED, BASE + 997, b"data"), Reason::Bounds);
    blocked(&Packet::rdp(SHARED ^ 2, BASE, b"data"), Reason::Key);
    blocked(&Packet::rdp(PRIVATE, BASE + 1000, b"data"), Reason::Right);
    // The server's queue pair does not let its peer read.
    blocked(&Packet::gd(SHARED, BASE, 8), Reason::Right);
    blocked(&Packet::gd(SHARED, BASE, 1001).of_element(), Reason::Bounds);
    assert_eq!((module.counters().blocked_memory, module.counters().passed), (6, 0));
}

#[test]
fn a_forged_connection_or_destination_is_blocked() {
    let mut module = admitted(ALL);
    let mut packet = Packet::rdp(SHARED, BASE, b"data");
    packet.repr.connection = connection(18);
    assert_eq!(check(&mut module, &packet), Err(Blocked::Role));
    let addresses = AddressPair::V4 { src: CLIENT, dst: [10, 0, 0, 9].into() };
    let elsewhere = UdpFlow::to_star(addresses, 4793);
    for packet in [Packet::rdp(SHARED, BASE, b"data"), Packet::new(completion(), &[])] {
        assert_eq!(check(&mut module, &Packet { flow: elsewhere, ..packet }), Err(Blocked::Destination));
    }
}

#[test]
fn entries_follow_the_elements_of_their_server_only() {
    let mut module = admitted(ALL);
    let server = IpAddr::from(SERVER);
    let more = Registration {
        key: RKey(0x333),
        address: 0x9000,
        len: 10,
        rights: Access::REMOTE_WRITE.star_bits(),
        code: GrantCode(0),
    };
    let reach = Packet::rdp(0x333, 0x9000, b"data");
    assert_eq!(check(&mut module, &reach), Err(Blocked::Memory(Reason::Key)));
    module.apply(connection(17), IpAddr::from([10, 0, 0, 9]), &Element::Register(more));
    module.apply(connection(18), server, &Element::Register(more));
    assert_eq!(check(&mut module, &reach), Err(Blocked::Memory(Reason::Key)));
    module.apply(connection(17), server, &Element::Register(more));
    assert_eq!(check(&mut module, &reach), Ok(()));
    module.apply(connection(17), server, &Element::Register(Registration { len: 3, ..more }));
    assert_eq!(check(&mut module, &reach), Err(Blocked::Memory(Reason::Bounds)));
    module.apply(connection(17), server, &Element::Deregister(RKey(0x333)));
    assert_eq!(check(&mut module, &reach), Err(Blocked::Memory(Reason::Key)));
}

#[test]
fn an_atomic_that_has_left_may_leave_again_after_its_region_was_deregistered() {
    let mut module = admitted(Access::REMOTE_ATOMIC);
    let key = 0x333;
    let region = Registration {
        key: RKey(key),
        address: 0x9000,
        len: 8,
        rights: Access::REMOTE_ATOMIC.star_bits(),
        code: GrantCode(0),
    };
    let aop = |key, ticket| {
        let operands = Operands { compare: 0, swap_or_add: 5 };
        let packet = Packet::aop(key, 0x9000, Atomic { kind: AtomicKind::FetchAdd, ticket, operands });
        packet.changed(|capability| (capability.base, capability.len) = (0x9000, 8))
    };
    let unknown = Err(Blocked::Memory(Reason::Key));
    assert_eq!(check(&mut module, &aop(key, 1)), unknown);
    module.apply(connection(17), SERVER.into(), &Element::Register(region));
    assert_eq!(check(&mut module, &aop(key, 1)), Ok(()));
    module.apply(connection(17), SERVER.into(), &Element::Deregister(RKey(key)));
    for (packet, expected) in [
        (aop(key, 1), Ok(())),
        (aop(key, 2), unknown),
        (aop(key + 1, 1), unknown),
        (Packet::rdp(key, 0x9000, b"data"), unknown),
    ] {
        assert_eq!(check(&mut module, &packet), expected);
    }
    module.admit(connection(17), SERVER.into(), Access::REMOTE_ATOMIC, &admission());
    assert_eq!(check(&mut module, &aop(key, 1)), unknown, "another connection");
}

#[test]
fn a_closed_connection_reaches_nothing_and_leaves_no_entry() {
    let mut module = admitted(ALL);
    let close = Element::Close(StatusCode::FLUSHED);
    module.apply(connection(17), IpAddr::from([10, 0, 0, 9]), &close);
    assert_eq!(check(&mut module, &Packet::rdp(SHARED, BASE, b"data")), Ok(()));
    module.apply(connection(17), SERVER.into(), &close);
    let local = Packet::rdp(PRIVATE, BASE + 1000, b"data").of_element();
    for packet in [Packet::rdp(SHARED, BASE, b"data"), local] {
        assert_eq!(check(&mut module, &packet), Err(Blocked::Role));
    }
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Ok(()), "the EA of the Close");
    module.admit(connection(18), SERVER.into(), ALL, &admission());
    module.remove(connection(17));
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Ok(()));
    module.remove(connection(18));
    assert!(module.is_empty());
    assert_eq!(check(&mut module, &Packet::rdp(SHARED, BASE, b"data")), Err(Blocked::Role));
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Err(Blocked::Destination));
}

#[test]
fn a_new_admission_replaces_the_entry() {
    let mut module = admitted(ALL);
    let nothing = Admission { regions: Vec::new(), ..admission() };
    module.admit(connection(17), SERVER.into(), ALL, &nothing);
    assert_eq!(check(&mut module, &Packet::rdp(SHARED, BASE, b"x")), Err(Blocked::Memory(Reason::Key)));
    module.remove(connection(17));
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Err(Blocked::Destination));
}

#[test]
fn a_server_sends_the_packets_of_servers_only() {
    let mut module = EgressModule::default();
    module.serve();
    let element = Message::Wqep(Element::Deregister(RKey(1)));
    for message in [element, Message::Ea, Message::Ra(Ok(1)), Message::Sdp(Ok(()))] {
        assert_eq!(check(&mut module, &Packet::new(message, &[])), Ok(()));
    }
    assert_eq!(check(&mut module, &Packet::rdp(SHARED, BASE, b"x")), Err(Blocked::Role));
    assert_eq!(check(&mut module, &Packet::new(completion(), &[])), Err(Blocked::Destination));
}

#[test]
fn elements_extend_a_table_beyond_an_admission_up_to_a_bound() {
    let region = |key| Registration { key: RKey(key), ..regions()[0] };
    let full = Admission { regions: (0..MAX_REGIONS as u32).map(region).collect(), ..admission() };
    let mut module = EgressModule::default();
    module.admit(connection(17), SERVER.into(), ALL, &full);
    let further = MAX_REGIONS as u32..=MAX_TABLE_REGIONS as u32;
    for key in further {
        module.apply(connection(17), SERVER.into(), &Element::Register(region(key)));
    }
    let last = MAX_TABLE_REGIONS as u32 - 1;
    let has = |module: &EgressModule, key| module.region(connection(17), key).is_some();
    assert!(has(&module, MAX_REGIONS as u32) && has(&module, last) && !has(&module, last + 1));
    assert_eq!(module.counters().ignored_regions, 1);
    module.apply(connection(17), SERVER.into(), &Element::Register(region(last)));
    module.apply(connection(17), SERVER.into(), &Element::Deregister(RKey(0)));
    module.apply(connection(17), SERVER.into(), &Element::Register(region(last + 1)));
    assert!(!has(&module, 0) && has(&module, last + 1));
    assert_eq!(module.counters().ignored_regions, 1);
}
