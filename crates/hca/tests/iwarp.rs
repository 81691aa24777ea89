//! Two adapters on iWARP, over the loopback interface.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use nichrome_hca::{
    Adapter, AdapterConfig, Connection, EstablishError, Faults, IwarpOptions, Listener, Place, Reception,
    Transport,
};
use nichrome_port::{Netlink, NetworkNamespace};
use nichrome_rdma::iwarp::setup::{Initiator, Options, SetupError};
use nichrome_rdma::{
    Access, CompletedOperation, Operation, PathMtu, QpCapacity, QpState, RKey, ReceiveRequest, Remote,
    SendRequest, Status,
};
use nichrome_wan::Impairments;
use nichrome_wire::iwarp::{self as wire, Crc, Fpdu, Opcode, ReadRequest, STag, Segment, fpdu_len};
use nichrome_wire::{Instant as Time, MacAddr};

#[path = "common/end.rs"]
mod end;
#[path = "../../../tests/installed.rs"]
mod installed;
#[path = "common/messages.rs"]
mod messages;
use end::{End, LEN, PATIENCE, connect_with};
use installed::tshark;

const SIZES: [usize; 8] = [1, 2, 3, 1000, 4096, 65_513, 65_536, LEN];

fn config() -> AdapterConfig {
    let iwarp = IwarpOptions { report: |why| eprintln!("{why}"), ..IwarpOptions::default() };
    AdapterConfig { transport: Transport::Iwarp, iwarp, ..AdapterConfig::default() }
}

fn connected(config: &AdapterConfig) -> [End; 2] {
    let ends = [End::open(config), End::open(config)];
    connect(&ends);
    ends
}

fn connect(ends: &[End; 2]) {
    connect_with(ends, &Connection::new(PathMtu::B4096));
}

/// A WRITE completes when TCP has its bytes: the target learns by the SEND behind it that they are in its
/// memory.
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
        b.receive(4, 0, 0);
        a.send(3, Operation::Write(b.region.remote().at(0)), 0, len);
        a.send(4, Operation::Send, 0, 0);
        a.waits_for(3, CompletedOperation::Write);
        a.waits_for(4, CompletedOperation::Send);
        b.waits_for(4, CompletedOperation::Receive);
        assert!(a.bytes(0, len) == b.bytes(0, len), "WRITE of {len}");
        b.fill(5);
        a.send(5, Operation::Read(b.region.remote().at(0)), 0, len);
        a.waits_for(5, CompletedOperation::Read);
        assert!(a.bytes(0, len) == b.bytes(0, len), "READ of {len}");
    }
}

fn moves_messages_both_ways(ends: [End; 2], sizes: &[usize]) {
    moves_messages(&ends, sizes);
    let [a, b] = ends;
    moves_messages(&[b, a], sizes);
}

#[test]
fn messages_of_every_size_arrive_with_and_without_crc() {
    for crc in [false, true] {
        let config = config();
        let iwarp = IwarpOptions { crc, ..config.iwarp };
        moves_messages_both_ways(connected(&AdapterConfig { iwarp, ..config }), &SIZES);
    }
}

/// A connection to itself is refused by the thread of the set-up, which may run between any two steps of the
/// verb.
#[test]
fn a_queue_pair_is_connected_whose_set_up_fails_at_once() {
    let adapter = Adapter::open(&AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() });
    let adapter = adapter.unwrap();
    let cq = adapter.completion_queue(1).unwrap();
    let capacity = QpCapacity { send_wrs: 1, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: 0 };
    thread::scope(|scope| {
        // The thread does not sleep while several queue pairs are being connected.
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
                    qp.connect(&qp.endpoint(), &Connection::new(PathMtu::B1024)).unwrap();
                }
            });
        }
    });
}

#[test]
fn an_adapter_that_closes_sends_what_has_completed_to_a_peer_that_is_slow() {
    const MESSAGE: usize = 4096;
    let [a, b] = connected(&config());
    (0..128).for_each(|nth| a.send(nth, Operation::Send, 0, MESSAGE));
    let mut completed = 0;
    // The peer has no receive, so TCP accepts no more at some point.
    while a.cq.wait(Duration::from_millis(300)).is_some() {
        a.send(completed, Operation::Send, 0, MESSAGE);
        completed += 1;
    }
    thread::scope(|scope| {
        scope.spawn(move || drop(a));
        thread::sleep(Duration::from_millis(1500));
        for nth in 0..completed {
            b.receive(nth, 0, MESSAGE);
            b.waits_for(nth, CompletedOperation::Receive);
        }
    });
}

