//! StaR's set-up with hostile TCP peers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::{AdapterConfig, Connection, StarOptions, Stateless, Transport};
use nichrome_rdma::star::{Offer, QueueDepth, Receives, Room, Setup, Timers, Wish};
use nichrome_rdma::{Access, Operation, PathMtu, QpNumber, SendRequest, Status};
use nichrome_wire::SeqNumber;
use nichrome_wire::star::STAR_PORT;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

#[path = "common/end.rs"]
mod end;
use end::{End, PATIENCE, connect_with};

fn open(stateless: Stateless) -> End {
    let star = StarOptions { stateless, ..StarOptions::default() };
    End::open(&AdapterConfig { transport: Transport::Star, star, ..AdapterConfig::default() })
}

/// Connects to the port for set-up from `source`.
fn dial(end: &End, source: [u8; 4]) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::from((source, 0))).unwrap();
    connect(&stream, &SocketAddr::new(end.adapter.address(), STAR_PORT)).unwrap();
    TcpStream::from(stream)
}

/// Two adapters: whichever of them connects, the other is a target of `attack`.
fn attacked<T>(attack: impl Fn(&End) -> T) -> ([End; 2], [T; 2]) {
    let ends = [open(Stateless::Own), open(Stateless::Peer)];
    let attacks = ends.each_ref().map(attack);
    (ends, attacks)
}

/// Sets up a connection and WRITEs over it.
fn honest_set_up_completes(ends: &[End; 2]) {
    connect_with(ends, &Connection::new(PathMtu::B4096));
    let [a, b] = ends;
    let write = Operation::Write(b.region.remote().at(0));
    a.qp.post_send(&SendRequest::new(1, write, &[a.region.slice(0, 8)])).unwrap();
    assert_eq!(a.cq.wait(PATIENCE).map(|done| done.status), Some(Status::Success));
    assert_eq!(a.adapter.stateless_connections(), 1);
}

/// Clock ticks of 10 ms that the threads for set-up have run for.
fn ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |stat: &str| {
        let fields: Vec<&str> = stat.split_once("(nichrome-star) ")?.1.split(' ').collect();
        Some(fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    };
    tasks.filter_map(|task| of_task(&std::fs::read_to_string(task.unwrap().path().join("stat")).ok()?)).sum()
}

/// Waits until the threads for set-up have not run for 100 ms; returns their ticks.
fn ticks_when_idle() -> u64 {
    let until = Instant::now() + PATIENCE;
    loop {
        let before = ticks();
        thread::sleep(Duration::from_millis(100));
        if ticks() == before {
            return before;
        }
        assert!(Instant::now() < until, "the threads for set-up do not become idle");
    }
}

#[test]
fn idle_connections_cost_no_time_and_hold_up_nobody() {
    // In a process of its own: other tests have such threads too.
    if std::env::var_os("NICHROME_ALONE").is_none() {
        let this = std::env::current_exe().unwrap();
        let test = ["--exact", "idle_connections_cost_no_time_and_hold_up_nobody"];
        assert!(Command::new(this).args(test).env("NICHROME_ALONE", "1").status().unwrap().success());
        return;
    }
    let dial_all =
        |end: &End| (0..300).map(|nth| dial(end, [127, 0, 77, 1 + nth as u8 % 3])).collect::<Vec<_>>();
    let (ends, _idle) = attacked(dial_all);
    let before = ticks_when_idle();
    // The measured interval.
    thread::sleep(Duration::from_secs(1));
    let used = ticks() - before;
    assert!(used <= 2, "{used}0 ms of two seconds");
    honest_set_up_completes(&ends);
}

#[test]
fn a_source_has_no_more_than_its_share_of_connections() {
    let source = [127, 0, 77, 9];
    let start = Instant::now();
    let (ends, connections) = attacked(|end| (0..300).map(|_| dial(end, source)).collect::<Vec<_>>());
    honest_set_up_completes(&ends);
    let until = Instant::now() + PATIENCE;
    for streams in connections {
        let is_open = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let mut stream: &TcpStream = stream;
            matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        let count = || streams.iter().filter(is_open).count();
        while count() > 128 {
            assert!(Instant::now() < until, "{} connections stay open", count());
            thread::sleep(Duration::from_millis(5));
        }
        // They are closed after 5 s of silence.
        assert!(count() >= 1 || start.elapsed() >= Duration::from_secs(5));
    }
}

/// An OFFER for a queue pair that no program connects.
fn offer(address: IpAddr) -> Vec<u8> {
    let offer = Offer {
        wish: Wish::Automatic,
        room: Room::Free,
        receives: Receives::Own,
        connection: QpNumber::new(0x4711).unwrap(),
        peer_connection: QpNumber::new(0x815),
        address,
        path_mtu: PathMtu::B1024,
        access: Access::NONE,
        first_element: SeqNumber(1),
        depth: QueueDepth { sends: 16, receives: 16 },
        timers: Timers { timeout: 14, retry_count: 7, rnr_retry: 7, min_rnr_timer: 12 },
    };
    Setup::new(offer).take_output()
}

#[test]
fn random_bytes_after_an_offer_for_an_unknown_queue_pair_are_refused() {
    let source = [127, 0, 77, 5];
    let (ends, streams) = attacked(|end| {
        let mut stream = dial(end, source);
        stream.write_all(&offer(IpAddr::from(source))).unwrap();
        // The case under test: the offer is processed before the next bytes arrive. The peer cannot observe
        // that.
        thread::sleep(Duration::from_millis(50));
        stream
    });
    for mut stream in streams {
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let taken = (0..64).take_while(|_| stream.write_all(&[0; 1 << 18]).is_ok()).count();
        assert!(taken < 32, "{taken} times 256 KB were taken");
    }
    honest_set_up_completes(&ends);
}

#[test]
fn an_offer_with_the_address_of_another_peer_is_refused_at_once() {
    let (ends, streams) = attacked(|end| {
        let mut stream = dial(end, [127, 0, 77, 6]);
        stream.write_all(&offer("127.0.77.7".parse().unwrap())).unwrap();
        stream
    });
    for mut stream in streams {
        // An OFFER that waits for the program would be refused after a minute.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match stream.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{other:?}"),
        }
    }
    honest_set_up_completes(&ends);
}

#[test]
fn peers_that_send_nothing_or_a_byte_a_second_are_closed_after_seconds() {
    let (ends, streams) = attacked(|end| [dial(end, [127, 0, 77, 8]), dial(end, [127, 0, 77, 8])]);
    let offer = offer("127.0.77.8".parse().unwrap());
    let mut open = streams.iter().flatten().collect::<Vec<_>>();
    for byte in offer.iter().take(20) {
        for (nth, stream) in open.iter_mut().enumerate() {
            if nth % 2 == 1 {
                // Fails once the stream is closed.
                let _ = stream.write_all(&[*byte]);
            }
        }
        // The rate under test: a byte a second.
        thread::sleep(Duration::from_secs(1));
        open.retain(|stream| {
            stream.set_nonblocking(true).unwrap();
            let mut stream: &TcpStream = stream;
            matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        if open.is_empty() {
            break;
        }
    }
    assert!(open.is_empty(), "{open:?}");
    honest_set_up_completes(&ends);
}
