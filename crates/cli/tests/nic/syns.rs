//! The experiment of lro-npu, section V.B: connections are set up while established ones send at full speed.
//! The paper's first card let the established connections fill its queue to the host, and the SYNs of the
//! others timed out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::uninterrupted;

use crate::lab::{Lab, TIMEOUT, needs_namespaces, until};

/// Established connections, which send as fast as they can.
const ESTABLISHED: usize = 16;

/// Connections that are set up meanwhile, one after the other.
const NEW: usize = 100;

/// Minimum number of new connections that need no retransmission of a SYN.
const MIN_IMMEDIATE: usize = 90;

/// Bytes of an established connection after which its window is large.
const GROWN: u64 = 1 << 20;

/// Time after which a kernel retransmits a SYN (RFC 6298 section 2).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// Ends the established connections when dropped, also if the test fails.
struct Ending<'f>(&'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a connection to its end, and counts the bytes.
fn read(mut stream: TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; 256 << 10];
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    while let Ok(read @ 1..) = uninterrupted(|| stream.read(&mut buffer)) {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}

fn connect_under_load(options: &[&str]) {
    let lab = Lab::new();
    let up = lab.up(options);
    lab.configure_host();
    lab.wait_until_connected();
    let listen = |port| lab.here.run(|| TcpListener::bind(SocketAddr::from(([10, 8, 0, 1], port)))).unwrap();
    let (bulk, new) = (listen(5002).unwrap(), listen(5003).unwrap());
    let [to_bulk, to_new] = [&bulk, &new].map(|listener| listener.local_addr().unwrap());
    let (stop, data) = (AtomicBool::new(false), vec![7; 256 << 10]);
    let received: [AtomicU64; ESTABLISHED] = Default::default();
    let (mut times, begun) = (Vec::new(), Instant::now());
    thread::scope(|scope| {
        let ending = Ending(&stop);
        for bytes in &received {
            let connect = || TcpStream::connect_timeout(&to_bulk, TIMEOUT).unwrap();
            let mut sender = lab.there.run(connect).unwrap();
            sender.set_write_timeout(Some(TIMEOUT)).unwrap();
            let receiver = bulk.accept().unwrap().0;
            scope.spawn(move || read(receiver, bytes));
            let (stop, data) = (&stop, &data);
            scope.spawn(move || while !stop.load(Ordering::Relaxed) && sender.write_all(data).is_ok() {});
        }
        until("windows that have grown", || {
            received.iter().all(|bytes| bytes.load(Ordering::Relaxed) > GROWN)
        });
        for _ in 0..NEW {
            let begun = Instant::now();
            let connect = || TcpStream::connect_timeout(&to_new, TIMEOUT).unwrap();
            let mut stream = lab.there.run(connect).unwrap();
            times.push(begun.elapsed());
            stream.write_all(b"hello").unwrap();
            drop(stream);
            let bytes = AtomicU64::new(0);
            read(new.accept().unwrap().0, &bytes);
            assert_eq!(bytes.into_inner(), 5);
        }
        drop(ending);
    });
    let bytes: u64 = received.into_iter().map(AtomicU64::into_inner).sum();
    times.sort();
    let immediate = times.iter().filter(|time| **time < SYN_TIMEOUT).count();
    println!(
        "{}: {immediate} of {NEW} connected without a second SYN, half within {:?}, the last after {:?}, beside {:.2} Gbit/s",
        options.join(" "),
        times[NEW / 2],
        times[NEW - 1],
        bytes as f64 * 8e-9 / begun.elapsed().as_secs_f64()
    );
    assert!(immediate >= MIN_IMMEDIATE, "{options:?}: {times:?}");
    up.stop();
}

#[test]
fn connections_are_set_up_beside_established_ones_at_full_speed() {
    needs_namespaces!("syns::connections_are_set_up_beside_established_ones_at_full_speed");
    for profile in ["none", "gro", "npu"] {
        connect_under_load(&[
            "--backend",
            "packet",
            "--queues",
            "2",
            "--host-queues",
            "1",
            "--profile",
            profile,
        ]);
    }
}
