//! Received data equals sent data.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nichrome_lro::{Hold, ProfileConfig};
use nichrome_nic::CardError;
use nichrome_port::uninterrupted;

use crate::hosts::{PORT, directions, impaired, pair, pattern, profiles, stop, transfer, v4, v6};

#[test]
fn every_profile_delivers_the_sent_data() {
    for (name, profile) in profiles() {
        let (hosts, cards) = pair(profile, &impaired(&[]));
        transfer(&hosts[0], &hosts[1], v4(1), 3, 3_000_000);
        transfer(&hosts[1], &hosts[0], v6(2), 3, 3_000_000);
        let [left, _] = stop(cards);
        let stats = &left[0];
        assert_eq!((stats.host_refused, stats.taken_apart, stats.receive_malformed), (0, 0, 0), "{name}");
        if profile.is_some() {
            let engine = &stats.engine;
            assert_eq!(engine.packets_in, stats.received, "{name}");
            assert!(engine.packets_out * 3 < engine.packets_in, "{name}: {engine:?}");
        } else {
            assert_eq!(stats.to_host, stats.received);
        }
    }
}

#[test]
fn every_profile_delivers_the_sent_data_over_a_lossy_wire() {
    let bad = impaired(&[
        ("delay", "300us"),
        ("loss", "0.5%"),
        ("duplicate", "0.5%"),
        ("corrupt", "0.2%"),
        ("reorder", "1%:300us"),
    ]);
    for (_, profile) in profiles() {
        let (hosts, cards) = pair(profile, &bad);
        transfer(&hosts[0], &hosts[1], v4(1), 4, 400_000);
        transfer(&hosts[0], &hosts[1], v6(1), 4, 400_000);
        stop(cards);
    }
}

#[test]
fn a_worker_for_each_direction_delivers_the_sent_data() {
    let bad = [("delay", "300us"), ("loss", "0.5%"), ("duplicate", "0.5%"), ("corrupt", "0.2%")];
    for (name, profile) in profiles() {
        for (settings, len) in [(&[][..], 3_000_000), (&bad, 400_000), (&[("mtu", "1300")], 400_000)] {
            let started = directions(profile, &impaired(settings));
            if name == "npu, active ACK" {
                assert!(matches!(started, Err(CardError::OtherHost)));
                continue;
            }
            let (hosts, cards) = started.unwrap();
            transfer(&hosts[0], &hosts[1], v4(1), 3, len);
            transfer(&hosts[1], &hosts[0], v6(2), 3, len);
            let [to_left, to_right] = stop(cards);
            for stats in [&to_left[0], &to_right[0]] {
                assert_eq!((stats.host_refused, stats.transmit_refused), (0, 0), "{name}");
                assert!(stats.from_host > 0 && stats.to_host > 0);
            }
        }
    }
}

#[test]
fn datagrams_that_the_kernel_leaves_to_be_cut_arrive() {
    let (hosts, cards) = pair(Some(ProfileConfig::Gro(Hold::Batch)), &impaired(&[]));
    for address in [v4(1), v6(1)] {
        let bind = |address: IpAddr| std::net::UdpSocket::bind(SocketAddr::new(address, PORT)).unwrap();
        let receiver = hosts[0].namespace.run(|| bind(address)).unwrap();
        let peer = if address.is_ipv4() { v4(2) } else { v6(2) };
        let sender = hosts[1].namespace.run(|| bind(peer)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // Longer than the MTU: the kernel sends IP fragments.
        for len in [1, 1000, 8000] {
            let sent = pattern(1, len);
            sender.send_to(&sent, (address, PORT)).unwrap();
            let mut received = vec![0; 10_000];
            let read = uninterrupted(|| receiver.recv(&mut received)).unwrap();
            assert!(received[..read] == sent, "{len} bytes to {address}");
        }
    }
    stop(cards);
}
