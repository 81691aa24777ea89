//! Two adapters on the loopback interface.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::IoSlice;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::{
    Adapter, AdapterConfig, Connection, Driver, Faults, LocalPath, OpenError, Place, Reception, Transport,
};
use nichrome_port::capture::Reader;
use nichrome_port::{Device as _, Offloads, Tap};
use nichrome_rdma::{
    Access, AddressVector, ByteMemory, CompletedOperation, Operation, PathMtu, Payload, Psn, QKey,
    QpCapacity, QpChange, QpConfig, QpState, QpType, ReceiveRequest, Recipient, RegionConfig, SendRequest,
    Sge, Signaling, Status,
};
use nichrome_wan::Impairments;
use nichrome_wire::VirtioNetHeader;
use nichrome_wire::rdma::ROCE_PORT;

#[path = "common/end.rs"]
mod end;
#[path = "../../../tests/installed.rs"]
mod installed;
#[path = "common/messages.rs"]
mod messages;
#[path = "adapters/stateless.rs"]
mod stateless;
use end::{End, LEN, PATIENCE, connect_with};
use installed::tshark;
use messages::success;

fn connected(config: &AdapterConfig) -> [End; 2] {
    let ends = [End::open(config), End::open(config)];
    connect(&ends);
    ends
}

fn connect(ends: &[End; 2]) {
    connect_with(ends, &Connection::new(PathMtu::B4096));
}

fn does_everything(ends: &[End; 2], sizes: &[usize]) {
    moves_messages(ends, sizes);
    let [a, b] = ends;
    b.region.with(|bytes| bytes[..8].copy_from_slice(&5u64.to_ne_bytes()));
    a.send(5, Operation::FetchAdd { remote: b.region.remote().at(0), add: 7 }, 8, 8);
    a.waits_for(5, CompletedOperation::FetchAdd);
    assert_eq!((a.bytes(8, 8), b.bytes(0, 8)), (5u64.to_ne_bytes().to_vec(), 12u64.to_ne_bytes().to_vec()));
}

fn moves_messages([a, b]: &[End; 2], sizes: &[usize]) {
    for &len in sizes {
        a.fill(1);
        b.fill(2);
        b.receive(1, 0, len);
        a.send(2, Operation::Send, 0, len);
        a.waits_for(2, CompletedOperation::Send);
        b.waits_for(1, CompletedOperation::Receive);
        assert!(a.bytes(0, len) == b.bytes(0, len), "SEND of {len}");
        a.fill(3);
        a.send(3, Operation::Write(b.region.remote().at(0)), 0, len);
        a.waits_for(3, CompletedOperation::Write);
        assert!(a.bytes(0, len) == b.bytes(0, len), "WRITE of {len}");
        b.fill(4);
        a.send(4, Operation::Read(b.region.remote().at(0)), 0, len);
        a.waits_for(4, CompletedOperation::Read);
        assert!(a.bytes(0, len) == b.bytes(0, len), "READ of {len}");
    }
}

/// The target of the WRITE, the READ and the atomic does not poll.
#[test]
fn all_operations_work_over_ipv4_for_programs_that_wait() {
    does_everything(&connected(&AdapterConfig::default()), &[1, 4096, 4097, 65_536, LEN]);
}

#[test]
fn everything_is_done_over_ipv6_and_one_address_can_be_shared() {
    nichrome_port::gain_network_admin().unwrap();
    let over_ipv6 = || {
        let netlink = nichrome_port::Netlink::open().unwrap();
        netlink.set_up(&netlink.interface("lo".parse().unwrap()).unwrap()).unwrap();
        let place = Place::Address("::1".parse().unwrap());
        let ends = connected(&AdapterConfig { place, ..AdapterConfig::default() });
        assert_eq!(ends[0].adapter.address(), ends[1].adapter.address());
        does_everything(&ends, &[1, 65_536]);
    };
    nichrome_port::NetworkNamespace::new().unwrap().run(over_ipv6).unwrap();
}

/// If programs answer each other, each ACK leaves after the answer, in one train with it.
#[test]
fn a_request_completes_before_the_peers_answer_to_it_arrives() {
    const ROUNDS: u64 = 500;
    let [asks, answers] = &connected(&AdapterConfig::default());
    for end in [asks, answers] {
        end.receive(0, 0, 8);
    }
    let says = |end: &End, round| {
        end.send(round, Operation::Send, 8, 8);
        end.waits_for(round, CompletedOperation::Send);
    };
    let hears = |end: &End, round| {
        end.waits_for(round, CompletedOperation::Receive);
        end.receive(round + 1, 0, 8);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                hears(answers, round);
                says(answers, round);
            }
        });
        for round in 0..ROUNDS {
            says(asks, round);
            hears(asks, round);
        }
    });
}

