mod closing;

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use nichrome_port::clock;
use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::{Config, Device, QpCapacity, QpConfig, QpType, Signaling};
use nichrome_wan::Impairments;

use super::closing::{DRAIN, LINGER};
use super::device::Outgoing;
use super::*;
use crate::arena::Arena;

/// A device whose queue pairs take frames of a length in 4 bytes and a payload, while they have receives.
#[derive(Default)]
struct Frames {
    receives: HashMap<QpHandle, usize>,
    received: HashMap<QpHandle, Vec<Vec<u8>>>,
    outgoing: VecDeque<Outgoing>,
    bytes: VecDeque<Vec<u8>>,
    blocked: HashSet<QpHandle>,
    ended: Vec<(QpHandle, StreamEnd)>,
    starved: HashSet<QpHandle>,
}

impl Frames {
    fn send(&mut self, qp: QpHandle, bytes: Vec<u8>) {
        self.outgoing.push_back(Outgoing::Bytes(qp, bytes.len()));
        self.bytes.push_back(bytes);
    }

    fn post(&mut self, qp: QpHandle, receives: usize) {
        *self.receives.entry(qp).or_default() += receives;
        self.starved.remove(&qp);
    }
}

impl StreamDevice for Frames {
    fn receive(&mut self, qp: QpHandle, bytes: &[u8], _: Instant) -> usize {
        let mut rest = bytes;
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let Some(payload) = after.get(..u32::from_be_bytes(*len) as usize) else { break };
            let receives = self.receives.entry(qp).or_default();
            if *receives == 0 {
                self.starved.insert(qp);
                break;
            }
            *receives -= 1;
            self.received.entry(qp).or_default().push(payload.to_vec());
            rest = &after[payload.len()..];
        }
        bytes.len() - rest.len()
    }

    fn wants(&self, qp: QpHandle) -> bool {
        !self.starved.contains(&qp)
    }

    fn transmit(&mut self, buffer: &mut [u8], _: Instant) -> Option<Outgoing> {
        let is_blocked = |out: &Outgoing| match out {
            Outgoing::Bytes(qp, _) | Outgoing::Finish(qp) => self.blocked.contains(qp),
            Outgoing::Reset(_) => false,
        };
        let at = self.outgoing.iter().position(|out| !is_blocked(out))?;
        let out = self.outgoing.remove(at)?;
        if let Outgoing::Bytes(_, len) = out {
            let bytes = self.bytes.pop_front()?;
            buffer[..len].copy_from_slice(&bytes);
        }
        Some(out)
    }

    fn block(&mut self, qp: QpHandle) {
        self.blocked.insert(qp);
    }

    fn unblock(&mut self, qp: QpHandle) {
        self.blocked.remove(&qp);
    }

    fn closed(&mut self, qp: QpHandle, end: StreamEnd, _: Instant) {
        self.ended.push((qp, end));
    }
}

/// Handles of queue pairs.
fn handles(count: usize) -> Vec<QpHandle> {
    let mut device = Device::new(Config::new(vec![[127, 0, 0, 1].into()]), Arena::default()).unwrap();
    let (domain, cq) = (device.create_domain().unwrap(), device.create_cq(1).unwrap());
    let (capacity, kind) = (QpCapacity::default(), QpType::Rc);
    let signaling = Signaling::Requested;
    let config = QpConfig { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacity, signaling };
    (0..count).map(|_| device.create_qp(config).unwrap()).collect()
}

struct Bench {
    ports: StreamPorts,
    device: Frames,
    listener: TcpListener,
    by_number: bool,
    /// A fixed time; `None` for the clock's.
    now: Option<Instant>,
}