#[test]
fn queue_pairs_of_this_crate_have_atomics_and_immediate_data() {
    let [a, b] = connected(&config());
    b.region.with(|bytes| bytes[..8].copy_from_slice(&5u64.to_ne_bytes()));
    a.send(5, Operation::FetchAdd { remote: b.region.remote().at(0), add: 7 }, 8, 8);
    a.waits_for(5, CompletedOperation::FetchAdd);
    assert_eq!((a.bytes(8, 8), b.bytes(0, 8)), (5u64.to_ne_bytes().to_vec(), 12u64.to_ne_bytes().to_vec()));
}

#[test]
fn several_adapters_share_an_address_of_ipv6() {
    nichrome_port::gain_network_admin().unwrap();
    let over_ipv6 = || {
        let netlink = Netlink::open().unwrap();
        netlink.set_up(&netlink.interface("lo".parse().unwrap()).unwrap()).unwrap();
        let place = Place::Address("::1".parse().unwrap());
        let ends = connected(&AdapterConfig { place, ..config() });
        assert_eq!(ends[0].adapter.address(), ends[1].adapter.address());
        moves_messages_both_ways(ends, &[1, 65_536]);
    };
    NetworkNamespace::new().unwrap().run(over_ipv6).unwrap();
}

/// The kernel's `rdma_rxe` has RoCE's port at all addresses.
#[test]
fn iwarp_does_not_need_the_port_of_roce() {
    nichrome_port::gain_network_admin().unwrap();
    let beside_rxe = || {
        let netlink = Netlink::open().unwrap();
        netlink.set_up(&netlink.interface("lo".parse().unwrap()).unwrap()).unwrap();
        let _rxe = UdpSocket::bind("0.0.0.0:4791").unwrap();
        for place in [Place::Loopback, Place::Address("127.0.0.1".parse().unwrap())] {
            assert!(Adapter::open(&AdapterConfig { place, ..AdapterConfig::default() }).is_err());
            moves_messages(&connected(&AdapterConfig { place, ..config() }), &[1000]);
        }
    };
    NetworkNamespace::new().unwrap().run(beside_rxe).unwrap();
}

/// A peer's machine that may be silent for the shortest time.
/// A configuration with the shortest `silence`.
fn impatient() -> AdapterConfig {
    let config = config();
    AdapterConfig { iwarp: IwarpOptions { silence: Duration::from_secs(2), ..config.iwarp }, ..config }
}

const HERE: &str = "192.0.2.1";
const THERE: &str = "192.0.2.2";

/// A connection to a peer on another machine, which answers nothing by itself.
struct Distant {
    end: End,
    peer: TcpStream,
    near: NetworkNamespace,
    _far: NetworkNamespace,
}

impl Distant {
    fn connected() -> Self {
        nichrome_port::gain_network_admin().unwrap();
        let [here, there] = [HERE, THERE].map(|address| address.parse().unwrap());
        let [near, far] = [(); 2].map(|()| NetworkNamespace::new().unwrap());
        let up = |name: &str, address: IpAddr| {
            let netlink = Netlink::open().unwrap();
            let interface = netlink.interface(name.parse().unwrap()).unwrap();
            netlink.set_up(&interface).unwrap();
            netlink.add_address(&interface, address, 24).unwrap();
        };
        near.run(|| {
            let names = ["wire0", "wire1"].map(|name| name.parse().unwrap());
            Netlink::open().unwrap().add_veth(names[0], names[1], &far).unwrap();
            up("wire0", here);
        })
        .unwrap();
        far.run(|| up("wire1", there)).unwrap();
        let config = AdapterConfig { place: Place::Address(here), ..impatient() };
        let end = near.run(|| End::open(&config)).unwrap();
        let listener = near.run(|| Listener::bind((here, 0).into()).unwrap()).unwrap();
        let address = listener.address().unwrap();
        let peer = thread::scope(|scope| {
            scope.spawn(|| {
                let incoming = listener.accept().unwrap();
                end.qp.accept(incoming, b"", &Connection::new(PathMtu::B4096)).unwrap();
            });
            let mut peer = far.run(|| TcpStream::connect(address).unwrap()).unwrap();
            peer.write_all(&Initiator::new(Options::default(), b"", Time::ZERO).take_output()).unwrap();
            peer.read_exact(&mut [0; 24]).unwrap();
            peer
        });
        Self { end, peer, near, _far: far }
    }

    fn read(&self) {
        self.end.send(1, Operation::Read(Remote { address: 0, rkey: RKey(1) }), 0, 8);
    }

