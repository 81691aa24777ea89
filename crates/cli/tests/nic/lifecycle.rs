//! Cards start and end, and leave nothing behind.

use std::process::Command;
use std::thread;
use std::time::Duration;

use nichrome_port::{Interface, NetlinkError};
use rustix::process::Signal;

use crate::lab::{Lab, back_ends, failure, name, needs_namespaces, until};

/// Returns the settings of an interface that a card changes.
fn state(interface: &Interface) -> (Option<nichrome_wire::MacAddr>, bool, bool, u32, Option<u32>) {
    (interface.mac, interface.arp, interface.up, interface.mtu, interface.xdp_program)
}

fn has_host(lab: &Lab) -> bool {
    !matches!(lab.here(|netlink| netlink.interface(name("h0"))), Err(NetlinkError::NoInterface(_)))
}

#[test]
fn the_host_gets_the_wires_address_and_the_wire_gets_it_back() {
    needs_namespaces!("lifecycle::the_host_gets_the_wires_address_and_the_wire_gets_it_back");
    for back_end in back_ends() {
        for signal in [Signal::TERM, Signal::INT] {
            let lab = Lab::new();
            let before = lab.interface("w0");
            let mut up = lab.up(&["--backend", back_end]);
            let host = lab.interface("h0");
            assert_eq!((host.mac, host.mtu, host.up), (before.mac, before.mtu, true));
            let during = lab.interface("w0");
            if *back_end == "packet" {
                assert_ne!(during.mac, before.mac);
                assert_eq!(during.mac.unwrap().0[0] & 3, 2, "locally administered, of one interface");
                assert!(!during.arp);
            }
            up.signal(signal);
            up.wait_for("h0 on w0");
            assert_eq!(up.wait().1, Some(0));
            assert_eq!(state(&lab.interface("w0")), state(&before));
            assert!(!has_host(&lab) && lab.is_tidy());
        }
    }
}

#[test]
fn an_interface_that_had_no_arp_still_has_none() {
    needs_namespaces!("lifecycle::an_interface_that_had_no_arp_still_has_none");
    let lab = Lab::new();
    lab.ip("link set w0 arp off");
    lab.up(&[]).stop();
    assert!(!lab.interface("w0").arp);
}

#[test]
fn the_next_card_restores_the_wire_of_a_killed_card() {
    needs_namespaces!("lifecycle::the_next_card_restores_the_wire_of_a_killed_card");
    for back_end in back_ends() {
        let lab = Lab::new();
        let before = lab.interface("w0");
        lab.up(&["--backend", back_end]).kill();
        until("the kernel to take the card's interface away", || !has_host(&lab));
        let up = lab.up(&["--backend", back_end]);
        assert_eq!(lab.interface("h0").mac, before.mac, "not the one that the first card gave the wire");
        let logged = up.stop();
        let put_back = logged.iter().any(|line| line.contains("left w0 changed: restored"));
        assert_eq!(put_back, *back_end == "packet", "{logged:?}");
        assert_eq!(state(&lab.interface("w0")), state(&before));
        assert!(lab.is_tidy());
    }
}

#[test]
fn nic_down_restores_the_wire_of_a_killed_card() {
    needs_namespaces!("lifecycle::nic_down_restores_the_wire_of_a_killed_card");
    let lab = Lab::new();
    let before = lab.interface("w0");
    lab.up(&["--backend", "packet"]).kill();
    assert_ne!(lab.interface("w0").mac, before.mac);
    let output = lab.run(&["nic", "down", "h0"]);
    assert!(output.status.success());
    assert!(failure(&output).0.contains("left w0 changed: restored"));
    assert!(lab.is_tidy());
    assert_eq!(state(&lab.interface("w0")), state(&before));
    let (line, status) = lab.failure(&["nic", "down", "h0"]);
    assert_eq!(status, 1);
    assert!(line.contains("no card is behind h0"), "{line}");
}

#[test]
fn nic_down_waits_for_the_process_of_a_killed_card() {
    needs_namespaces!("lifecycle::nic_down_waits_for_the_process_of_a_killed_card");
    let lab = Lab::new();
    let before = lab.interface("w0");
    lab.up(&["--backend", "packet"]).kill();
    // Locks the claim, like a process that has closed its socket but not its claim.
    let claim = lab.claim();
    claim.try_lock().unwrap();
    let (line, status) = lab.failure(&["nic", "down", "h0"]);
    assert!(line.contains("no card is behind h0") && status == 1, "{line}");
    let (line, status) = lab.failure(&["nic", "down", "h1"]);
    assert!(line.contains("no card is behind h1") && status == 1, "{line}");
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            claim.unlock().unwrap();
        });
        lab.run(&["nic", "down", "h0"])
    });
    assert!(output.status.success(), "{}", failure(&output).0);
    assert!(failure(&output).0.contains("left w0 changed: restored"));
    assert_eq!(state(&lab.interface("w0")), state(&before));
    assert!(lab.is_tidy());
}