/// Segments of one send have consecutive identifications, so the ICRC is checked exactly. Older kernels would
/// drop such sends.
#[test]
fn everything_is_done_where_packets_are_received_from_the_interface() {
    nichrome_port::gain_network_admin().unwrap();
    let from_the_interface = || {
        let netlink = nichrome_port::Netlink::open().unwrap();
        netlink.set_up(&netlink.interface("lo".parse().unwrap()).unwrap()).unwrap();
        let config = AdapterConfig { reception: Reception::Packets, ..AdapterConfig::default() };
        if let Err(refused) = Adapter::open(&config) {
            assert!(refused.to_string().contains("since Linux 6.2 it does not"), "{refused}");
            return;
        }
        let ends = connected(&config);
        does_everything(&ends, &[1, 65_536, LEN]);
        assert!(ends.iter().all(|end| end.adapter.counters().dropped_icrc == 0));
        let place = Place::Address("::1".parse().unwrap());
        let refused = Adapter::open(&AdapterConfig { place, ..config }).err().unwrap();
        assert!(refused.to_string().contains("only IPv4 has an identification"), "{refused}");
    };
    nichrome_port::NetworkNamespace::new().unwrap().run(from_the_interface).unwrap();
}

/// Every kernel drops a datagram that a driver of a virtual machine leaves to the card for fragmentation: no
/// virtio_net_hdr of AF_PACKET describes it.
#[test]
fn packets_that_the_kernel_cannot_describe_are_counted() {
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    nichrome_port::gain_network_admin().unwrap();
    let counted = || {
        let tap = Tap::new("tap0".parse().unwrap(), Offloads::All).unwrap();
        let netlink = nichrome_port::Netlink::open().unwrap();
        let interface = netlink.interface("tap0".parse().unwrap()).unwrap();
        netlink.set_up(&interface).unwrap();
        netlink.add_address(&interface, OURS.into(), 24).unwrap();
        let place = Place::Address(OURS.into());
        let config = AdapterConfig { place, reception: Reception::Packets, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let virtio = VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: VirtioNetHeader::GSO_UDP,
            hdr_len: 42,
            gso_size: 1472,
            csum_start: 34,
            csum_offset: 6,
        };
        let ip = [0x45, 0, 0x0F, 0xBC, 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2];
        let [high, low] = ROCE_PORT.to_be_bytes();
        let udp = [high, low, high, low, 0x0F, 0xA8, 0, 0];
        let ethernet = [&interface.mac.unwrap().0[..], &[2, 0, 0, 0, 0, 2, 8, 0]].concat();
        let frame = [&ethernet[..], &ip, &OURS.octets(), &udp, &[7; 4000]].concat();
        tap.send(&[IoSlice::new(&virtio.to_bytes()), IoSlice::new(&frame)]).unwrap();
        let until = Instant::now() + PATIENCE;
        while adapter.wire_counters().dropped_offloads == 0 {
            assert!(Instant::now() < until, "{:?}", adapter.wire_counters());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(adapter.wire_counters().dropped_offloads, 1);
    };
    nichrome_port::NetworkNamespace::new().unwrap().run(counted).unwrap();
}

/// A path with loss, corruption, duplication and delay.
fn rough() -> Faults {
    let impairments = Impairments {
        loss: Some("3%".parse().unwrap()),
        corrupt: "2%".parse().unwrap(),
        duplicate: "2%".parse().unwrap(),
        delay: "200us".parse().unwrap(),
        ..Impairments::default()
    };
    Faults { impairments, seed: 4 }
}

/// What an attacker would have to guess: a key, a queue pair number and a first packet number of each of some
/// objects.
fn secrets(seed: Option<u64>) -> Vec<[u32; 3]> {
    let adapter = Adapter::open(&AdapterConfig { seed, ..AdapterConfig::default() }).unwrap();
    let cq = adapter.completion_queue(16).unwrap();
    let capacity = QpCapacity { send_wrs: 1, send_sges: 1, ..QpCapacity::default() };
    let objects: Vec<_> = (0..8)
        .map(|_| {
            (
                adapter.region(64, Access::REMOTE_WRITE).unwrap(),
                adapter.queue_pair(capacity, &cq, &cq).unwrap(),
            )
        })
        .collect();
    let secrets = objects.iter().map(|(region, qp)| {
        let endpoint = qp.endpoint();
        [region.remote().at(0).rkey.0, endpoint.qp.value(), endpoint.psn.value()]
    });
    secrets.collect()
}

#[test]
fn keys_and_numbers_repeat_with_a_seed_and_come_from_the_kernel_without() {
    assert_eq!(secrets(Some(7)), secrets(Some(7)));
    assert_ne!(secrets(Some(7)), secrets(Some(8)));
    let [one, other] = [secrets(None), secrets(None)];
    for kind in 0..3 {
        // A queue pair or packet number in common has a chance of some 10⁻⁵, a key one of 10⁻⁸.
        let shared = one.iter().filter(|secret| other.iter().any(|other| other[kind] == secret[kind]));
        assert_eq!(shared.count(), 0, "{one:x?} {other:x?}");
    }
    assert!(one.windows(2).all(|pair| pair[0][2].abs_diff(pair[1][2]) != 1), "{one:x?}");
}

#[test]
fn nothing_is_lost_through_faults() {
    let faults = Some(rough());
    let ends = connected(&AdapterConfig { faults, ..AdapterConfig::default() });
    does_everything(&ends, &[1, 65_536, LEN]);
    let lost: u64 = ends.iter().map(|end| end.adapter.wire_counters().lost).sum();
    let icrc: u64 = ends.iter().map(|end| end.adapter.counters().dropped_icrc).sum();
    assert!(lost > 0 && icrc > 0, "{lost} lost, {icrc} with a wrong ICRC");
}

#[test]
fn everything_works_through_memory() {
    let own = || AdapterConfig { local: LocalPath::Memory, ..AdapterConfig::default() };
    let ip = Ipv4Addr::new(127, 98, process::id() as u8, 1).into();
    // Two slots of one address, and two addresses.
    for place in [Place::Address(ip), Place::Loopback] {
        let ends = connected(&AdapterConfig { place, ..own() });
        does_everything(&ends, &[1, 1000, 65_536, LEN]);
        for end in &ends {
            let wire = end.adapter.wire_counters();
            assert!(wire.sent > 0 && wire.sent_through_memory == wire.sent, "{wire:?}");
        }
    }
}

#[test]
fn a_peer_that_has_not_chosen_memory_is_reached_through_sockets() {
    let memory = AdapterConfig { local: LocalPath::Memory, ..AdapterConfig::default() };
    let ends = [End::open(&memory), End::open(&AdapterConfig::default())];
    connect(&ends);
    does_everything(&ends, &[1, 65_536]);
    assert_eq!(ends[0].adapter.wire_counters().sent_through_memory, 0);
}

#[test]
fn what_cannot_go_through_memory_is_refused() {
    let memory = || AdapterConfig { local: LocalPath::Memory, ..AdapterConfig::default() };
    let refused = [
        AdapterConfig { transport: Transport::Star, ..memory() },
        AdapterConfig { transport: Transport::Iwarp, ..memory() },
        AdapterConfig { reception: Reception::Packets, ..memory() },
        AdapterConfig { faults: Some(rough()), ..memory() },
    ];
    for config in refused {
        assert!(matches!(Adapter::open(&config), Err(OpenError::NotThroughMemory(_))));
    }
}

#[test]
fn polling_is_as_good_as_waiting() {
    let [a, b] = &connected(&AdapterConfig::default());
    for round in 0..200u64 {
        b.receive(round, 0, 64);
        a.send(round, Operation::Send, 0, 64);
        let poll = |end: &End| {
            let start = Instant::now();
            loop {
                let found = end.cq.poll();
                if found.is_some() || start.elapsed() > PATIENCE {
                    return found;
                }
            }
        };
        success(poll(b), round, CompletedOperation::Receive);
        success(poll(a), round, CompletedOperation::Send);
    }
}

/// The program must see what arrives while the poll yields its processor before the event that it takes next.
#[test]
fn a_poll_that_has_yielded_looks_again() {
    let [end, _] = &connected(&AdapterConfig::default());
    let looks_twice = || {
        let mut looks = 0;
        end.region.poll(|_| {
            looks += 1;
            looks == 2
        })
    };
    let start = Instant::now();
    while !looks_twice() {
        assert!(start.elapsed() < PATIENCE, "no poll looked twice");
    }
}

#[test]
fn a_wait_ends_in_time_and_by_a_completion_of_another_thread() {
    let [a, b] = &connected(&AdapterConfig::default());
    let start = Instant::now();
    assert!(b.cq.wait(Duration::from_millis(20)).is_none());
    assert!(start.elapsed() >= Duration::from_millis(20));
    b.receive(1, 0, 64);
    thread::scope(|scope| {
        scope.spawn(|| b.waits_for(1, CompletedOperation::Receive));
        a.send(2, Operation::Send, 0, 64);
        a.waits_for(2, CompletedOperation::Send);
    });
}

#[test]
fn a_peer_that_has_gone_ends_in_an_error() {
    let [a, b] = connected(&AdapterConfig::default());
    drop(b);
    a.send(1, Operation::Send, 0, 64);
    let completion = a.cq.wait(PATIENCE).unwrap();
    assert_eq!((completion.wr_id, completion.status), (1, Status::RetryExceeded));
}

/// Voluntary context switches of the adapters' threads.
fn wake_ups() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let ours = tasks
        .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "nichrome-hca"));
    let switches = ours.filter_map(|task| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    });
    switches.sum()
}

