//! Cost of the engine without I/O: two devices in one process, which compute and verify ICRC or CRC where the
//! transport has one.
//!
//! `cargo bench -p nichrome-rdma`. The bench itself copies nothing between the two devices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant as Clock};

use common::{Link, Pair};
use nichrome_rdma::iwarp::{Role, Terms};
use nichrome_rdma::*;
use nichrome_wire::TrafficClass;
use nichrome_wire::iwarp::Crc;

/// The cost of one round: the time of each side.
#[derive(Clone, Copy, Default)]
struct Cost {
    requester: Duration,
    responder: Duration,
}

struct Bench {
    pair: Pair,
    buffer: Vec<u8>,
}

impl Bench {
    /// Delivers the packets of each end to the other, until neither has any to send. The requester is end 0.
    fn exchange(&mut self, cost: &mut Cost) {
        loop {
            let mut idle = true;
            for from in 0..2 {
                loop {
                    let start = Clock::now();
                    let sent = self.pair.ends[from].device.poll_transmit(self.pair.now, 64, &mut self.buffer);
                    let built = start.elapsed();
                    *cost.of(from) += built;
                    let Some(sent) = sent else { break };
                    idle = false;
                    let start = Clock::now();
                    self.receive(1 - from, &sent);
                    let taken = start.elapsed();
                    *cost.of(1 - from) += taken;
                }
            }
            if idle {
                return;
            }
        }
    }

    fn receive(&mut self, to: usize, sent: &Transmit) {
        let Self { pair: Pair { ends, now, .. }, buffer } = self;
        let device = &mut ends[to].device;
        match sent {
            Transmit::Datagrams(transmit) => {
                for bytes in transmit.datagrams(buffer) {
                    let flow = Pair::flow(1 - to);
                    device.receive(&Datagram { flow, traffic_class: TrafficClass(0), bytes }, *now);
                }
            }
            // Both ends have the same handles.
            Transmit::Stream(StreamBytes { qp, len }) => {
                assert_eq!(device.receive_stream(*qp, &buffer[..*len], *now), Ok(*len));
            }
            Transmit::End(ending) => panic!("{ending:?}"),
        }
    }
}

/// The transport of a run.
#[derive(Clone, Copy)]
enum Transport {
    Roce,
    Iwarp(Crc),
}

impl Transport {
    fn connect(self, pair: &mut Pair) -> QpHandle {
        let link = Link { mtu: PathMtu::B4096, timeout: 20, ..Link::default() };
        let Self::Iwarp(crc) = self else { return pair.connect(QpType::Rc, &link)[0] };
        let initiator = Terms {
            role: Role::Initiator,
            crc,
            markers_out: false,
            markers_in: false,
            ird: 4,
            ord: 4,
            rtr: None,
            extended: true,
            max_ulpdu: Terms::LONGEST_ULPDU,
        };
        pair.connect_iwarp(&link, [initiator, Terms { role: Role::Responder, ..initiator }])[0]
    }
}

impl Cost {
    fn of(&mut self, end: usize) -> &mut Duration {
        if end == 0 { &mut self.requester } else { &mut self.responder }
    }
}

/// Runs rounds of `depth` messages of `len` bytes on each queue pair for about a second, and prints the
/// median round: others may have waited for the processor.
fn run(
    name: &str,
    transport: Transport,
    len: usize,
    depth: u64,
    qps: usize,
    operation: impl Fn(Remote) -> Operation,
) {
    let mut pair = Pair::new();
    let qps: Vec<QpHandle> = (0..qps).map(|_| transport.connect(&mut pair)).collect();
    let there = pair.ends[1].remote(0);
    let room = if matches!(transport, Transport::Roce) { 65_507 } else { 1 << 18 };
    let mut bench = Bench { pair, buffer: vec![0; room] };
    let mut rounds = Vec::new();
    let begin = Clock::now();
    while begin.elapsed() < Duration::from_secs(1) {
        rounds.push(round(&mut bench, &qps, depth, len, |wr| (wr, operation(there))));
    }
    assert_eq!(bench.pair.ends[0].device.counters().retransmitted, 0);
    let middle = |side: fn(&Cost) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().map(side).collect();
        times.sort_unstable();
        times[times.len() / 2].as_nanos() as f64
    };
    let (requester, responder) = (middle(|cost| cost.requester), middle(|cost| cost.responder));
    let messages = (depth * qps.len() as u64) as f64;
    let packets = messages * len.div_ceil(4096).max(1) as f64;
    let bits = messages * len as f64 * 8.0;
    println!(
        "{name:<28} {:>7.0} {:>7.0} {:>8.1} {:>8.1} {:>9.2}",
        requester / packets,
        responder / packets,
        bits / requester,
        bits / responder,
        messages * 1e3 / requester.max(responder),
    );
}

fn round(
    bench: &mut Bench,
    qps: &[QpHandle],
    depth: u64,
    len: usize,
    request: impl Fn(u64) -> (u64, Operation),
) -> Cost {
    let mut cost = Cost::default();
    let start = Clock::now();
    for qp in qps {
        for wr in 0..depth {
            let (wr_id, operation) = request(wr);
            bench.pair.ends[0].post(*qp, wr_id, operation, 0, len);
        }
    }
    cost.requester += start.elapsed();
    bench.exchange(&mut cost);
    let start = Clock::now();
    let end = &mut bench.pair.ends[0];
    while let Some(done) = end.device.poll_cq(end.cq) {
        assert_eq!(done.status, Status::Success);
    }
    cost.requester += start.elapsed();
    cost
}

fn main() {
    println!("{:<28} {:^15} {:^17} {:>9}", "", "ns per 4 KB", "Gb/s per core", "M msg/s");
    println!("{:<28} {:>7} {:>7} {:>8} {:>8}", "", "req", "resp", "req", "resp");
    for (name, transport) in [
        ("RoCE", Transport::Roce),
        ("iWARP", Transport::Iwarp(Crc::Used)),
        ("iWARP without CRC", Transport::Iwarp(Crc::Unused)),
    ] {
        println!("{name}");
        run("  WRITE 64 KB, depth 64", transport, 65_536, 64, 1, Operation::Write);
        run("  READ 64 KB, depth 64", transport, 65_536, 64, 1, Operation::Read);
        run("  WRITE 8 B, depth 128", transport, 8, 128, 1, Operation::Write);
        run("  WRITE 8 B, depth 1", transport, 8, 1, 1, Operation::Write);
        run("  WRITE 8 B, 1000 QPs", transport, 8, 4, 1000, Operation::Write);
        run("  WRITE 4 KB, 1000 QPs", transport, 4096, 4, 1000, Operation::Write);
    }
    idle_queue_pairs();
}

/// Prints the memory of connected, idle queue pairs.
fn idle_queue_pairs() {
    let count = 100_000;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.unwrap_or_default() * 4096
    };
    let mut pair = Pair::new();
    let before = resident();
    for _ in 0..count {
        pair.connect(QpType::Rc, &Link::default());
    }
    println!("bytes per idle queue pair: {}", (resident() - before) / (2 * count));
}
