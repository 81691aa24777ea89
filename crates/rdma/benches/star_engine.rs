//! Cost of StaR on each side without I/O, compared with RoCE: two devices in one process, end 0 the client,
//! end 1 the server.
//!
//! `cargo bench -p nichrome-rdma --bench star_engine` prints nanoseconds per packet with payload, medians of
//! rounds in which the transports take turns. For a profile, run one transport alone. The arguments are its
//! name, connections, WRITEs on each, bytes of a WRITE, and rounds:
//!
//! ```text
//! valgrind --tool=callgrind target/release/deps/star_engine-… tags 1 64 65536 100
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant as Clock};

use common::{Link, Pair};
use nichrome_rdma::star::{CardAuthentication, ServerSecret};
use nichrome_rdma::*;
use nichrome_wire::TrafficClass;

/// Queue pairs that have WRITEs under way at once.
const AT_ONCE: usize = 128;

/// How the two ends are connected.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Roce,
    Star,
    /// StaR with authenticated packets.
    Tags,
}

/// Connections of one kind, and the times of their rounds.
struct Lane {
    kind: Kind,
    pair: Pair,
    qps: Vec<QpHandle>,
    buffer: Vec<u8>,
    /// By round, the time of client and server.
    times: Vec<[Duration; 2]>,
}

impl Lane {
    fn new(kind: Kind, qps: usize) -> Self {
        let mut pair = Pair::with(|config| {
            let authentication = CardAuthentication { secret: ServerSecret::new([7; 16]) };
            config.star.authentication = matches!(kind, Kind::Tags).then_some(authentication);
        });
        let link = Link { mtu: PathMtu::B4096, timeout: 20, ..Link::default() };
        let connect = |_| match kind {
            Kind::Roce => pair.connect(QpType::Rc, &link)[0],
            Kind::Star | Kind::Tags => pair.connect_star(1, &link)[0],
        };
        let qps = (0..qps).map(connect).collect();
        Self { kind, pair, qps, buffer: vec![0; 65_507], times: Vec::new() }
    }

    /// Posts `depth` WRITEs of `len` bytes on each queue pair, [`AT_ONCE`] queue pairs at a time, and carries
    /// packets until they are complete.
    fn round(&mut self, depth: u64, len: usize) {
        let mut cost = [Duration::ZERO; 2];
        for qps in std::mem::take(&mut self.qps).chunks(AT_ONCE) {
            self.write(qps, depth, len, &mut cost);
            self.qps.extend(qps);
        }
        self.times.push(cost);
    }

    fn write(&mut self, qps: &[QpHandle], depth: u64, len: usize, cost: &mut [Duration; 2]) {
        let there = self.pair.ends[1].remote(0);
        let start = Clock::now();
        for qp in qps {
            (0..depth).for_each(|wr| self.pair.ends[0].post(*qp, wr, Operation::Write(there), 0, len));
        }
        cost[0] += start.elapsed();
        self.exchange(cost);
        let start = Clock::now();
        let (end, mut done) = (&mut self.pair.ends[0], 0);
        while let Some(completion) = end.device.poll_cq(end.cq) {
            assert_eq!(completion.status, Status::Success);
            done += 1;
        }
        cost[0] += start.elapsed();
        assert_eq!(done, depth * qps.len() as u64);
    }

    /// Delivers the packets of each side to the other, until neither has any to send.
    fn exchange(&mut self, cost: &mut [Duration; 2]) {
        let mut idle = [false; 2];
        while idle != [true; 2] {
            for from in 0..2 {
                idle[from] = true;
                loop {
                    let start = Clock::now();
                    let sent = self.pair.ends[from].device.poll_transmit(self.pair.now, 16, &mut self.buffer);
                    cost[from] += start.elapsed();
                    let Some(Transmit::Datagrams(transmit)) = sent else { break };
                    idle = [false; 2];
                    let start = Clock::now();
                    let flow = Pair::flow_to(from, transmit.route.flow.dst_port);
                    for bytes in transmit.datagrams(&self.buffer) {
                        let datagram = Datagram { flow, traffic_class: TrafficClass(0), bytes };
                        self.pair.ends[1 - from].device.receive(&datagram, self.pair.now);
                    }
                    cost[1 - from] += start.elapsed();
                }
            }
            self.pair.now = self.pair.now.plus_nanos(1000);
        }
    }

    /// Median nanoseconds of a round, of client (0) or server (1).
    fn median_ns(&mut self, end: usize) -> f64 {
        self.times.sort_unstable_by_key(|times| times[end]);
        self.times[self.times.len() / 2][end].as_nanos() as f64
    }
}

fn compare(name: &str, qps: usize, depth: u64, len: usize) {
    let mut lanes = [Kind::Roce, Kind::Star, Kind::Tags].map(|kind| Lane::new(kind, qps));
    let begin = Clock::now();
    while begin.elapsed() < Duration::from_secs(2) {
        lanes.iter_mut().for_each(|lane| lane.round(depth, len));
    }
    let packets = depth as f64 * qps as f64 * len.div_ceil(4096) as f64;
    for lane in &mut lanes {
        let [client, server] = [0, 1].map(|end| lane.median_ns(end) / packets);
        println!("{name:<24} {:<6} {client:>8.0} {server:>8.0}", format!("{:?}", lane.kind).to_lowercase());
    }
}

/// The kind with this name in the output.
fn kind(name: &str) -> Option<Kind> {
    [Kind::Roce, Kind::Star, Kind::Tags].into_iter().find(|kind| format!("{kind:?}").to_lowercase() == name)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [name, numbers @ ..] = &arguments[..] {
        let numbers: Vec<usize> = numbers.iter().map(|number| number.parse().unwrap()).collect();
        let [qps, depth, len, rounds] = numbers[..] else { panic!("connections, depth, bytes, rounds") };
        let mut lane = Lane::new(kind(name).expect("a transport"), qps);
        (0..rounds).for_each(|_| lane.round(depth as u64, len));
        let packets = (depth * qps * len.div_ceil(4096)) as f64;
        println!("{name:<6} {:>8.0} {:>8.0}", lane.median_ns(0) / packets, lane.median_ns(1) / packets);
        return;
    }
    println!("{:<24} {:<6} {:>8} {:>8}", "ns per packet", "", "client", "server");
    compare("64 KB, depth 64", 1, 64, 65_536);
    compare("64 KB, depth 1", 1, 1, 65_536);
    compare("64 KB, 1000 QPs", 1000, 1, 65_536);
    compare("64 KB, 50000 QPs", 50_000, 1, 65_536);
    compare("8 B, depth 128", 1, 128, 8);
    compare("8 B, 1000 QPs", 1000, 1, 8);
}