#[test]
fn an_adapter_that_nobody_uses_sleeps() {
    // In a process of its own: other tests have such threads too.
    if std::env::var_os("NICHROME_ALONE").is_none() {
        let this = std::env::current_exe().unwrap();
        let test = ["--exact", "an_adapter_that_nobody_uses_sleeps"];
        assert!(Command::new(this).args(test).env("NICHROME_ALONE", "1").status().unwrap().success());
        return;
    }
    let ends = connected(&AdapterConfig::default());
    does_everything(&ends, &[4096]);
    // The last ACK is delayed, and timers run once more: the adapter then has to stay asleep for a whole
    // interval.
    let until = Instant::now() + PATIENCE;
    let mut before = 0;
    while wake_ups() != before {
        assert!(Instant::now() < until, "the adapter is woken again and again");
        before = wake_ups();
        thread::sleep(Duration::from_millis(300));
    }
    assert!(before > 0);
}

/// A bottleneck marks instead of dropping: the receiver sends CNPs, the sender slows down, nothing is lost.
#[test]
fn a_congested_path_marks_and_the_receiver_sends_cnps() {
    let impairments = Impairments {
        rate: Some("400mbit".parse().unwrap()),
        queue: "1000p".parse().unwrap(),
        ecn: "mark:20p".parse().unwrap(),
        ..Impairments::default()
    };
    let faults = Some(Faults { impairments, seed: 1 });
    for ecn in [true, false] {
        let config = AdapterConfig { faults: faults.clone(), ..AdapterConfig::default() };
        let ends = [End::open(&config), End::open(&AdapterConfig::default())];
        let there = ends[1].region.remote().at(0);
        connect_with(&ends, &Connection { ecn, ..Connection::new(PathMtu::B4096) });
        for wr_id in 0..4 {
            ends[0].send(wr_id, Operation::Write(there), 0, LEN);
        }
        for wr_id in 0..4 {
            ends[0].waits_for(wr_id, CompletedOperation::Write);
        }
        let (sender, receiver) = (ends[0].adapter.counters(), ends[1].adapter.counters());
        assert_eq!(receiver.congestion_marks > 0, ecn);
        assert_eq!(sender.congestion_notifications_received > 0, ecn);
        assert_eq!(ends[0].adapter.wire_counters().lost, 0);
    }
}