impl Bench {
    fn new(faults: Option<&Faults>) -> Self {
        let ports = StreamPorts::new(Epoll::new().unwrap(), Duration::from_secs(30), faults).unwrap();
        Self {
            ports,
            device: Frames::default(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            by_number: false,
            now: None,
        }
    }

    fn now(&self) -> Instant {
        self.now.unwrap_or_else(clock::now)
    }

    /// Attaches a stream to a queue pair; returns the peer's socket.
    fn attach(&mut self, qp: QpHandle) -> TcpStream {
        self.attach_behind(qp, Vec::new())
    }

    /// Attaches a stream whose set-up has received `rest` already to a queue pair; returns the peer's socket.
    fn attach_behind(&mut self, qp: QpHandle, rest: Vec<u8>) -> TcpStream {
        let peer = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let connected = ConnectedStream { socket, set_up: Vec::new(), rest, by_number: self.by_number };
        let now = self.now();
        self.ports.attach(qp, connected, &mut Capture::default(), now).unwrap();
        peer
    }

    fn progress(&mut self) {
        let now = self.now();
        self.ports.receive(&mut self.device, &mut Capture::default(), now);
        let now = self.now();
        self.ports.transmit(&mut self.device, &mut Capture::default(), now);
    }

    /// Makes progress until a condition holds.
    fn until(&mut self, mut condition: impl FnMut(&Self) -> bool) {
        let deadline = clock::now() + Duration::from_secs(20);
        while !condition(self) {
            assert!(clock::now() < deadline);
            self.progress();
        }
    }

    /// Returns true if a driver that waits for 30 ms would be woken.
    fn wakes(&self) -> bool {
        let until = clock::now() + Duration::from_millis(30);
        clock::wait([self.ports.as_fd()], Some(until)).unwrap() == [true]
    }
}

fn frame(nth: u32, len: usize) -> Vec<u8> {
    let payload = (0..len).map(|at| (nth as usize * 31 + at) as u8);
    (len as u32).to_be_bytes().into_iter().chain(payload).collect()
}

#[test]
fn frames_of_every_length_arrive_on_each_of_several_streams() {
    let mut bench = Bench::new(None);
    let lens = [0, 1, 3, 4, 1000, 65_000, 7, 65_530, 100_000, 65_536, 5];
    let qps = handles(3);
    let writers: Vec<_> = qps
        .iter()
        .map(|qp| {
            bench.device.post(*qp, lens.len());
            let mut peer = bench.attach(*qp);
            thread::spawn(move || {
                for (nth, len) in lens.into_iter().enumerate() {
                    peer.write_all(&frame(nth as u32, len)).unwrap();
                }
                peer
            })
        })
        .collect();
    bench.until(|bench| {
        qps.iter().all(|qp| bench.device.received.get(qp).is_some_and(|all| all.len() == lens.len()))
    });
    for frames in bench.device.received.values() {
        for (nth, payload) in frames.iter().enumerate() {
            assert_eq!(*payload, frame(nth as u32, lens[nth])[4..]);
        }
    }
    assert!(bench.ports.streams.values().all(|stream| stream.held.is_none()), "idle streams hold no buffer");
    writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));
}

#[test]
fn a_stream_that_is_not_consumed_is_not_read_and_wakes_no_thread() {
    for others in [0, 1] {
        let mut bench = Bench::new(None);
        let qps = handles(1 + others);
        let mut peers: Vec<TcpStream> = qps.iter().map(|qp| bench.attach(*qp)).collect();
        peers[0].write_all(&[frame(0, 100), frame(1, 100), frame(2, 100)].concat()).unwrap();
        bench.device.post(qps[0], 1);
        bench.until(|bench| bench.device.received.contains_key(&qps[0]));
        let reads = bench.ports.counters().received;
        peers[0].write_all(&frame(3, 100)).unwrap();
        (0..10).for_each(|_| bench.progress());
        assert_eq!((bench.ports.counters().received, bench.wakes()), (reads, false));
        bench.device.post(qps[0], 3);
        bench.until(|bench| bench.device.received[&qps[0]].len() == 4);
        assert_eq!(bench.device.received[&qps[0]][3], frame(3, 100)[4..]);
    }
}

/// The transport wants no bytes yet, as that of a queue pair in INIT.
#[test]
fn a_stream_that_begins_with_received_bytes_is_not_lost_when_more_arrive_before_they_are_wanted() {
    for others in [0, 1] {
        let mut bench = Bench::new(None);
        let qps = handles(1 + others);
        bench.device.starved.insert(qps[0]);
        let mut peer = bench.attach_behind(qps[0], frame(0, 100));
        let _others: Vec<_> = qps[1..].iter().map(|qp| bench.attach(*qp)).collect();
        peer.write_all(&frame(1, 100)).unwrap();
        assert!(!bench.wakes());
        (0..10).for_each(|_| bench.progress());
        assert_eq!(bench.device.ended, []);
        bench.device.post(qps[0], 2);
        bench.until(|bench| bench.device.received.get(&qps[0]).is_some_and(|all| all.len() == 2));
        assert_eq!(bench.device.received[&qps[0]], [0, 1].map(|nth| frame(nth, 100)[4..].to_vec()));
    }
}