    /// Keeps the peer's machine from receiving: addresses the frames to another Ethernet address.
    fn lose(&self) {
        let misdirect = || {
            let netlink = Netlink::open().unwrap();
            let interface = netlink.interface("wire0".parse().unwrap()).unwrap();
            netlink.add_neighbour(&interface, THERE.parse().unwrap(), MacAddr([2; 6])).unwrap();
        };
        self.near.run(misdirect).unwrap();
    }

    fn fails(&self) {
        let status = self.end.cq.wait(PATIENCE).map(|done| (done.wr_id, done.status));
        assert_eq!((status, self.end.qp.state()), (Some((1, Status::Flushed)), QpState::Err));
    }
}

#[test]
fn a_read_fails_whose_targets_machine_is_lost() {
    let mut distant = Distant::connected();
    distant.read();
    distant.peer.read_exact(&mut [0; 24]).unwrap();
    // The peer's kernel answers TCP's probes for longer than `silence`.
    assert_eq!(distant.end.cq.wait(Duration::from_secs(4)), None);
    distant.lose();
    distant.fails();
}

#[test]
fn a_read_fails_that_a_lost_machine_does_not_receive() {
    let distant = Distant::connected();
    distant.lose();
    distant.read();
    distant.fails();
}

/// Answers READs of 8 bytes, whose segments have the numbers from 1 on.
fn answer_reads(mut peer: TcpStream) {
    let mut request = [0; fpdu_len(Segment::UNTAGGED_LEN + ReadRequest::LEN)];
    for number in 1.. {
        if peer.read_exact(&mut request).is_err() {
            return;
        }
        let response = Segment {
            is_last: true,
            opcode: Opcode::ReadResponse,
            destination: wire::SegmentDestination::Tagged { stag: STag(number), offset: 0 },
        };
        let len = response.header_len() + 8;
        let mut fpdu = vec![0; fpdu_len(len)];
        response.write(Fpdu::ulpdu_mut(&mut fpdu, len).unwrap()).unwrap();
        Fpdu::finish(&mut fpdu, len, Crc::Unused);
        if peer.write_all(&fpdu).is_err() {
            return;
        }
    }
}

/// TCP's times of the last segment and of the last ACK are equal here, mostly: its clock ticks every few
/// milliseconds.
#[test]
fn a_read_fails_that_a_busy_connections_own_interface_does_not_send() {
    let set_down = || {
        thread::sleep(Duration::from_millis(100));
        let netlink = Netlink::open().unwrap();
        netlink.set_down(&netlink.interface("wire0".parse().unwrap()).unwrap()).unwrap();
    };
    let fails = || {
        let distant = Distant::connected();
        thread::scope(|scope| {
            let peer = distant.peer.try_clone().unwrap();
            scope.spawn(|| answer_reads(peer));
            scope.spawn(|| distant.near.run(set_down).unwrap());
            let failed = loop {
                distant.read();
                match distant.end.cq.wait(PATIENCE).map(|done| done.status) {
                    Some(Status::Success) => {}
                    failed => break failed,
                }
            };
            distant.peer.shutdown(Shutdown::Both).unwrap();
            assert_eq!((failed, distant.end.qp.state()), (Some(Status::Flushed), QpState::Err));
        });
    };
    thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(fails)));
}

const MESSAGE: usize = 4096;

/// Sends messages until TCP accepts no more; returns how many it has accepted.
fn fill_window(end: &End) -> u64 {
    (0..128).for_each(|nth| end.send(nth, Operation::Send, 0, MESSAGE));
    let mut completed = 0;
    while end.cq.wait(Duration::from_millis(300)).is_some() {
        end.send(completed, Operation::Send, 0, MESSAGE);
        completed += 1;
    }
    completed
}

#[test]
fn a_machine_is_noticed_that_is_lost_while_its_window_is_closed() {
    let distant = Distant::connected();
    fill_window(&distant.end);
    distant.lose();
    let status = distant.end.cq.wait(PATIENCE).map(|done| done.status);
    assert_eq!((status, distant.end.qp.state()), (Some(Status::Flushed), QpState::Err));
}

#[test]
fn a_live_peer_without_a_receive_is_waited_for() {
    let [a, b] = connected(&impatient());
    let mut completed = fill_window(&a);
    // The peer's window is closed for longer than `silence`, until TCP's probes of the window are further
    // apart. The peer's thread may have taken more bytes only now.
    while let Some(done) = a.cq.wait(Duration::from_secs(8)) {
        assert_eq!(done.status, Status::Success);
        completed += 1;
    }
    for nth in 0..completed {
        b.receive(nth, 0, MESSAGE);
        b.waits_for(nth, CompletedOperation::Receive);
    }
}

