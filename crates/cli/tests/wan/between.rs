//! `nichrome wan --between`, between two interfaces. A namespace represents the machine, which needs root.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::{
    Counters, Device, Interface, InterfaceName, MAX_RECEIVE, Netlink, NetworkNamespace, PacketSocket,
    Settings, clock,
};
use nichrome_wire::{EtherType, MacAddr, SeqNumber, TcpFrame, VirtioNetHeader, VlanTag};
use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::run::{Room, Started, TIMEOUT, drops, failure, float, number, text};
use crate::until::until;
use crate::web::Site;

const V4: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))];
const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xFD09, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xFD09, 0, 0, 0, 0, 0, 0, 2)),
];

fn name(name: &str) -> InterfaceName {
    name.parse().unwrap()
}

const fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 9, host as u8])
}

/// A machine with two interfaces, and a host at the other end of each.
struct Machines {
    machine: NetworkNamespace,
    hosts: [NetworkNamespace; 2],
}

impl Machines {
    fn new() -> Self {
        assert!(geteuid().is_root(), "nichrome wan --between needs root: run the tests as root");
        let [machine, left, right] = [(); 3].map(|()| NetworkNamespace::new().unwrap());
        let machines = Self { machine, hosts: [left, right] };
        for (called, host) in ["one", "two"].into_iter().zip(&machines.hosts) {
            machines.on_machine(|netlink| {
                netlink.add_veth(name(called), name("host"), host).unwrap();
                let interface = netlink.interface(name(called)).unwrap();
                netlink.silence(&interface).unwrap();
                netlink.set_up(&interface).unwrap();
            });
        }
        for at in 0..2 {
            machines.on_host(at, |netlink| set_up_host(netlink, at));
        }
        machines.on_machine(|netlink| {
            for called in ["one", "two"] {
                netlink.wait_until_running(&netlink.interface(name(called)).unwrap()).unwrap();
            }
        });
        machines
    }

    fn on_machine<T>(&self, work: impl FnOnce(&Netlink) -> T) -> T {
        self.machine.run(|| work(&Netlink::open().unwrap())).unwrap()
    }

    fn on_host<T>(&self, at: usize, work: impl FnOnce(&Netlink) -> T) -> T {
        self.hosts[at].run(|| work(&Netlink::open().unwrap())).unwrap()
    }

    /// Returns the current state of both interfaces.
    fn interfaces(&self) -> [Interface; 2] {
        let now = |netlink: &Netlink, called| Interface {
            counters: Counters::default(),
            ..netlink.interface(name(called)).unwrap()
        };
        self.on_machine(|netlink| ["one", "two"].map(|called| now(netlink, called)))
    }

    /// Starts a path between them.
    fn join(&self, room: &Room, arguments: &[&str]) -> Started {
        let arguments = [&["--between", "one", "two"], arguments].concat();
        let path = self.machine.run(|| room.start(&arguments)).unwrap();
        path.wait_for("between one (left) and two (right) until Ctrl-C");
        path
    }
}

fn set_up_host(netlink: &Netlink, at: usize) {
    let interface = netlink.interface(name("host")).unwrap();
    netlink.configure(&interface, Settings { mac: Some(mac(at)), ..Settings::default() }).unwrap();
    netlink.silence(&interface).unwrap();
    netlink.set_up(&interface).unwrap();
    netlink.wait_until_running(&interface).unwrap();
    for (addresses, prefix_len) in [(V4, 24), (V6, 64)] {
        netlink.add_address(&interface, addresses[at], prefix_len).unwrap();
        netlink.add_neighbour(&interface, addresses[1 - at], mac(1 - at)).unwrap();
    }
}

/// Runs `ip` in this thread's namespace.
fn ip(words: &[&str]) {
    assert!(Command::new("ip").args(words).status().unwrap().success(), "ip {words:?}");
}

/// Sends `sent` from the right host to the left one. Returns the received bytes, and the duration of
/// connecting.
fn transfer(machines: &Machines, addresses: [IpAddr; 2], sent: &[u8]) -> (Vec<u8>, Duration) {
    let listener = machines.on_host(0, |_| TcpListener::bind((addresses[0], 7000)).unwrap());
    let begun = Instant::now();
    let mut client =
        machines.on_host(1, |_| TcpStream::connect_timeout(&(addresses[0], 7000).into(), TIMEOUT)).unwrap();
    let connected_after = begun.elapsed();
    let (mut server, _) = listener.accept().unwrap();
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || client.write_all(sent).unwrap());
        server.read_to_end(&mut received).unwrap();
    });
    (received, connected_after)
}