#[test]
fn tshark_finds_nothing_malformed_in_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcapng");
    let impairments = Impairments { loss: Some("2%".parse().unwrap()), ..Impairments::default() };
    let faults = Some(Faults { impairments, seed: 1 });
    let capture = Some(path.clone());
    let ends = [
        End::open(&AdapterConfig { faults, capture, ..AdapterConfig::default() }),
        End::open(&AdapterConfig::default()),
    ];
    connect(&ends);
    does_everything(&ends, &[1, 1000, 65_536]);
    let wire = ends[0].adapter.wire_counters();
    drop(ends);
    let path = path.to_str().unwrap();
    // The payload of SENDs is not a remote procedure call.
    let packets = |filter| tshark(&["-r", path, "--disable-protocol", "rpcordma", "-Y", filter]);
    let all = packets("infiniband.bth");
    assert_eq!(all.len() as u64, wire.sent + wire.received, "{wire:?}");
    assert_eq!(packets("_ws.malformed || !infiniband.bth"), [""; 0]);
}

#[test]
fn adapters_of_one_process_write_their_captures_behind_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcapng");
    let config = AdapterConfig { capture: Some(path.clone()), ..AdapterConfig::default() };
    let mut packets = 0;
    for _ in 0..2 {
        let ends = [End::open(&config), End::open(&AdapterConfig::default())];
        connect(&ends);
        moves_messages(&ends, &[1]);
        let wire = ends[0].adapter.wire_counters();
        packets += wire.sent + wire.received;
        drop(ends);
        let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
        let (mut packet, mut found) = (Vec::new(), 0);
        while reader.next(&mut packet).unwrap().is_some() {
            found += 1;
        }
        // Closing retransmits the last ACK.
        assert!(found >= packets, "{found} of {packets}");
        packets = found;
    }
}

