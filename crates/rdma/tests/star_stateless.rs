//! The stateless card allocates no memory for connections.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "star_card/common.rs"]
#[allow(dead_code)]
mod common;

use std::net::Ipv4Addr;

use allocation_counter::measure;
use common::{BASE, CLOCK, EPOCH, LEASE, LIFETIME, NOW, SERVER, Server, connection, secret};
use nichrome_rdma::star::{Ends, MemoryTable, Reach, RegisteredMemory, StatelessCard};
use nichrome_rdma::{Access, Datagram, RKey};
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{
    Capability, Flags, GrantCode, Message, PacketCheck, PacketWriter, Reason, Registration, Repr, Rights,
    Span, Stamp,
};
use nichrome_wire::{AddressPair, SeqNumber, TrafficClass};

/// The key of the first connection's region; those of the others follow.
const FIRST_KEY: u32 = 0x1000;

/// A protection domain for each connection, with a region each.
struct Domains(Vec<MemoryTable>);

impl Domains {
    fn new(connections: u32) -> Self {
        let rights = (Access::REMOTE_WRITE | Access::REMOTE_READ).star_bits();
        let region = |nth| Registration {
            key: RKey(FIRST_KEY + nth),
            address: BASE,
            len: 8,
            rights,
            code: GrantCode(0),
        };
        Self((0..connections).map(|nth| MemoryTable::from_iter([region(nth)])).collect())
    }
}

impl RegisteredMemory for Domains {
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason> {
        let nth = reach.span.key.checked_sub(FIRST_KEY).ok_or(Reason::Key)?;
        self.0.get(nth as usize).ok_or(Reason::Key)?.resolve(reach)
    }
}

fn server(authenticated: bool) -> Server {
    if authenticated { Server::authenticating() } else { Server::new(None) }
}

/// Sends an RDP and a GD of the `nth` connection, which has its own address, number and region, and checks
/// the answers.
fn exchange(server: &mut Server, domains: &Domains, nth: u32, authenticated: bool) {
    let client = Ipv4Addr::from(0x0A01_0000 + nth);
    let flow = UdpFlow::to_star(AddressPair::V4 { src: client, dst: SERVER }, 4793);
    let ends = Ends { address: client.into(), client: connection(nth), server: connection(1 + nth) };
    let rights = Rights::STORE | Rights::FETCH;
    let capability = Capability { base: BASE, len: 8, rights, server: ends.server, lease: LEASE };
    let span = Span { address: BASE, key: FIRST_KEY + nth, capability };
    let keys = (secret().lease_key(&ends, LEASE), secret().grant_code(&ends, span.key, (BASE, 8), rights));
    for (message, payload_len) in [(Message::Rdp(span), 8), (Message::Gd(span, 8), 0)] {
        let flags = if authenticated { Flags::AUTHENTICATED } else { Flags::NONE };
        let stamp = Stamp(CLOCK + LIFETIME);
        let repr = Repr { flags, connection: connection(nth), sequence: SeqNumber(nth), stamp, message };
        let mut packet = [0; 96];
        let mut writer = PacketWriter::new(&repr, payload_len, &mut packet).unwrap();
        writer.payload().fill(nth as u8);
        let len = match authenticated {
            true => writer
                .finish_authenticated(&flow, |addresses, covered| keys.0.tag(keys.1, addresses, covered)),
            false => writer.finish(&flow, PacketCheck::new(EPOCH)),
        };
        let mut buffer = [0; 64];
        let datagram = Datagram { flow, traffic_class: TrafficClass(0), bytes: &packet[..len] };
        let Server { card, memory, slots, .. } = server;
        let answer = card.respond(&datagram, NOW, domains, (memory, slots), &mut buffer).unwrap();
        let (answer, ..) = Repr::parse(&buffer[..answer.len]).unwrap();
        assert!(!answer.flags.contains(Flags::REFUSED));
        assert_eq!(answer.connection, connection(nth));
    }
}

#[test]
fn a_hundred_thousand_connections_with_a_region_each_allocate_nothing() {
    for authenticated in [false, true] {
        for connections in [1, 100_000] {
            let (mut server, domains) = (server(authenticated), Domains::new(connections));
            let allocated = measure(|| {
                for nth in 0..connections {
                    exchange(&mut server, &domains, nth, authenticated);
                }
            });
            assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{connections} connections");
            assert_eq!(server.card.counters().stored, u64::from(connections));
        }
        // Configuration, secret, counters, and the place of the table of closed connections.
        assert!(size_of::<StatelessCard>() <= 320);
    }
}
