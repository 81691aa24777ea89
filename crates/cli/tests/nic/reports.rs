//! The reports of a card: counters as text, as JSON and for Prometheus; captures; options from a file.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::capture::{self, Reader};
use nichrome_port::{Device, Netlink, PacketSocket, uninterrupted};
use nichrome_wire::{TcpFrame, VirtioNetHeader};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::lab::{Direction, Family, Lab, TIMEOUT, name, needs_namespaces, text, until};

static DATA: [u8; 400_000] = [7; 400_000];

/// Transfers data in both directions, so that the counters are not 0.
fn used(lab: &Lab) {
    lab.configure_host();
    lab.transfer(&DATA, Direction::ToHost, Family::V4);
}

fn records(file: &str, interface: u32) -> (usize, usize) {
    let mut reader: Reader<_> = capture::open(file.as_ref()).unwrap();
    let (mut count, mut longest, mut bytes) = (0, 0, Vec::new());
    while let Some(record) = reader.next(&mut bytes).unwrap() {
        if record.interface == interface {
            count += 1;
            longest = longest.max(bytes.len());
        }
        bytes.clear();
    }
    (count, longest)
}

#[test]
fn the_names_of_counters_are_stable() {
    needs_namespaces!("reports::the_names_of_counters_are_stable");
    let lab = Lab::new();
    let _up = lab.up(&["--queues", "2"]);
    used(&lab);
    let stats = lab.stats();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&stats), "wire host backend profile host_queues pid uptime_s not_captured total queues");
    assert_eq!(
        keys(&stats["total"]),
        "acks_dropped delivery_dropped delivery_waited distributed distribution_dropped from_host from_host_bytes \
         host_refused receive_finished receive_malformed receive_unfinished received received_bytes taken_apart to_host \
         to_host_bytes transmit_malformed transmit_refused transmitted transmitted_bytes connections wire \
         engine"
    );
    assert_eq!(
        keys(&stats["total"]["wire"]),
        "fill_ring_empty freezes receive_dropped receive_invalid receive_ring_full transmit_dropped \
         transmit_invalid"
    );
    assert_eq!(
        keys(&stats["total"]["engine"]),
        "acks_sent aggregates bytes_in bytes_out packets_in packets_out segments_aggregated tcp_payload_bytes_in \
         tcp_payload_bytes_out flush_reasons passes drops"
    );
    assert_eq!(keys(&stats["queues"][1]), keys(&stats["total"]));
    assert!(stats["total"]["engine"]["tcp_payload_bytes_out"].as_u64() >= Some(DATA.len() as u64));
    let printed = text(&lab.run(&["nic", "stats", "h0"]).stdout);
    for words in
        ["h0 on w0 by packet, profile gro", "queue 1", "received, frames", "flushed: ", "passed: syn"]
    {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

#[test]
fn packets_that_the_host_refuses_are_counted_as_lost_and_not_as_delivered() {
    needs_namespaces!("reports::packets_that_the_host_refuses_are_counted_as_lost_and_not_as_delivered");
    const SENT: u16 = 1000;
    for host_queues in ["1", "2"] {
        let lab = Lab::new();
        let up = lab.up(&["--queues", "2", "--host-queues", host_queues, "--backend", "packet"]);
        lab.ip("link set h0 down");
        let before = lab.stats();
        let sender = lab
            .there
            .run(|| PacketSocket::open(&Netlink::open().unwrap().interface(name("p0")).unwrap()).unwrap())
            .unwrap();
        for nth in 0..SENT {
            let frame = TcpFrame { src_port: 1024 + nth, ..TcpFrame::default() }.build();
            let header = VirtioNetHeader::default().to_bytes();
            sender.send(&[IoSlice::new(&header), IoSlice::new(&frame)]).unwrap();
        }
        let refused = |of: &Value| of["host_refused"].as_u64().unwrap();
        // The kernel at p0 may have sent packets of its own.
        until("the host to refuse all", || refused(&lab.stats()["total"]) >= u64::from(SENT));
        let stats = lab.stats();
        let delivered = ["to_host", "to_host_bytes"].map(|of| [&before["total"][of], &stats["total"][of]]);
        assert!(delivered.iter().all(|[before, after]| before == after), "{stats}");
        assert!(stats["queues"].as_array().unwrap().iter().all(|queue| refused(queue) > 0), "{stats}");
        let logged = up.stop().join("\n");
        let printed = logged.split_once("to the host, packets").unwrap().1.split_whitespace().next();
        assert_eq!(printed, Some(&*stats["total"]["to_host"].to_string()), "{logged}");
    }
}

#[test]
fn without_a_card_there_are_no_counters() {
    needs_namespaces!("reports::without_a_card_there_are_no_counters");
    let lab = Lab::new();
    for (arguments, words) in [
        (&["nic", "stats"][..], "there is no card in this network namespace"),
        (&["nic", "stats", "h0"], "no card is behind h0"),
        (&["top"], "there is no card"),
        (&["nic", "down", "h0"], "no card is behind h0"),
    ] {
        let (line, status) = lab.failure(arguments);
        assert_eq!(status, 1);
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn where_there_are_several_cards_one_is_named() {
    needs_namespaces!("reports::where_there_are_several_cards_one_is_named");
    let lab = Lab::new();
    let _first = lab.up(&[]);
    let arguments = ["nic", "up", "--wire", "t0", "--host", "h1", "--backend", "tap"];
    let _second = lab.start(&mut lab.command(env!("CARGO_BIN_EXE_nichrome"), &arguments));
    let (line, _) = lab.failure(&["nic", "stats"]);
    assert!(line.contains("choose one (h0, h1)"), "{line}");
    assert!(lab.run(&["nic", "stats", "h1"]).status.success());
}

#[test]
fn top_prints_lines_where_there_is_no_terminal() {
    needs_namespaces!("reports::top_prints_lines_where_there_is_no_terminal");
    let lab = Lab::new();
    let _up = lab.up(&[]);
    let output = lab.run(&["top", "--interval", "10ms", "--count", "3"]);
    assert!(output.status.success());
    let printed = text(&output.stdout);
    assert_eq!(printed.lines().count(), 4, "{printed}");
    assert!(printed.lines().next().unwrap().contains("bytes each"), "{printed}");
}

#[test]
fn a_signal_ends_top_and_restores_the_terminal() {
    needs_namespaces!("reports::a_signal_ends_top_and_restores_the_terminal");
    let lab = Lab::new();
    let _up = lab.up(&[]);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&end, size).unwrap();
        let mut command = lab.command(env!("CARGO_BIN_EXE_nichrome"), &["top"]);
        command.stdin(end.try_clone().unwrap()).stdout(end.try_clone().unwrap());
        let mut top = lab.here.run(|| command.spawn().unwrap()).unwrap();
        drop(command);
        // Reads fail with EIO when the last descriptor of `end` is closed.
        let shown = thread::spawn(move || {
            let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(len) = uninterrupted(|| File::from(terminal.try_clone()?).read(&mut piece)) {
                shown.extend_from_slice(&piece[..len]);
            }
            String::from_utf8_lossy(&shown).into_owned()
        });
        let is_raw = || !tcgetattr(&end).unwrap().local_modes.contains(LocalModes::ICANON);
        until("the screen to open", is_raw);
        kill_process(Pid::from_child(&top), signal).unwrap();
        assert_eq!(top.wait().unwrap().code(), Some(128 + signal.as_raw()));
        assert!(!is_raw(), "{signal:?}");
        drop(end);
        let shown = shown.join().unwrap();
        // The sequences that enter and leave the alternate screen (xterm, DECSET 1049).
        let [entered, left] = ["\x1b[?1049h", "\x1b[?1049l"].map(|words| shown.matches(words).count());
        assert!(entered <= left, "{signal:?}: {shown:?}");
    }
}

#[test]
fn prometheus_gets_the_counters_of_every_queue() {
    needs_namespaces!("reports::prometheus_gets_the_counters_of_every_queue");
    let lab = Lab::new();
    let _up = lab.up(&["--profile", "npu", "--queues", "2", "--metrics", "127.0.0.1:9479"]);
    used(&lab);
    lab.transfer(&DATA, Direction::FromHost, Family::V4);
    let get = |request: &str| {
        let address: SocketAddr = "127.0.0.1:9479".parse().unwrap();
        let mut stream = lab.here.run(|| TcpStream::connect_timeout(&address, TIMEOUT).unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = get("GET /metrics HTTP/1.1\r\nHost: card\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    let value = |name: &str, queue: u8| -> u64 {
        let labels = format!("{name}{{host=\"h0\",wire=\"w0\",queue=\"{queue}\"");
        let line = answer.lines().find(|line| line.starts_with(&labels)).expect(&labels);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let of_both = |name| value(name, 0) + value(name, 1);
    let known = of_both("nichrome_connections");
    assert!(known <= 2, "{known} flows of a connection that has ended, and of one without data");
    assert!(of_both("nichrome_received_total") > 0 && of_both("nichrome_to_host_total") > 0);
    assert!(of_both("nichrome_engine_tcp_payload_bytes_out_total") >= DATA.len() as u64);
    assert_eq!(of_both("nichrome_wire_receive_ring_full_total"), 0);
    assert!(answer.contains("reason=\"syn\"") && answer.contains("nichrome_uptime_seconds"), "{answer}");
    assert!(get("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get("BREW /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let head = get("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // Silent clients do not delay others.
    let address: SocketAddr = "127.0.0.1:9479".parse().unwrap();
    let connect = |_| lab.here.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let _silent: Vec<_> = (0..130).map(connect).collect();
    let begun = Instant::now();
    assert!(get("GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    // Prometheus waits for 10 s. Served one after the other, the silent clients would take 260 s.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn captures_hold_what_comes_before_and_after_the_engine() {
    needs_namespaces!("reports::captures_hold_what_comes_before_and_after_the_engine");
    let lab = Lab::new();
    let [both, wire, host] = ["both.pcapng", "wire.pcapng", "host.pcapng"].map(|name| lab.file(name));
    for (options, on_wire, to_host) in [
        (vec!["--capture", &both], (&both, 0), (&both, 1)),
        (vec!["--capture-wire", &wire, "--capture-host", &host], (&wire, 0), (&host, 0)),
    ] {
        let up = lab.up(&options);
        used(&lab);
        let stats = lab.stats();
        up.stop();
        assert_eq!(stats["not_captured"], 0);
        let count = |name: &str| stats["total"][name].as_u64().unwrap() as usize;
        let (on_wire, longest_on_wire) = records(on_wire.0, on_wire.1);
        let (to_host, longest_to_host) = records(to_host.0, to_host.1);
        // The kernel may have sent further packets since the counters were read.
        assert!(on_wire >= count("received") + count("transmitted"), "{on_wire} {stats}");
        assert!(to_host >= count("to_host"), "{to_host} {stats}");
        assert!(longest_on_wire <= 1514 && longest_to_host > 1514, "{longest_on_wire} {longest_to_host}");
    }
}

#[test]
fn a_capture_of_the_wire_holds_the_acks_of_the_card() {
    needs_namespaces!("reports::a_capture_of_the_wire_holds_the_acks_of_the_card");
    let lab = Lab::new();
    let wire = lab.file("wire.pcapng");
    let up = lab.up(&["--profile", "npu", "--active-ack", "safe", "--capture-wire", &wire]);
    lab.configure_host();
    for _ in 0..10 {
        lab.transfer(&DATA, Direction::ToHost, Family::V4);
    }
    let stats = lab.stats();
    up.stop();
    let total = &stats["total"];
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap() as usize;
    let acks = count(&total["engine"], "acks_sent") - count(total, "acks_dropped");
    let (on_wire, _) = records(&wire, 0);
    // The kernel may have sent further packets since the counters were read, but not as many.
    assert!(acks > 20, "{stats}");
    assert!(on_wire >= count(total, "received") + count(total, "transmitted") + acks, "{on_wire} {stats}");
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_card() {
    needs_namespaces!("reports::a_full_disk_ends_the_capture_and_not_the_card");
    let lab = Lab::new();
    let wire = lab.file("wire.pcapng");
    let card = format!(
        "trap '' XFSZ; ulimit -f 100; exec {} nic up --wire w0 --host h0 --capture-wire {wire}",
        env!("CARGO_BIN_EXE_nichrome")
    );
    let mut up = lab.start(&mut lab.command("bash", &["-c", &card]));
    lab.configure_host();
    lab.transfer(&DATA, Direction::ToHost, Family::V4);
    let line = up.wait_for("wire.pcapng");
    assert!(line.contains("the card continues without this capture"), "{line}");
    lab.transfer(&DATA, Direction::FromHost, Family::V4);
    assert!(lab.stats()["not_captured"].as_u64() > Some(0));
    let logged = up.stop();
    assert_eq!(logged.iter().filter(|line| line.contains("wire.pcapng")).count(), 1, "{logged:?}");
    assert!(logged.last().unwrap().contains("missing in the captures"), "{logged:?}");
}

#[test]
fn options_come_from_a_file_and_from_the_command_line() {
    needs_namespaces!("reports::options_come_from_a_file_and_from_the_command_line");
    let lab = Lab::new();
    let file = lab.file("card.toml");
    let up = |arguments: &[&str]| {
        let arguments = [&["nic", "up", "--config", &file], arguments].concat();
        lab.start(&mut lab.command(env!("CARGO_BIN_EXE_nichrome"), &arguments))
    };
    let mut toml = File::create(&file).unwrap();
    let options = "wire = \"w0\"\nhost = \"h0\"\nqueues = 2\nprofile = \"npu\"\nhold = \"2ms\"\nforce = true\n\
                   busy-poll = false\n";
    toml.write_all(options.as_bytes()).unwrap();
    let card = up(&[]);
    let stats = lab.stats();
    assert_eq!((&stats["profile"], stats["queues"].as_array().unwrap().len()), (&"npu".into(), 2));
    card.stop();
    let card = up(&["--profile", "gro", "--queues=1"]);
    let stats = lab.stats();
    assert_eq!((&stats["profile"], stats["queues"].as_array().unwrap().len()), (&"gro".into(), 1));
    card.stop();
    let cases = [
        ("wire = \"w0\"", "names no wire or no host"),
        ("speed = 3", "there is no option speed: the options are wire, host, profile"),
        ("wire = 1.5", "wire must be a text or a number"),
        ("force = \"yes\"", "force must be true or false"),
        ("wire = \"w0\"\nhost = \"h0\"\nqueues = 0", "expected a whole number from 1 to 256"),
        ("wire =", "line 1"),
    ];
    for (options, words) in cases {
        fs::write(&file, options).unwrap();
        let (line, status) = lab.failure(&["nic", "up", "--config", &file]);
        assert_eq!(status, 2, "the service does not try again: {line}");
        assert!(line.contains(words) && line.contains("card.toml") | words.contains("names no"), "{line}");
    }
}

#[test]
fn the_example_configuration_is_valid() {
    needs_namespaces!("reports::the_example_configuration_is_valid");
    let lab = Lab::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/nic.toml");
    let all = fs::read_to_string(example).unwrap().replace("\n#", "\n");
    let options: String = all
        .lines()
        .filter(|line| line.contains(" = ") && !line.starts_with("active-ack"))
        .map(|line| format!("{line}\n"))
        .collect();
    let file = lab.file("card.toml");
    fs::write(&file, options).unwrap();
    let arguments = ["nic", "up", "--config", &file, "--wire", "w0", "--host", "h0"];
    let up = lab.start(&mut lab.command(env!("CARGO_BIN_EXE_nichrome"), &arguments));
    assert_eq!(lab.stats()["queues"].as_array().unwrap().len(), 4);
    up.stop();
    until("nothing to be left", || lab.is_tidy());
}