#[test]
fn hosts_behind_two_interfaces_are_joined_and_the_interfaces_put_back() {
    let machines = Machines::new();
    let room = Room::new();
    let before = machines.interfaces();
    let path = machines.join(&room, &["--delay", "10ms", "--json"]);
    let sent: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    for addresses in [V4, V6] {
        let (received, connected_after) = transfer(&machines, addresses, &sent);
        assert!(received == sent, "{} bytes", received.len());
        assert!(connected_after >= Duration::from_millis(20), "{connected_after:?}");
    }
    let summary = ended(&path);
    assert!(number(&summary["to_left"], "bytes_delivered") > 10_000_000, "{summary}");
    assert!(float(&summary["to_right"], "delay_p50_us") >= 10_000.0, "{summary}");
    assert_eq!(summary["to_left"]["drops"], Value::Object(serde_json::Map::new()));
    assert_eq!(path.end(), 0);
    assert_eq!(machines.interfaces(), before);
    assert!(room.is_tidy());
}

#[test]
fn tagged_frames_keep_their_tags() {
    let machines = Machines::new();
    let room = Room::new();
    let path = machines.join(&room, &[]);
    let [to, from] = [0, 1].map(|at| {
        machines.on_host(at, |netlink| PacketSocket::open(&netlink.interface(name("host")).unwrap()).unwrap())
    });
    let (inner, outer) =
        (VlanTag { tpid: EtherType::VLAN, tci: 7 }, VlanTag { tpid: EtherType::QINQ, tci: 9 });
    for tags in [vec![], vec![inner], vec![outer, inner]] {
        let frame = TcpFrame { tags, payload: vec![1; 100], ..TcpFrame::default() }.build();
        from.send(&[IoSlice::new(&VirtioNetHeader::default().to_bytes()), IoSlice::new(&frame)]).unwrap();
        clock::wait([to.as_fd()], Some(clock::now() + TIMEOUT)).unwrap();
        let mut buffer = vec![0; MAX_RECEIVE];
        assert_eq!(to.receive(&mut buffer).unwrap().unwrap().frame, frame);
    }
    path.signal(Signal::TERM);
    assert_eq!(path.end(), 143);
}

#[test]
fn frames_that_are_not_read_in_time_are_counted() {
    const SENT: u64 = 20_000;
    let machines = Machines::new();
    machines.on_machine(|netlink| netlink.set_up(&netlink.interface(name("lo")).unwrap()).unwrap());
    let room = Room::new();
    let arguments = ["--between", "one", "two", "--json", "--web", "0"];
    let site = Site::of(machines.machine.run(|| room.start(&arguments)).unwrap());
    let path = &site.path;
    path.wait_for("between one (left) and two (right) until Ctrl-C");
    let from =
        machines.on_host(1, |netlink| PacketSocket::open(&netlink.interface(name("host")).unwrap()).unwrap());
    let frame = TcpFrame { payload: vec![1; 1400], ..TcpFrame::default() }.build();
    path.signal(Signal::STOP);
    for _ in 0..SENT {
        from.send(&[IoSlice::new(&VirtioNetHeader::default().to_bytes()), IoSlice::new(&frame)]).unwrap();
    }
    path.signal(Signal::CONT);
    let shown = || {
        let output = room.run(&["show", "--json"]);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        (number(&summary["to_left"], "packets"), drops(&summary["to_left"], "unread"))
    };
    until("the path to read what waits for it", || {
        let before = shown();
        thread::sleep(Duration::from_millis(300));
        before.0 > 0 && before == shown()
    });
    let (packets, unread) = shown();
    assert!(unread > 0 && packets + unread == SENT, "{packets} and {unread}");
    let on_page = machines.machine.run(|| site.state()["to_left"].clone()).unwrap();
    let counted = ["packets", "dropped", "not_entered"].map(|figure| number(&on_page, figure));
    assert_eq!(counted, [packets, unread, unread], "{on_page}");
    let to_left = &ended(path)["to_left"];
    assert_eq!((number(to_left, "packets"), drops(to_left, "unread")), (packets, unread), "{to_left}");
    assert_eq!(site.path.end(), 0);
}