#[test]
fn of_many_streams_that_are_not_consumed_few_hold_more_than_an_fpdu() {
    const FEW: usize = 64;
    let mut bench = Bench::new(None);
    rustix::net::sockopt::set_socket_recv_buffer_size(&bench.listener, 1 << 20).unwrap();
    let qps = handles(FEW + 6);
    let mut peers: Vec<TcpStream> = qps.iter().map(|qp| bench.attach(*qp)).collect();
    for peer in &mut peers {
        peer.set_nonblocking(true).unwrap();
        peer.write_all(&frame(0, 100)).unwrap();
        // Writes as much as the socket takes.
        while peer.write(&[0; 4096]).is_ok() {}
    }
    bench.until(|bench| bench.device.starved.len() == qps.len());
    let held = bench.ports.streams.values().filter_map(|stream| stream.held.as_ref());
    let held = held.map(|buffer| buffer.bytes().len());
    let large = held.filter(|len| *len > Terms::LONGEST_FPDU).count();
    assert_eq!(large, FEW);
}

#[test]
fn a_full_socket_blocks_its_queue_pair_only_until_the_peer_reads() {
    let mut bench = Bench::new(None);
    let qps = handles(2);
    let (mut slow, mut fast) = (bench.attach(qps[0]), bench.attach(qps[1]));
    let blocks: Vec<Vec<u8>> = (0..200).map(|nth| frame(nth, 60_000)).collect();
    for block in &blocks {
        bench.device.send(qps[0], block.clone());
    }
    bench.until(|bench| bench.device.blocked.contains(&qps[0]));
    assert!(!bench.wakes());
    // All bytes of the slow queue pair are queued first.
    let behind = bench.device.bytes.len();
    bench.device.outgoing.push_back(Outgoing::Bytes(qps[1], 8));
    bench.device.bytes.insert(0, b"overtake".to_vec());
    (0..5).for_each(|_| bench.progress());
    assert_eq!(bench.device.bytes.len(), behind);
    let mut overtaking = [0; 8];
    fast.read_exact(&mut overtaking).unwrap();
    assert_eq!(&overtaking, b"overtake");
    let expected = blocks.concat();
    let reader = thread::spawn(move || {
        let mut all = vec![0; expected.len()];
        slow.read_exact(&mut all).unwrap();
        all == expected
    });
    bench.until(|bench| bench.device.outgoing.is_empty() && bench.device.blocked.is_empty());
    assert!(reader.join().unwrap());
}

#[test]
fn system_calls_that_send_bytes_are_counted() {
    const LEN: usize = 8 << 20;
    let mut bench = Bench::new(None);
    let qp = handles(1)[0];
    let mut peer = bench.attach(qp);
    bench.device.send(qp, frame(0, 100));
    bench.progress();
    assert_eq!(bench.ports.counters().sent, 1);
    let stream = bench.ports.streams.values_mut().next().unwrap();
    let mut sent = 0;
    stream.write(&vec![0; LEN], &mut sent).unwrap();
    assert!(stream.is_blocked());
    let accepted = sent;
    stream.write(&[0; 100], &mut sent).unwrap();
    assert_eq!(sent, accepted, "the bytes are queued");
    let token = bench.ports.by_qp[&qp];
    bench.ports.watch(token);
    let reader = thread::spawn(move || peer.read_exact(&mut vec![0; 104 + LEN + 100]).unwrap());
    let before = bench.ports.counters().sent;
    bench.until(|bench| !bench.ports.has_unsent());
    assert!(bench.ports.counters().sent > before);
    reader.join().unwrap();
}

