//! The stateless card allocates no memory for connections.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "star_card/common.rs"]
#[allow(dead_code)]
mod common;

use std::net::Ipv4Addr;

use allocation_counter::{AllocationInfo, measure};
use common::{BASE, CLOCK, DOMAIN, EPOCH, LIFETIME, NOW, SERVER, SHARED, Server, connection, secret};
use nichrome_rdma::Datagram;
use nichrome_rdma::star::{ConnectionKey, StatelessCard};
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Flags, Message, PacketCheck, PacketWriter, Repr, Span, Stamp};
use nichrome_wire::{AddressPair, SeqNumber, TrafficClass};

/// Exchanges an RDP and a GD of the `nth` connection, which has its own address and number, for their answers.
fn exchange(server: &mut Server, nth: u32, key: Option<ConnectionKey>) {
    let client = Ipv4Addr::from(0x0A01_0000 + nth);
    let flow = UdpFlow::to_star(AddressPair::V4 { src: client, dst: SERVER }, 4793);
    let span = Span { address: BASE, key: SHARED };
    for (message, payload_len) in [(Message::Rdp(span), 8), (Message::Gd(span, 8), 0)] {
        let flags = if key.is_some() { Flags::AUTHENTICATED } else { Flags::NONE };
        let stamp = Stamp(CLOCK + LIFETIME);
        let repr = Repr { flags, connection: connection(nth), sequence: SeqNumber(nth), stamp, message };
        let mut packet = [0; 64];
        let mut writer = PacketWriter::new(&repr, payload_len, &mut packet).unwrap();
        writer.payload().fill(nth as u8);
        let check = PacketCheck::new(EPOCH);
        let len = writer.finish_authenticated(&flow, check, DOMAIN, |addresses, covered| {
            key.map_or(0, |key| key.tag(addresses, covered))
        });
        let mut buffer = [0; 64];
        let datagram = Datagram { flow, traffic_class: TrafficClass(0), bytes: &packet[..len] };
        let Server { card, memory, table, .. } = server;
        let answer = card.respond(&datagram, NOW, table, memory, &mut buffer).unwrap();
        let (answer, ..) = Repr::parse(&buffer[..answer.len]).unwrap();
        assert!(!answer.flags.contains(Flags::REFUSED));
        assert_eq!(answer.connection, connection(nth));
    }
}

/// Heap allocations for `connections` connections.
fn heap_of(connections: u32, server: &mut Server, authenticated: bool) -> AllocationInfo {
    measure(|| {
        for nth in 0..connections {
            let client = Ipv4Addr::from(0x0A01_0000 + nth);
            let key = authenticated.then(|| secret().connection_key(client.into(), connection(nth), DOMAIN));
            exchange(server, nth, key);
        }
    })
}

#[test]
fn a_hundred_thousand_connections_allocate_nothing() {
    for (mut server, authenticated) in [(Server::new(None), false), (Server::authenticating(), true)] {
        for connections in [1, 100_000] {
            let allocated = heap_of(connections, &mut server, authenticated);
            assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{connections} connections");
        }
        assert_eq!(server.card.counters().stored, 100_001);
        // Configuration, secret and counters.
        assert!(size_of::<StatelessCard>() <= 256);
    }
}
