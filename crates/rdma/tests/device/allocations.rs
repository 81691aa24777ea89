//! No allocation in the steady state. Only allocations of the test's own thread count: the test harness has
//! other threads.

use crate::common::{Link, Pair};
use allocation_counter::measure;
use nichrome_rdma::iwarp::{Role, Terms};
use nichrome_rdma::*;
use nichrome_wire::TrafficClass;
use nichrome_wire::iwarp::Crc;

/// Exchanges every kind of request and a receive, without the network of the tests, which allocates.
fn round(pair: &mut Pair, qps: [QpHandle; 2], buffer: &mut [u8], nth: u64) {
    let there = pair.ends[1].remote(0);
    let inline = SendRequest {
        payload: Payload::Inline(&[1; 100]),
        ..SendRequest::new(0, Operation::Write(there), &[])
    };
    pair.ends[1].receive(qps[1], 0, 0, 10_000);
    pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, 10_000);
    pair.ends[0].post(qps[0], 2, Operation::Send, 0, 10_000);
    pair.ends[0].post(qps[0], 3, Operation::Read(there), 0, 10_000);
    pair.ends[0].post(qps[0], 4, Operation::FetchAdd { remote: there, add: 1 }, 0, 8);
    pair.ends[0].device.post_send(qps[0], &inline).unwrap();
    let cq = pair.ends[0].cq;
    pair.ends[0].device.req_notify_cq(cq, Notify::Any).unwrap();
    for turn in 0..20 {
        let now = Instant::from_nanos((nth * 20 + turn) * 100_000);
        for from in 0..2 {
            pair.ends[from].device.handle_timeout(now);
            let mut sent = 0;
            while let Some(transmit) = pair.ends[from].device.poll_transmit(now, 16, buffer) {
                let transmit = match transmit {
                    Transmit::Datagrams(transmit) => transmit,
                    Transmit::Stream(StreamBytes { len, .. }) => {
                        let device = &mut pair.ends[1 - from].device;
                        assert_eq!(device.receive_stream(qps[1 - from], &buffer[..len], now), Ok(len));
                        continue;
                    }
                    Transmit::End(ending) => panic!("{ending:?}"),
                };
                for bytes in transmit.datagrams(buffer) {
                    sent += 1;
                    // Loses some now and then: retransmissions must not allocate either.
                    if nth.is_multiple_of(3) && turn < 10 && sent % 5 == 4 {
                        continue;
                    }
                    let flow = Pair::flow_to(from, transmit.route.flow.dst_port);
                    let traffic_class = TrafficClass(0);
                    pair.ends[1 - from].device.receive(&Datagram { flow, traffic_class, bytes }, now);
                }
            }
        }
    }
    for end in &mut pair.ends {
        while let Some(wc) = end.device.poll_cq(end.cq) {
            assert_eq!(wc.status, Status::Success);
        }
        while end.device.poll_event().is_some() {}
    }
}

/// The role of end 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Roce,
    StarClient,
    StarServer,
    Iwarp,
}

/// With markers, for which FPDUs are copied.
const TERMS: [Terms; 2] = {
    let initiator = Terms {
        role: Role::Initiator,
        crc: Crc::Used,
        markers_out: true,
        markers_in: true,
        ird: 4,
        ord: 4,
        rtr: None,
        extended: true,
        max_ulpdu: Terms::LONGEST_ULPDU,
    };
    [initiator, Terms { role: Role::Responder, ..initiator }]
};

#[test]
fn the_data_path_does_not_allocate() {
    for transport in [Transport::Roce, Transport::StarClient, Transport::StarServer, Transport::Iwarp] {
        let mut pair = Pair::new();
        let link = Link { timeout: 6, ..Link::default() };
        let qps = match transport {
            Transport::Roce => pair.connect(QpType::Rc, &link),
            Transport::StarClient => pair.connect_star(1, &link),
            Transport::StarServer => pair.connect_star(0, &link),
            Transport::Iwarp => pair.connect_iwarp(&link, TERMS),
        };
        let mut buffer = vec![0; 65_507];
        (0..200).for_each(|nth| round(&mut pair, qps, &mut buffer, nth));
        let allocated = measure(|| (200..400).for_each(|nth| round(&mut pair, qps, &mut buffer, nth)));
        assert_eq!(allocated.count_total, 0, "{allocated:?}");
        let retransmitted: u64 = pair.ends.iter().map(|end| end.device.counters().retransmitted).sum();
        assert!(retransmitted > 100 || transport == Transport::Iwarp);
    }
}