#[test]
fn work_posted_before_the_connection_exists_is_done_once_it_does() {
    let ends = [End::open(&config()), End::open(&config())];
    let endpoints = ends.each_ref().map(|end| end.qp.endpoint());
    let connection = Connection::new(PathMtu::B4096);
    let [a, b] = &ends;
    a.qp.connect(&endpoints[1], &connection).unwrap();
    a.fill(1);
    a.send(1, Operation::Send, 0, 100);
    assert_eq!((a.cq.wait(Duration::from_millis(50)), a.adapter.held_connections()), (None, 1));
    b.qp.connect(&endpoints[0], &connection).unwrap();
    // A message without a receive waits in TCP.
    a.waits_for(1, CompletedOperation::Send);
    assert_eq!(b.cq.wait(Duration::from_millis(50)), None);
    b.receive(2, 0, 100);
    b.waits_for(2, CompletedOperation::Receive);
    assert!(a.bytes(0, 100) == b.bytes(0, 100));
    assert_eq!(ends.each_ref().map(|end| end.adapter.held_connections()), [0, 0]);
}

#[test]
fn a_queue_pair_that_is_destroyed_loses_nothing_that_completed() {
    let [a, b] = connected(&config());
    for nth in 0..100 {
        b.receive(nth, 0, LEN);
    }
    let End { adapter, region, cq, qp } = a;
    for nth in 0..100 {
        qp.post_send(&SendRequest::new(nth, Operation::Send, &[region.slice(0, 100_000)])).unwrap();
    }
    for nth in 0..100 {
        assert_eq!(cq.wait(PATIENCE).map(|done| (done.wr_id, done.status)), Some((nth, Status::Success)));
    }
    drop((qp, cq, region, adapter));
    for nth in 0..100 {
        assert_eq!(b.cq.wait(PATIENCE).map(|done| (done.wr_id, done.status)), Some((nth, Status::Success)));
    }
    b.receive(100, 0, 100);
    assert_eq!(b.cq.wait(PATIENCE).unwrap().status, Status::Flushed, "the peer has gone");
}

#[test]
fn programs_connect_by_address_and_port_with_private_data() {
    let [a, b] = [End::open(&config()), End::open(&config())];
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let connection = Connection::new(PathMtu::B4096);
    thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let rejected = a.qp.connect_to(address, b"first", &connection);
            let Err(EstablishError::Setup(SetupError::Rejected(why))) = rejected else { panic!() };
            assert_eq!(why, b"not you");
            a.qp.connect_to(address, b"second", &connection).unwrap()
        });
        let first = listener.accept().unwrap();
        assert_eq!((first.private_data(), first.peer().ip().is_loopback()), (&b"first"[..], true));
        first.reject(b"not you").unwrap();
        b.qp.prepare().unwrap();
        b.receive(9, 0, 10);
        let second = listener.accept().unwrap();
        assert_eq!(second.private_data(), b"second");
        b.qp.accept(second, b"welcome", &connection).unwrap();
        assert_eq!(connecting.join().unwrap(), b"welcome");
    });
    a.send(9, Operation::Send, 0, 10);
    a.waits_for(9, CompletedOperation::Send);
    b.waits_for(9, CompletedOperation::Receive);
    moves_messages(&[a, b], &SIZES);
}

#[test]
fn a_capture_has_every_message_for_wireshark() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("iwarp.pcapng");
    let iwarp = IwarpOptions { crc: true, ..config().iwarp };
    let ends =
        [End::open(&AdapterConfig { capture: Some(file.clone()), iwarp, ..config() }), End::open(&config())];
    connect(&ends);
    moves_messages(&ends, &[100, 300_000]);
    drop(ends);
    // The kernel may choose a port at which Wireshark expects another protocol.
    let options = [
        "-r",
        file.to_str().unwrap(),
        "--disable-protocol",
        "rpcordma",
        "-o",
        "tcp.try_heuristic_first:TRUE",
        "-T",
        "fields",
    ];
    let fields = [
        "iwarp_rdma.opcode",
        "iwarp_mpa.crc_check",
        "_ws.malformed",
        "tcp.analysis.flags",
        "iwarp_mpa.ulpdulength",
    ];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let rows = tshark(&options.into_iter().chain(fields).collect::<Vec<_>>());
    let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.split('\t').collect()).collect();
    // Two messages of each kind and two empty SENDs; 300,000 bytes take five FPDUs. The initiator repeats its
    // empty WRITE if the other end is slow; a tagged header has 14 bytes.
    let (first, rest): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row[0] == "0x00" && row[4] == "14");
    assert!((1..=5).contains(&first.len()), "{rows:?}");
    let count = |opcode| rest.iter().filter(|row| row[0] == opcode).count();
    let [write, request, response, send] = ["0x00", "0x01", "0x02", "0x03"].map(count);
    assert_eq!([write, request, response, send], [1 + 5, 2, 1 + 5, 2 + 1 + 5], "{rows:?}");
    assert!(rows.iter().all(|row| row[2].is_empty() && row[3].is_empty()), "{rows:?}");
}

