//! The records of `--capture`.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nichrome_port::capture;
use nichrome_wire::Instant;
use rustix::process::{Pid, Signal, kill_process};

use crate::installed::tshark;
use crate::run::{Room, number, printed_here, python, text};

const LEN: u64 = 3_000_000;

/// Configured delay, in nanoseconds.
const DELAY: u64 = 5_000_000;

/// A packet in a capture: its interface (0 is the left one), time and bytes.
type Seen = (u32, Instant, Vec<u8>);

fn packets(file: &str) -> Vec<Seen> {
    let mut reader = capture::open(Path::new(file)).unwrap();
    let (mut packets, mut bytes) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next(&mut bytes).unwrap() {
        packets.push((record.interface, record.time, bytes.clone()));
    }
    packets
}

/// Returns the delay of each packet that appears unchanged at both ends, in nanoseconds.
fn delays(packets: &[Seen]) -> Vec<u64> {
    let mut sent: HashMap<(u32, &[u8]), VecDeque<Instant>> = HashMap::new();
    let mut delays = Vec::new();
    // Records are in the order of writing: a packet's record at its sender precedes the one at its receiver.
    for (at, time, bytes) in packets {
        let comes_from = bytes[11] - 1;
        if u32::from(comes_from) == *at {
            sent.entry((*at, bytes)).or_default().push_back(*time);
        } else if let Some(begun) = sent.get_mut(&(1 - at, bytes.as_slice())).and_then(VecDeque::pop_front) {
            delays.push(time.nanos_since(begun));
        }
    }
    delays
}

/// Returns tshark's fields of all packets that match `filter`.
fn fields(file: &str, filter: &str, names: &[&str]) -> Vec<Vec<String>> {
    let options =
        ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", filter, "-T", "fields"];
    let names: Vec<&str> = names.iter().flat_map(|name| ["-e", name]).collect();
    let lines = tshark(&[&["-r", file], &options[..], &names].concat());
    lines.iter().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn packets_are_as_on_a_wire_and_at_both_ends_at_their_times() {
    for peer in ["$PEER", "$PEER6"] {
        let room = Room::new();
        let file = room.file("path.pcapng");
        let (serve, fetch) = (python(&format!("serve {LEN}")), python(&format!("fetch {peer} {LEN}")));
        let (summary, printed) = room.summary(&[
            "--delay",
            "5ms",
            "--corrupt",
            "1%",
            "--capture",
            &file,
            "--left",
            &serve,
            "--right",
            &fetch,
        ]);
        assert!(printed.contains(&printed_here(&format!("expect {LEN}"))), "{printed}");
        assert_eq!(number(&summary, "not_captured"), 0);

        let packets = packets(&file);
        let total = |name| ["to_left", "to_right"].map(|to| number(&summary[to], name)).iter().sum::<u64>();
        assert_eq!(packets.len() as u64, total("packets") + total("packets_delivered"));
        let delays = delays(&packets);
        assert!(delays.len() as u64 >= total("packets_delivered") - total("corrupted"));
        assert!(delays.iter().all(|delay| *delay >= DELAY), "{:?}", delays.iter().min());

        assert!(fields(&file, "frame.len > 1514", &["frame.len"]).is_empty());
        // Hosts answer some corrupted packets with ICMP errors, which quote them.
        let names = ["frame.interface_name", "eth.src", "tcp.checksum.status"];
        let at_both_ends = fields(&file, "tcp && !icmp && !icmpv6", &names);
        let is_at_sender = |packet: &&Vec<String>| (packet[0] == "left") == packet[1].ends_with(":01");
        let (sent, arrived): (Vec<_>, Vec<_>) = at_both_ends.iter().partition(is_at_sender);
        assert!(sent.iter().all(|packet| packet[2] == "1"), "not all that is sent has a right checksum");
        let wrong = arrived.iter().filter(|packet| packet[2] == "0").count() as u64;
        assert!(wrong > 0 && wrong <= total("corrupted"), "{wrong} of {}", total("corrupted"));
    }
}

#[test]
fn a_named_pipe_is_waited_for_and_a_signal_ends_the_wait() {
    let room = Room::new();
    let pipe = room.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let start = || {
        let mut path =
            room.command(&["--capture", &pipe, "--right", "true"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(path.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("nichrome: waiting for a program that reads {pipe}\n"));
        path
    };
    for signal in [Signal::INT, Signal::TERM] {
        let mut waiting = start();
        kill_process(Pid::from_child(&waiting), signal).unwrap();
        assert_eq!(waiting.wait().unwrap().signal(), Some(signal.as_raw()));
    }
    let mut path = start();
    let mut captured = Vec::new();
    File::open(&pipe).unwrap().read_to_end(&mut captured).unwrap();
    assert!(path.wait().unwrap().success());
    assert_eq!(captured[..4], [0x0A, 0x0D, 0x0D, 0x0A]);
}

#[test]
fn the_capture_is_written_if_a_program_cannot_be_started() {
    const SENT: usize = 50;
    let room = Room::new();
    let file = room.file("path.pcapng");
    let left = format!("bash -c 'for n in {{1..{SENT}}}; do echo $n >/dev/udp/$PEER/9; done'");
    let output = room.run(&["--capture", &file, "--left", &left, "--", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    let captured = packets(&file).len();
    assert!(captured >= SENT, "{captured}");
}