#[test]
fn packets_that_a_device_refuses_are_dropped_and_not_delivered() {
    const SENT: u64 = 1000;
    let machines = Machines::new();
    machines.on_machine(|netlink| netlink.set_up(&netlink.interface(name("lo")).unwrap()).unwrap());
    let room = Room::new();
    let arguments = ["--between", "one", "two", "--json", "--web", "0"];
    let site = Site::of(machines.machine.run(|| room.start(&arguments)).unwrap());
    site.path.wait_for("between one (left) and two (right) until Ctrl-C");
    let from =
        machines.on_host(0, |netlink| PacketSocket::open(&netlink.interface(name("host")).unwrap()).unwrap());
    let payload = vec![1; 100];
    // In sequence, so that packets that leave together are coalesced: the counters must count each packet.
    let frame =
        |nth| TcpFrame { seq: SeqNumber(nth * 100), payload: payload.clone(), ..TcpFrame::default() }.build();
    let send = || {
        for nth in 0..SENT as u32 {
            let header = VirtioNetHeader::default().to_bytes();
            from.send(&[IoSlice::new(&header), IoSlice::new(&frame(nth))]).unwrap();
        }
    };
    let to_right = || machines.machine.run(|| site.state()["to_right"].clone()).unwrap();
    send();
    until("the packets to be delivered", || number(&to_right(), "packets_delivered") == SENT);
    let before = to_right();
    let bytes = SENT * frame(0).len() as u64;
    assert_eq!((number(&before, "bytes_delivered"), number(&before, "dropped")), (bytes, 0), "{before}");
    machines.machine.run(|| ip(&["link", "set", "two", "down"])).unwrap();
    site.path.wait_for("nichrome: two is down");
    send();
    until("the packets to be dropped", || number(&to_right(), "dropped") == SENT);
    let after = to_right();
    for figure in ["packets_delivered", "bytes_delivered", "delay_asked_ms", "delay_given_ms"] {
        assert_eq!(before[figure], after[figure], "{figure}: {after}");
    }
    let summary = &ended(&site.path)["to_right"];
    let counted = (drops(summary, "refused_by_device"), number(summary, "packets_delivered"));
    assert_eq!(counted, (SENT, SENT), "{summary}");
    assert_eq!(number(summary, "bytes_delivered"), bytes, "{summary}");
    let gbit = float(summary, "gbps") * float(summary, "duration_s");
    assert!((gbit - bytes as f64 * 8e-9).abs() < 1e-9, "{summary}");
}

/// Interrupts a path, and returns its summary.
fn ended(path: &Started) -> Value {
    path.signal(Signal::INT);
    let mut json = String::from("{");
    path.wait_for("{");
    while serde_json::from_str::<Value>(&json).is_err() {
        json += &path.wait_for("");
    }
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_path_ends_with_one_of_its_interfaces() {
    for (gone, other) in [("one", "two"), ("two", "one")] {
        let machines = Machines::new();
        let room = Room::new();
        let path = machines.join(&room, &["--delay", "1ms"]);
        machines.on_machine(|netlink| netlink.delete(&netlink.interface(name(gone)).unwrap()).unwrap());
        path.wait_for(&format!("nichrome: {gone} is gone: the path ends"));
        assert_eq!(path.end(), 1);
        assert!(machines.on_machine(|netlink| netlink.interface(name(other)).unwrap().up) && room.is_tidy());
    }
}

#[test]
fn a_plot_that_cannot_be_written_is_reported_also_if_an_interface_is_gone() {
    let machines = Machines::new();
    let room = Room::new();
    let path = machines.join(&room, &["--plot", "/dev/full"]);
    machines.on_machine(|netlink| netlink.delete(&netlink.interface(name("one")).unwrap()).unwrap());
    path.wait_for("nichrome: warning: cannot write /dev/full: No space left on device (os error 28)");
    path.wait_for("nichrome: one is gone: the path ends");
    assert_eq!(path.end(), 1);
}

/// Returns true if a thread of the process has this name.
fn has_thread(process: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.map(|thread| fs::read_to_string(thread.path().join("comm"))).any(|comm| {
        // A thread that has ended meanwhile has no name.
        comm.is_ok_and(|comm| comm.trim() == name)
    })
}

#[test]
fn the_packets_before_the_end_of_an_interface_are_captured() {
    let machines = Machines::new();
    let room = Room::new();
    let pipe = room.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        || File::open(pipe).unwrap()
    });
    let path = machines.join(&room, &["--capture", &pipe]);
    let mut reader = reader.join().unwrap();
    let sent = vec![7; 5_000_000];
    assert!(transfer(&machines, V4, &sent).0 == sent);
    let from =
        machines.on_host(1, |netlink| PacketSocket::open(&netlink.interface(name("host")).unwrap()).unwrap());
    let (header, frame) = (VirtioNetHeader::default().to_bytes(), TcpFrame::default().build());
    let (limit, has_ended) = (Instant::now() + TIMEOUT, AtomicBool::new(false));
    thread::scope(|scope| {
        // A packet sent to a removed interface ends the path with an error.
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) && Instant::now() < limit {
                let _ = from.send(&[IoSlice::new(&header), IoSlice::new(&frame)]);
            }
        });
        machines.on_machine(|netlink| netlink.delete(&netlink.interface(name("one")).unwrap()).unwrap());
        until("the path to end", || ["to_left", "to_right"].iter().all(|name| !has_thread(path.pid(), name)));
        has_ended.store(true, Ordering::Relaxed);
    });
    let mut captured = Vec::new();
    reader.read_to_end(&mut captured).unwrap();
    assert!(captured.len() > 2 * sent.len(), "{}", captured.len());
    path.wait_for("nichrome: one is gone: the path ends");
    assert_eq!(path.end(), 1);
}

