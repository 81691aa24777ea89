//! The experiment of lro-npu, section V.B: connections are set up while established ones send at full speed. The paper's
//! first card let the established connections fill its queue to the host, and the SYNs of the others timed out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::uninterrupted;

use crate::lab::{Lab, PATIENCE, needs_namespaces};

/// Established connections, which send as fast as they can.
const ESTABLISHED: usize = 16;

/// Connections that are set up meanwhile, one after the other.
const NEW: usize = 100;

/// Minimum number of new connections that need no retransmission of a SYN.
const AT_ONCE: usize = 90;

/// Time after which a kernel retransmits a SYN (RFC 6298 section 2).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// Ends the established connections when dropped, also if the test fails.
struct Ending<'f>(&'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a connection to its end; returns the bytes.
fn read(mut stream: TcpStream) -> u64 {
    let (mut bytes, mut buffer) = (0, vec![0; 256 << 10]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    while let Ok(read @ 1..) = uninterrupted(|| stream.read(&mut buffer)) {
        bytes += read as u64;
    }
    bytes
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
    let (mut times, mut bytes, begun) = (Vec::new(), 0, Instant::now());
    thread::scope(|scope| {
        let ending = Ending(&stop);
        let mut readers = Vec::new();
        for _ in 0..ESTABLISHED {
            let connect = || TcpStream::connect_timeout(&to_bulk, PATIENCE).unwrap();
            let mut sender = lab.there.run(connect).unwrap();
            sender.set_write_timeout(Some(PATIENCE)).unwrap();
            let receiver = bulk.accept().unwrap().0;
            readers.push(scope.spawn(move || read(receiver)));
            let (stop, data) = (&stop, &data);
            scope.spawn(move || while !stop.load(Ordering::Relaxed) && sender.write_all(data).is_ok() {});
        }
        // The senders' windows grow.
        thread::sleep(Duration::from_millis(300));
        for _ in 0..NEW {
            let begun = Instant::now();
            let connect = || TcpStream::connect_timeout(&to_new, PATIENCE).unwrap();
            let mut stream = lab.there.run(connect).unwrap();
            times.push(begun.elapsed());
            stream.write_all(b"hello").unwrap();
            drop(stream);
            assert_eq!(read(new.accept().unwrap().0), 5);
        }
        drop(ending);
        bytes = readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>();
    });
    times.sort();
    let at_once = times.iter().filter(|time| **time < SYN_TIMEOUT).count();
    println!(
        "{}: {at_once} of {NEW} connected without a second SYN, half within {:?}, the last after {:?}, beside {:.2} Gbit/s",
        options.join(" "),
        times[NEW / 2],
        times[NEW - 1],
        bytes as f64 * 8e-9 / begun.elapsed().as_secs_f64()
    );
    assert!(at_once >= AT_ONCE, "{options:?}: {times:?}");
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