#[test]
fn the_end_of_the_peers_stream_is_distinguished_from_its_loss() {
    let mut bench = Bench::new(None);
    let qps = handles(4);
    let mut peers: Vec<TcpStream> = qps.iter().map(|qp| bench.attach(*qp)).collect();
    peers[1].write_all(&frame(0, 100)[..50]).unwrap();
    rustix::net::sockopt::set_socket_linger(&peers[2], Some(Duration::ZERO)).unwrap();
    // A stream that is not read.
    peers[3].write_all(&frame(0, 8)).unwrap();
    bench.until(|bench| bench.device.starved.contains(&qps[3]));
    rustix::net::sockopt::set_socket_linger(&peers[3], Some(Duration::ZERO)).unwrap();
    drop(peers);
    bench.until(|bench| bench.device.ended.len() == 4);
    let ended: HashMap<_, _> = bench.device.ended.iter().copied().collect();
    assert_eq!(
        qps.iter().map(|qp| ended[qp]).collect::<Vec<_>>(),
        [StreamEnd::Closed, StreamEnd::Lost, StreamEnd::Lost, StreamEnd::Lost,]
    );
    assert!(bench.ports.streams.is_empty() && bench.ports.by_qp.is_empty() && !bench.wakes());
}

#[test]
fn a_reset_reaches_the_peer() {
    let mut bench = Bench::new(None);
    let qp = handles(1)[0];
    let mut peer = bench.attach(qp);
    bench.device.outgoing.push_back(Outgoing::Reset(qp));
    bench.progress();
    assert_eq!(peer.read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn an_impaired_path_delays_bytes_and_the_end_and_keeps_their_order() {
    let delay = Duration::from_millis(30);
    let impairments = Impairments { delay: "30ms".parse().unwrap(), ..Impairments::default() };
    let mut bench = Bench::new(Some(&Faults { impairments, seed: 1 }));
    let qp = handles(1)[0];
    let mut peer = bench.attach(qp);
    bench.device.post(qp, 100);
    let start = clock::now();
    peer.write_all(&(0..100).flat_map(|nth| frame(nth, 3000)).collect::<Vec<u8>>()).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let sent: Vec<u8> = (0..50).flat_map(|nth| frame(nth, 5000)).collect();
    for part in sent.chunks(70_000) {
        bench.device.send(qp, part.to_vec());
    }
    bench.until(|bench| bench.device.received.contains_key(&qp));
    assert!(clock::now() >= start + delay);
    bench.until(|bench| bench.device.ended == [(qp, StreamEnd::Closed)]);
    let received = &bench.device.received[&qp];
    assert!(
        received.len() == 100
            && received.iter().enumerate().all(|(nth, payload)| payload[..] == frame(nth as u32, 3000)[4..])
    );
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert!(all == sent, "the end of the stream does not overtake its bytes");
}

#[test]
fn a_full_inbound_path_wakes_no_thread_before_it_has_room() {
    const FRAMES: usize = 1100;
    let delay = Duration::from_secs(60);
    let impairments = Impairments { delay: "60s".parse().unwrap(), ..Impairments::default() };
    for others in [0, 1] {
        let mut bench = Bench::new(Some(&Faults { impairments: impairments.clone(), seed: 1 }));
        let qps = handles(1 + others);
        let mut peers: Vec<TcpStream> = qps.iter().map(|qp| bench.attach(*qp)).collect();
        bench.device.post(qps[0], FRAMES);
        let mut peer = peers.remove(0);
        let writer = thread::spawn(move || {
            let block = frame(0, 60_000);
            (0..FRAMES).for_each(|_| peer.write_all(&block).unwrap());
            peer
        });
        let expected = frame(0, 60_000);
        let (mut now, deadline) = (clock::now(), clock::now() + Duration::from_secs(60));
        let receive = |bench: &mut Bench, now| {
            assert!(clock::now() < deadline);
            bench.ports.receive(&mut bench.device, &mut Capture::default(), now);
        };
        while !bench.ports.is_path_full() {
            receive(&mut bench, now);
        }
        // The socket may have been empty.
        let mut wakes = 0;
        while bench.wakes() {
            receive(&mut bench, now);
            wakes += 1;
            assert!(wakes <= 2);
        }
        while bench.device.received.get(&qps[0]).is_none_or(|frames| frames.len() < FRAMES) {
            now = now + delay;
            receive(&mut bench, now);
        }
        assert!(bench.device.received[&qps[0]].iter().all(|payload| *payload == expected[4..]));
        drop(writer.join().unwrap());
    }
}

#[test]
fn bytes_due_before_the_peers_end_leave_before_it_however_late_the_driver_is() {
    let delay = Duration::from_millis(5);
    let impairments = Impairments { delay: "5ms".parse().unwrap(), ..Impairments::default() };
    let mut bench = Bench::new(Some(&Faults { impairments, seed: 1 }));
    let qp = handles(1)[0];
    let mut peer = bench.attach(qp);
    bench.device.send(qp, frame(0, 5000));
    bench.progress();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let has_ended = |bench: &Bench| bench.ports.streams.values().all(|stream| stream.state == State::Ended);
    bench.until(has_ended);
    // The driver comes back only after the path's delay.
    thread::sleep(delay);
    bench.until(|bench| bench.device.ended == [(qp, StreamEnd::Closed)]);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, frame(0, 5000));
}

#[test]
fn messages_that_wait_for_receives_behind_an_impaired_path_precede_the_peers_end() {
    let impairments = Impairments { delay: "5ms".parse().unwrap(), ..Impairments::default() };
    let mut bench = Bench::new(Some(&Faults { impairments, seed: 1 }));
    let qp = handles(1)[0];
    let mut peer = bench.attach(qp);
    bench.device.post(qp, 1);
    peer.write_all(&[frame(0, 100), frame(1, 100), frame(2, 100), vec![0]].concat()).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    bench.until(|bench| bench.ports.streams.values().all(|stream| stream.state != State::Open));
    bench.until(|bench| bench.ports.poll_timeout().is_none());
    for received in 1..=2 {
        (0..3).for_each(|_| bench.progress());
        assert_eq!((bench.device.received[&qp].len(), &bench.device.ended[..]), (received, &[][..]));
        assert!(!bench.ports.has_wanted(&bench.device) && !bench.wakes());
        bench.device.post(qp, 1);
        assert!(bench.ports.has_wanted(&bench.device));
    }
    bench.until(|bench| bench.ports.streams.is_empty());
    assert_eq!(bench.device.received[&qp].len(), 3);
    assert_eq!(bench.device.ended, [(qp, StreamEnd::Lost)], "the last frame is incomplete");
}

#[test]
fn faults_that_tcp_repairs_are_refused_with_the_remedy() {
    let refused = |impairments: Impairments| {
        let faults = Faults { impairments, seed: 1 };
        StreamPorts::new(Epoll::new().unwrap(), Duration::from_secs(30), Some(&faults))
            .err()
            .map(|error| error.to_string())
    };
    let none = Impairments::default();
    for impairments in [
        Impairments { loss: Some("1%".parse().unwrap()), ..none.clone() },
        Impairments { reorder: Some("1%".parse().unwrap()), ..none.clone() },
        Impairments { duplicate: "1%".parse().unwrap(), ..none.clone() },
        Impairments {
            jitter: Some("1ms".parse().unwrap()),
            jitter_order: "reorder".parse().unwrap(),
            ..none.clone()
        },
    ] {
        assert!(refused(impairments).unwrap().contains("nichrome wan"));
    }
    assert_eq!(
        refused(Impairments { corrupt: "1%".parse().unwrap(), rate: Some("1gbit".parse().unwrap()), ..none }),
        None
    );
}

#[test]
fn without_a_connection_manager_an_idle_stream_ends_after_a_while_or_when_it_is_used() {
    let mut bench = Bench::new(None);
    bench.by_number = true;
    let start = clock::now();
    bench.now = Some(start);
    let qps = handles(3);
    let mut peers: Vec<TcpStream> = qps.iter().map(|qp| bench.attach(*qp)).collect();
    peers[1].write_all(&frame(0, 100)[..50]).unwrap();
    peers.iter().for_each(|peer| peer.shutdown(std::net::Shutdown::Write).unwrap());
    bench.until(|bench| bench.device.ended == [(qps[1], StreamEnd::Lost)]);
    let mut byte = [0; 1];
    bench.until(|bench| bench.ports.ended.len() == 2);
    assert_eq!(peers[0].read(&mut byte).unwrap(), 0, "this end's FIN does not wait");
    bench.device.send(qps[2], vec![1]);
    bench.until(|bench| bench.device.ended.last() == Some(&(qps[2], StreamEnd::Lost)));
    assert!(!bench.wakes());
    bench.now = Some(start + GRACE / 2);
    bench.progress();
    assert_eq!(bench.device.ended.len(), 2);
    bench.now = Some(start + GRACE);
    bench.progress();
    assert_eq!(bench.device.ended.last(), Some(&(qps[0], StreamEnd::Closed)));
    assert!(bench.ports.streams.is_empty());
}