#[test]
fn a_path_goes_on_when_an_interface_is_up_again() {
    let machines = Machines::new();
    let room = Room::new();
    let path = machines.join(&room, &["--delay", "1ms"]);
    let set = |state| machines.machine.run(|| ip(&["link", "set", "one", state])).unwrap();
    set("down");
    path.wait_for("nichrome: one is down: the path waits until it is up again");
    set("up");
    path.wait_for("nichrome: one is up again");
    machines
        .on_machine(|netlink| netlink.wait_until_running(&netlink.interface(name("one")).unwrap()).unwrap());
    let sent = vec![7; 1_000_000];
    let (received, _) = transfer(&machines, V4, &sent);
    assert!(received == sent, "{} bytes", received.len());
    path.signal(Signal::INT);
    assert_eq!(path.end(), 0);
}

#[test]
fn a_path_goes_on_when_an_interface_is_renamed() {
    let machines = Machines::new();
    let room = Room::new();
    let path = machines.join(&room, &["--delay", "1ms"]);
    // Kernels before 6.2 rename no interface that is up.
    for change in [&["down"][..], &["name", "other"], &["up"]] {
        let device = if change == ["up"] { "other" } else { "one" };
        machines.machine.run(|| ip(&[&["link", "set", device], change].concat())).unwrap();
    }
    path.wait_for("nichrome: other is up again");
    machines.on_machine(|netlink| {
        netlink.wait_until_running(&netlink.interface(name("other")).unwrap()).unwrap();
    });
    let sent = vec![7; 1_000_000];
    let (received, _) = transfer(&machines, V4, &sent);
    assert!(received == sent, "{} bytes", received.len());
    path.signal(Signal::INT);
    assert_eq!(path.end(), 0);
}

#[test]
fn interfaces_that_cannot_be_used_are_named() {
    let machines = Machines::new();
    let room = Room::new();
    machines.on_machine(|netlink| netlink.add_veth(name("down"), name("peer"), &machines.hosts[0]).unwrap());
    machines.machine.run(|| ip(&["link", "property", "add", "dev", "one", "altname", "other"])).unwrap();
    for (interfaces, expected) in [
        (["one", "none"], "there is no interface called none ('ip link' lists them)"),
        (["lo", "one"], "lo is not an Ethernet interface"),
        (["one", "down"], "down is down: 'ip link set down up' sets it up"),
        (["one", "other"], "--between needs two interfaces, and one and other are the same"),
    ] {
        let output = machines.machine.run(|| room.run(&[&["--between"], &interfaces[..]].concat())).unwrap();
        assert_eq!(failure(&output), (expected.into(), 1));
    }
    let output = machines
        .machine
        .run(|| room.run(&["--between", "one", "two", "--capture", "/nonexistent/file"]))
        .unwrap();
    assert!(text(&output.stderr).starts_with("nichrome: cannot write /nonexistent/file: "));
    assert_eq!(machines.interfaces().map(|interface| interface.up), [true, true]);
}
