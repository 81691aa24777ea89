//! Programs on the hosts of a lab, without the command and without root.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nichrome_lab::lro::{Config, Hold, ProfileConfig};
use nichrome_lab::wan::{DropReason, EcnMode, Mtu};
use nichrome_lab::{ConfigError, Impairments, Lab, LabError, Side, in_namespaces};

fn both(impairments: &Impairments) -> [Impairments; 2] {
    [impairments.clone(), impairments.clone()]
}

#[test]
fn a_download_is_whole_behind_loss_and_delay() {
    in_namespaces("a_download_is_whole_behind_loss_and_delay", || {
        let bad = Impairments {
            delay: "5ms".parse().unwrap(),
            loss: Some("2%".parse().unwrap()),
            ..Impairments::default()
        };
        let lab = Lab::new(&both(&bad), 1).unwrap();
        let sent: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
        let listener = lab.host(Side::Left).run(|| TcpListener::bind(("0.0.0.0", 80))).unwrap().unwrap();
        let expected = sent.clone();
        let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&sent).unwrap());
        let mut client =
            lab.host(Side::Right).run(|| TcpStream::connect((Side::Left.ipv4(), 80))).unwrap().unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        server.join().unwrap();
        assert!(received == expected, "{} bytes", received.len());
        lab.stop().unwrap();
    });
}

type Make = fn(&[Impairments; 2]) -> Result<Lab, LabError>;

#[test]
fn hosts_learn_the_mtu_of_the_path() {
    in_namespaces("hosts_learn_the_mtu_of_the_path", || {
        let narrow = Impairments { mtu: Mtu::new(1400), ..Impairments::default() };
        let makes: [Make; 2] = [
            |impairments| Lab::new(impairments, 1),
            |impairments| Lab::with_offload(impairments, 1, Config::default(), None),
        ];
        let directions = [(Side::Left, Side::Right), (Side::Right, Side::Left)];
        for (make, (from, to)) in makes.into_iter().flat_map(|make| directions.map(|sides| (make, sides))) {
            let lab = make(&both(&narrow)).unwrap();
            let listener = lab.host(to).run(|| TcpListener::bind((to.ipv4(), 80))).unwrap().unwrap();
            let mut client = lab.host(from).run(|| TcpStream::connect((to.ipv4(), 80))).unwrap().unwrap();
            client.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            let sender = std::thread::spawn(move || client.write_all(&vec![7; 200_000]));
            let mut server = listener.accept().unwrap().0;
            server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut received = Vec::new();
            server.read_to_end(&mut received).unwrap();
            sender.join().unwrap().unwrap();
            assert_eq!(received.len(), 200_000);
            assert!(lab.stats(to).drops.get(DropReason::Mtu) > 0);
            lab.stop().unwrap();
        }
    });
}

#[test]
fn a_host_behind_an_offload_receives_fewer_packets() {
    in_namespaces("a_host_behind_an_offload_receives_fewer_packets", || {
        const BYTES: usize = 4 << 20;
        let packets = |profile| {
            let lab =
                Lab::with_offload(&both(&Impairments::default()), 1, Config::default(), profile).unwrap();
            let listener = lab.host(Side::Left).run(|| TcpListener::bind(("0.0.0.0", 80))).unwrap().unwrap();
            let mut client =
                lab.host(Side::Right).run(|| TcpStream::connect((Side::Left.ipv4(), 80))).unwrap().unwrap();
            let sender = std::thread::spawn(move || client.write_all(&vec![7; BYTES]).unwrap());
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            sender.join().unwrap();
            assert!(received.len() == BYTES && received.iter().all(|byte| *byte == 7));
            let packets = lab.host(Side::Left).counters().unwrap().received;
            lab.stop().unwrap();
            packets
        };
        let [without, with] = [None, Some(ProfileConfig::Gro(Hold::Batch))].map(packets);
        assert!(with * 2 < without, "{with} {without}");
    });
}