#[test]
fn faults_that_do_not_apply_to_streams_are_refused_and_the_others_apply() {
    let faults = |impairments| Some(Faults { impairments, seed: 1 });
    let loss = Impairments { loss: Some("1%".parse().unwrap()), ..Impairments::default() };
    let lossy = AdapterConfig { faults: faults(loss), ..config() };
    assert!(Adapter::open(&lossy).err().unwrap().to_string().contains("nichrome wan"));
    assert!(Adapter::check(&lossy).unwrap_err().to_string().contains("nichrome wan"));
    assert!(Adapter::open(&AdapterConfig { reception: Reception::Packets, ..config() }).is_err());
    let delay = Impairments {
        delay: "5ms".parse().unwrap(),
        rate: Some("1gbit".parse().unwrap()),
        ..Impairments::default()
    };
    let ends = [End::open(&AdapterConfig { faults: faults(delay), ..config() }), End::open(&config())];
    connect(&ends);
    moves_messages_both_ways(ends, &[1, 300_000]);
}

#[test]
fn a_damaged_byte_ends_a_connection_with_crc_by_a_terminate() {
    let impairments = Impairments { corrupt: "100%".parse().unwrap(), ..Impairments::default() };
    let config = AdapterConfig { iwarp: IwarpOptions { crc: true, ..config().iwarp }, ..config() };
    let faulty = AdapterConfig { faults: Some(Faults { impairments, seed: 1 }), ..config.clone() };
    let [a, b] = [End::open(&faulty), End::open(&config)];
    let ends = [a, b];
    connect(&ends);
    let [a, b] = &ends;
    b.receive(1, 0, 50_000);
    a.send(1, Operation::Send, 0, 50_000);
    assert_eq!(b.cq.wait(PATIENCE).unwrap().status, Status::Flushed);
    assert!(b.adapter.counters().terminates_sent > 0);
}

/// `NICHROME_QUEUE_PAIRS` sets another number than 500.
#[test]
fn very_many_queue_pairs_have_streams_of_their_own() {
    let count = std::env::var("NICHROME_QUEUE_PAIRS").map_or(500, |count| count.parse().unwrap());
    let adapters = [Adapter::open(&config()).unwrap(), Adapter::open(&config()).unwrap()];
    let capacity = QpCapacity { send_wrs: 2, receive_wrs: 2, send_sges: 1, receive_sges: 1, inline: 0 };
    let queues = adapters.each_ref().map(|adapter| adapter.completion_queue(2 * count).unwrap());
    let regions = adapters.each_ref().map(|adapter| adapter.region(8 * count, Access::NONE).unwrap());
    let [ours, theirs] = [0, 1].map(|end| {
        let pair = |_| adapters[end].queue_pair(capacity, &queues[end], &queues[end]).unwrap();
        (0..count).map(pair).collect::<Vec<_>>()
    });
    let connection = Connection::new(PathMtu::B4096);
    for (nth, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        a.connect(&b.endpoint(), &connection).unwrap();
        b.connect(&a.endpoint(), &connection).unwrap();
        let buffers = [regions[1].slice(8 * nth, 8)];
        b.post_receive(&ReceiveRequest { wr_id: nth as u64, buffers: &buffers }).unwrap();
    }
    regions[0].with(|bytes| bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 3) as u8));
    for (nth, qp) in ours.iter().enumerate() {
        let buffers = [regions[0].slice(8 * nth, 8)];
        qp.post_send(&SendRequest::new(nth as u64, Operation::Send, &buffers)).unwrap();
    }
    for queue in &queues {
        let mut done: Vec<u64> = (0..count)
            .map(|_| {
                let done = queue.wait(PATIENCE).unwrap();
                assert_eq!(done.status, Status::Success);
                done.wr_id
            })
            .collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..count as u64));
    }
    let [sent, received] = regions.each_ref().map(|region| region.with(|bytes| bytes.to_vec()));
    assert!(sent == received);
}
