//! Cost of an answer of the stateless card, without and with tags.
//!
//! `cargo bench -p nichrome-rdma --bench star_card` prints nanoseconds, medians of rounds in which all cases
//! take turns. To count instructions, run one case with a number of packets; the difference between two
//! counts excludes the start.
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/deps/star_card-… 'RDP 8 B, tag' 20000
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../tests/star_card/common.rs"]
#[allow(dead_code)]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use common::{BASE, NOW, Packet, SHARED, Server, to_server};
use nichrome_rdma::Datagram;
use nichrome_wire::TrafficClass;
use nichrome_wire::star::Registration;

/// Packets that a case answers in its turn.
const PACKETS: u32 = 2000;

/// A packet, and the server that answers it.
struct Case {
    name: String,
    packet: Vec<u8>,
    server: Server,
    times: Vec<Duration>,
}

impl Case {
    fn new(name: &str, packet: &Packet, tag: bool) -> Self {
        let mut server = if tag { Server::authenticating() } else { Server::new(None) };
        server.memory = nichrome_rdma::ByteMemory::new(BASE, 4096);
        server.table.register(Registration { len: 4096, ..common::regions()[0] });
        let (packet, name) = match tag {
            true => (packet.clone().authenticated().built(), format!("{name}, tag")),
            false => (packet.built(), name.to_owned()),
        };
        Self { name, packet, server, times: Vec::new() }
    }

    fn answer(&mut self, packets: u32) {
        let mut buffer = [0; 2048];
        let Server { card, memory, table, slots, .. } = &mut self.server;
        for _ in 0..packets {
            let bytes = black_box(self.packet.as_slice());
            let datagram = Datagram { flow: to_server(), traffic_class: TrafficClass(0), bytes };
            black_box(card.respond(&datagram, NOW, table, (&mut *memory, &mut *slots), &mut buffer)).unwrap();
        }
    }

    fn median_ns(&mut self) -> f64 {
        self.times.sort_unstable();
        self.times[self.times.len() / 2].as_nanos() as f64 / f64::from(PACKETS)
    }
}

fn cases() -> Vec<Case> {
    let packets = [
        ("RDP 8 B", Packet::rdp(SHARED, BASE, &[7; 8])),
        ("GD 8 B", Packet::gd(SHARED, BASE, 8)),
        ("RDP 1024 B", Packet::rdp(SHARED, BASE, &[7; 1024])),
        ("GD 1024 B", Packet::gd(SHARED, BASE, 1024)),
    ];
    let both = |(name, packet): &(&str, Packet)| [false, true].map(|tag| Case::new(name, packet, tag));
    packets.iter().flat_map(both).collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut cases = cases();
    if let [name, packets] = &arguments[..] {
        let case = cases.iter_mut().find(|case| case.name == *name).expect("the name of a case");
        case.answer(packets.parse().unwrap());
        return;
    }
    for _ in 0..200 {
        for case in &mut cases {
            let start = Clock::now();
            case.answer(PACKETS);
            case.times.push(start.elapsed());
        }
    }
    println!("{:<20} {:>8}", "", "ns");
    for case in &mut cases {
        let median = case.median_ns();
        println!("{:<20} {median:>8.1}", case.name);
    }
}