#[test]
fn changes_by_others_since_then_are_kept() {
    needs_namespaces!("lifecycle::changes_by_others_since_then_are_kept");
    let lab = Lab::new();
    lab.up(&["--backend", "packet"]).kill();
    lab.ip("link set w0 address 02:00:00:00:00:77");
    let output = lab.run(&["nic", "down", "h0"]);
    assert!(output.status.success(), "{}", failure(&output).0);
    assert_eq!(lab.interface("w0").mac.unwrap().0[5], 0x77);
    assert!(lab.is_tidy());
}

#[test]
fn the_next_card_removes_the_socket_of_a_killed_one_behind_another_host() {
    needs_namespaces!("lifecycle::the_next_card_removes_the_socket_of_a_killed_one_behind_another_host");
    let lab = Lab::new();
    lab.up(&["--backend", "packet"]).kill();
    let next = ["nic", "up", "--wire", "w0", "--host", "h1", "--backend", "packet"];
    lab.start(&mut lab.command(env!("CARGO_BIN_EXE_nichrome"), &next)).stop();
    assert!(lab.is_tidy());
}

#[test]
fn nic_down_returns_when_everything_is_put_back() {
    needs_namespaces!("lifecycle::nic_down_returns_when_everything_is_put_back");
    let lab = Lab::new();
    let before = lab.interface("w0");
    let up = lab.up(&[]);
    let output = lab.run(&["nic", "down", "h0"]);
    assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty());
    assert_eq!(state(&lab.interface("w0")), state(&before));
    assert!(!has_host(&lab));
    assert_eq!(up.wait().1, Some(0));
    assert!(lab.is_tidy());
}

#[test]
fn removing_the_wire_ends_the_card_with_one_line() {
    needs_namespaces!("lifecycle::removing_the_wire_ends_the_card_with_one_line");
    for back_end in back_ends() {
        let lab = Lab::new();
        let up = lab.up(&["--backend", back_end]);
        lab.ip("link delete w0");
        let (logged, status) = up.wait();
        assert_eq!(
            (logged.last().unwrap().as_str(), status),
            ("nichrome: w0 is gone: the card ends", Some(1))
        );
        assert!(!has_host(&lab) && lab.is_tidy());
        lab.add_wire();
        let logged = lab.up(&["--backend", back_end]).stop();
        // Both ends of a veth pair strip VLAN tags.
        let warnings = logged.iter().filter(|line| line.contains("'ethtool -K w0 rxvlan off' keeps them"));
        assert_eq!(warnings.count(), usize::from(*back_end == "xdp"), "{logged:?}");
    }
}

#[test]
fn a_wire_that_is_renamed_is_restored_under_its_new_name() {
    needs_namespaces!("lifecycle::a_wire_that_is_renamed_is_restored_under_its_new_name");
    for back_end in back_ends() {
        let lab = Lab::new();
        let before = lab.interface("w0");
        let up = lab.up(&["--backend", back_end]);
        // Kernels before 6.2 rename no interface that is up.
        lab.ip("link set w0 down");
        lab.ip("link set w0 name w9");
        let (logged, status) = up.wait();
        let line = "nichrome: w0 is called w9 now: the card ends";
        assert_eq!((logged.last().unwrap().as_str(), status), (line, Some(1)), "{back_end}");
        let after = lab.interface("w9");
        assert_eq!((after.mac, after.arp, after.xdp_program), (before.mac, before.arp, before.xdp_program));
        assert!(!has_host(&lab) && lab.is_tidy());
    }
}

#[test]
fn a_hosts_interface_that_is_deleted_ends_the_card_with_one_line() {
    needs_namespaces!("lifecycle::a_hosts_interface_that_is_deleted_ends_the_card_with_one_line");
    let lab = Lab::new();
    let before = lab.interface("w0");
    let up = lab.up(&[]);
    lab.ip("link delete h0");
    let (logged, status) = up.wait();
    assert_eq!((logged.last().unwrap().as_str(), status), ("nichrome: h0 is gone: the card ends", Some(1)));
    assert_eq!(state(&lab.interface("w0")), state(&before));
    assert!(lab.is_tidy());
}