#[test]
fn the_delay_is_that_of_each_direction() {
    in_namespaces("the_delay_is_that_of_each_direction", || {
        let slow = |delay: &str| Impairments { delay: delay.parse().unwrap(), ..Impairments::default() };
        let lab = Lab::new(&[slow("10ms"), slow("40ms")], 1).unwrap();
        let socket = |side| lab.host(side).run(|| UdpSocket::bind(("0.0.0.0", 7000))).unwrap().unwrap();
        let (left, right) = (socket(Side::Left), socket(Side::Right));
        let one_way = |from: &UdpSocket, to: &UdpSocket, address| {
            let begun = Instant::now();
            from.send_to(b"x", (address, 7000)).unwrap();
            to.recv(&mut [0; 8]).unwrap();
            begun.elapsed()
        };
        assert!(one_way(&left, &right, Side::Right.ipv4()) >= Duration::from_millis(40));
        assert!(one_way(&right, &left, Side::Left.ipv4()) >= Duration::from_millis(10));
    });
}

#[test]
fn the_impairments_of_a_running_path_change() {
    in_namespaces("the_impairments_of_a_running_path_change", || {
        let lab = Lab::new(&both(&Impairments::default()), 1).unwrap();
        let socket = |side| lab.host(side).run(|| UdpSocket::bind(("0.0.0.0", 7000))).unwrap().unwrap();
        let (left, right) = (socket(Side::Left), socket(Side::Right));
        let send = || left.send_to(b"x", (Side::Right.ipv4(), 7000)).unwrap();
        let lost = Impairments { loss: Some("100%".parse().unwrap()), ..Impairments::default() };
        lab.impair(Side::Right, &lost).unwrap();
        let before = lab.stats(Side::Right);
        send();
        let end = Instant::now() + Duration::from_secs(10);
        while lab.stats(Side::Right).drops.total() == before.drops.total() {
            assert!(Instant::now() < end, "no packet was lost");
            std::thread::sleep(Duration::from_millis(1));
        }
        let slow = Impairments { delay: "30ms".parse().unwrap(), ..Impairments::default() };
        lab.impair(Side::Right, &slow).unwrap();
        let begun = Instant::now();
        send();
        right.recv(&mut [0; 8]).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
        let marks_but_never_full = Impairments {
            rate: Some("1mbit".parse().unwrap()),
            ecn: EcnMode::Mark,
            ..Impairments::default()
        };
        assert_eq!(lab.impair(Side::Right, &marks_but_never_full), Err(ConfigError::MarkWithoutCoDel));
        let begun = Instant::now();
        send();
        right.recv(&mut [0; 8]).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30), "refused impairments change nothing");
        lab.stop().unwrap();
    });
}

#[test]
fn lost_packets_never_arrive() {
    in_namespaces("lost_packets_never_arrive", || {
        let none = Impairments { loss: Some("100%".parse().unwrap()), ..Impairments::default() };
        let lab = Lab::new(&[Impairments::default(), none], 1).unwrap();
        let socket = |side| lab.host(side).run(|| UdpSocket::bind(("0.0.0.0", 7000))).unwrap().unwrap();
        let (left, right) = (socket(Side::Left), socket(Side::Right));
        left.send_to(b"x", (Side::Right.ipv4(), 7000)).unwrap();
        right.send_to(b"y", (Side::Left.ipv4(), 7000)).unwrap();
        // This datagram was sent after the lost one, and the path keeps the order.
        left.recv(&mut [0; 8]).unwrap();
        right.set_nonblocking(true).unwrap();
        assert!(right.recv(&mut [0; 8]).is_err());
    });
}

#[test]
fn a_dropped_lab_leaves_no_interface() {
    in_namespaces("a_dropped_lab_leaves_no_interface", || {
        let lab = Lab::new(&both(&Impairments::default()), 1).unwrap();
        let taps = Side::BOTH.map(|side| Arc::downgrade(&lab.host(side).tap));
        drop(lab);
        // A running thread of a card would keep its TAP interface.
        assert!(taps.iter().all(|tap| tap.upgrade().is_none()));
    });
}