#[test]
fn an_adapter_that_does_not_open_leaves_the_file_of_its_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcapng");
    fs::write(&path, "an earlier capture").unwrap();
    let address = Ipv4Addr::new(127, 0, 6, 3);
    let config = AdapterConfig {
        capture: Some(path.clone()),
        place: Place::Address(address.into()),
        ..AdapterConfig::default()
    };
    let packets =
        AdapterConfig { transport: Transport::Star, reception: Reception::Packets, ..config.clone() };
    // The port of iWARP's set-up.
    let _taken = TcpListener::bind((address, 4832)).unwrap();
    for config in [packets, AdapterConfig { transport: Transport::Iwarp, ..config }] {
        assert!(Adapter::open(&config).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "an earlier capture");
    }
}

/// The kernel steers a UDP_SEGMENT message by its first datagram, and the sender selects a memory link by it.
#[test]
fn datagrams_for_several_processes_at_one_address_reach_each_of_them() {
    const KEY: QKey = QKey(0x1111_1111);
    for (local, octet) in [(LocalPath::Sockets, 3), (LocalPath::Memory, 5)] {
        let open = |last| {
            let place = Place::Address(Ipv4Addr::new(127, 0, octet, last).into());
            let config = AdapterConfig { local, place, ..AdapterConfig::default() };
            Driver::open(&config, ByteMemory::new(4096, 4096), Box::new(|_| ())).unwrap()
        };
        let queue_pair = |driver: &Driver<ByteMemory>| {
            driver.call(|device| {
                let domain = device.create_domain().unwrap();
                let cq = device.create_cq(16).unwrap();
                let capacity =
                    QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 32 };
                let (kind, signaling) = (QpType::Ud, Signaling::All);
                let config =
                    QpConfig { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacity, signaling };
                let qp = device.create_qp(config).unwrap();
                let init = QpChange {
                    pkey_index: Some(0),
                    port: Some(1),
                    qkey: Some(KEY),
                    ..QpChange::to(QpState::Init)
                };
                let rts = QpChange { sq_psn: Some(Psn::default()), ..QpChange::to(QpState::Rts) };
                for change in [init, QpChange::to(QpState::Rtr), rts] {
                    device.modify_qp(qp, &change).unwrap();
                }
                let region = RegionConfig::new(4096, 4096, Access::LOCAL_WRITE);
                let region = device.register(domain, region).unwrap();
                let lkey = device.query_region(region).unwrap().lkey;
                let buffers = [Sge { address: 4096, len: 100, lkey }];
                device.post_receive(qp, &ReceiveRequest { wr_id: 0, buffers: &buffers }).unwrap();
                (domain, cq, qp, device.qp_number(qp).unwrap())
            })
        };
        let sender = open(1);
        let receivers = [(); 4].map(|()| open(2));
        let (domain, _, qp, _) = queue_pair(&sender);
        let ends = receivers.each_ref().map(queue_pair);
        sender.call(|device| {
            let vector = AddressVector::to(Ipv4Addr::new(127, 0, octet, 2).into());
            let address = device.create_address(domain, vector).unwrap();
            for (.., number) in ends {
                let recipient = Some(Recipient { address, qp: number, qkey: KEY });
                let payload = Payload::Inline(&[1; 32]);
                let request = SendRequest { recipient, payload, ..SendRequest::new(0, Operation::Send, &[]) };
                device.post_send(qp, &request).unwrap();
            }
        });
        let until = Instant::now() + PATIENCE;
        for (receiver, (_, cq, ..)) in receivers.iter().zip(ends) {
            while receiver.call(|device| device.poll_cq(cq)).is_none() {
                assert!(Instant::now() < until, "{local:?}: no datagram");
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(receiver.call(|device| device.counters().dropped_unknown), 0);
        }
    }
}