#[test]
fn a_hosts_interface_that_is_renamed_ends_the_card_even_if_another_one_has_its_name() {
    needs_namespaces!(
        "lifecycle::a_hosts_interface_that_is_renamed_ends_the_card_even_if_another_one_has_its_name"
    );
    let lab = Lab::new();
    let before = lab.interface("w0");
    let up = lab.up(&[]);
    up.signal(Signal::STOP);
    // Kernels before 6.2 rename no interface that is up.
    lab.ip("link set h0 down");
    lab.ip("link set h0 name h9");
    lab.ip("link add h0 type veth peer name h1");
    lab.ip("link set h0 mtu 1200");
    up.signal(Signal::CONT);
    let (logged, status) = up.wait();
    assert_eq!(
        (logged.last().unwrap().as_str(), status),
        ("nichrome: h0 is called h9 now: the card ends", Some(1))
    );
    assert_eq!(lab.interface("h0").mtu, 1200, "it is another program's");
    assert_eq!(state(&lab.interface("w0")), state(&before));
    assert!(lab.is_tidy());
}

#[test]
fn a_card_waits_while_its_wire_is_down() {
    needs_namespaces!("lifecycle::a_card_waits_while_its_wire_is_down");
    for back_end in back_ends() {
        let lab = Lab::new();
        let mut up = lab.up(&["--backend", back_end]);
        lab.configure_host();
        lab.wait_until_connected();
        lab.ip("link set w0 down");
        up.wait_for("w0 is down: the card waits until it is up again");
        // Packets sent in between do not end the card either.
        let ping = || Command::new("ip").args(["neighbour", "flush", "all"]).status().unwrap();
        assert!(lab.here.run(ping).unwrap().success());
        let connect = || {
            let address = "10.8.0.2:5001".parse().unwrap();
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100))
        };
        assert!(lab.here.run(connect).unwrap().is_err());
        lab.ip("link set w0 up");
        up.wait_for("w0 is up again");
        lab.wait_until_connected();
        let logged = up.stop();
        let downs = logged.iter().filter(|line| line.contains("w0 is down")).count();
        assert_eq!(downs, 1, "{logged:?}");
    }
}

#[test]
fn the_host_has_a_carrier_while_its_wire_has_one() {
    needs_namespaces!("lifecycle::the_host_has_a_carrier_while_its_wire_has_one");
    for back_end in back_ends() {
        let lab = Lab::new();
        let carrier = |state: &str| {
            let ip = || Command::new("ip").args(["link", "set", "p0", state]).status().unwrap();
            assert!(lab.there.run(ip).unwrap().success());
        };
        let host_follows = |carrier| {
            until("the host's carrier", || lab.interface("h0").running == carrier);
            assert!(lab.interface("h0").up);
        };
        carrier("down");
        let mut up = lab.up(&["--backend", back_end]);
        host_follows(false);
        carrier("up");
        up.wait_for("w0 has a carrier again, and h0, too");
        host_follows(true);
        lab.configure_host();
        lab.wait_until_connected();
        lab.ip("link set w0 down");
        up.wait_for("w0 has no carrier, and neither has h0");
        host_follows(false);
        lab.ip("link set w0 up");
        host_follows(true);
        lab.wait_until_connected();
        up.stop();
        assert!(lab.is_tidy());
    }
}

#[test]
fn the_host_sends_no_longer_packets_than_the_wire_takes() {
    needs_namespaces!("lifecycle::the_host_sends_no_longer_packets_than_the_wire_takes");
    for back_end in back_ends() {
        let lab = Lab::new();
        let mut up = lab.up(&["--backend", back_end]);
        lab.ip("link set w0 mtu 1400");
        up.wait_for("w0 now has the MTU 1400, and h0 1400");
        until("the host to send shorter packets", || lab.interface("h0").mtu == 1400);
        lab.ip("link set h0 mtu 1500");
        up.wait_for("h0 now has the MTU 1500, but w0 allows at most 1400: longer packets are dropped");
        lab.ip("link set h0 mtu 1300");
        lab.ip("link set w0 mtu 1500");
        up.wait_for("w0 now has the MTU 1500, and h0 1500");
        // With AF_XDP, the kernel itself refuses an MTU above the size of frames.
        if *back_end == "packet" {
            lab.ip("link set w0 mtu 9000");
            up.wait_for("w0 now has the MTU 9000, and h0 1500: for more, start the card anew");
        }
        let logged = up.stop();
        let lines = logged.iter().filter(|line| line.contains("now has the MTU")).count();
        assert_eq!(lines, if *back_end == "packet" { 4 } else { 3 }, "{logged:?}");
    }
}
