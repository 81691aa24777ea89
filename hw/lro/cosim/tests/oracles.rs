//! Independent programs find the module's aggregates well formed and their checksums right.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use nichrome_port::capture::{self, LinkType, PacketOptions};
use nichrome_wire::Instant;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/captures");

/// Runs the program on a capture, with `--verify`; returns the path of its output.
fn coalesced(name: &str, flows: &str) -> String {
    let output = format!("{}/{name}-{flows}.pcapng", env!("CARGO_TARGET_TMPDIR"));
    let status = Command::new(env!("CARGO_BIN_EXE_coalesce"))
        .args([
            &format!("{CAPTURES}/{name}.pcap"),
            &output,
            "--flows",
            flows,
            "--timer-us",
            "1000",
            "--verify",
        ])
        .status()
        .unwrap();
    assert!(status.success(), "{name} with {flows} flows");
    output
}

/// Runs the program, which must fail; returns its error message.
fn fails(input: &str, options: &[&str]) -> String {
    let output = format!("{}/fails.pcapng", env!("CARGO_TARGET_TMPDIR"));
    let run =
        Command::new(env!("CARGO_BIN_EXE_coalesce")).args([input, &output]).args(options).output().unwrap();
    assert!(!run.status.success());
    String::from_utf8(run.stderr).unwrap()
}

/// `timer_ns` has 32 bits.
#[test]
fn timers_beyond_the_register_are_refused() {
    let input = format!("{CAPTURES}/tcp-clean.pcap");
    let refused = fails(&input, &["--verify", "--timer-us", "4294968"]);
    assert!(refused.contains("--timer-us is at most 4294967"), "{refused}");
    let refused = fails(&input, &["--timer-us", &u64::MAX.to_string()]);
    assert!(refused.contains("--timer-us is at most 4294967"), "{refused}");
}

#[test]
fn frames_beyond_the_modules_limit_are_refused() {
    let path = format!("{}/long.pcapng", env!("CARGO_TARGET_TMPDIR"));
    for (len, is_taken) in [(65_535, true), (65_536, false)] {
        let mut writer = capture::create(Path::new(&path), "test").unwrap();
        let interface = writer.add_interface(LinkType::Ethernet, "lro", 0).unwrap();
        for frame in [vec![2; 60], vec![2; len]] {
            writer.write(interface, Instant::ZERO, None, [&frame], PacketOptions::default()).unwrap();
        }
        writer.finish().unwrap();
        if is_taken {
            let output = format!("{}/long-out.pcapng", env!("CARGO_TARGET_TMPDIR"));
            let mut run = Command::new(env!("CARGO_BIN_EXE_coalesce"));
            assert!(run.args([&path, &output, "--verify"]).status().unwrap().success(), "{len} bytes");
        } else {
            let refused = fails(&path, &[]);
            assert!(refused.contains("record 2 has 65536 bytes, more than 65535"), "{refused}");
        }
    }
}

/// Returns true if the IPv4 and TCP checksums of a frame are right, and the length of its payload.
fn read(frame: &[u8]) -> Option<(bool, usize)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { return None };
    let right = match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            header.header_checksum == header.calc_header_checksum()
                && tcp.calc_checksum_ipv4(header.source, header.destination) == Ok(tcp.checksum())
        }
        NetSlice::Ipv6(ip) => {
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()) == Ok(tcp.checksum())
        }
        NetSlice::Arp(_) => return None,
    };
    Some((right, tcp.payload().len()))
}

#[test]
fn etherparse_finds_every_checksum_right() {
    let mut aggregates = 0;
    for (name, flows) in
        [("tcp-clean", "1"), ("tcp-loss", "4"), ("tcp-ipv6-reorder-loss", "4"), ("tcp-no-timestamps", "1")]
    {
        let mut reader = capture::open(Path::new(&coalesced(name, flows))).unwrap();
        let mut frame = Vec::new();
        while reader.next(&mut frame).unwrap().is_some() {
            if let Some((right, payload)) = read(&frame) {
                assert!(right, "{name}: {frame:02x?}");
                aggregates += usize::from(payload > 1500);
            }
        }
    }
    assert!(aggregates > 100, "{aggregates}");
}

#[test]
fn tshark_finds_every_checksum_right() {
    for (name, flows) in [("tcp-clean", "4"), ("tcp-ipv6-reorder-loss", "1")] {
        let path = coalesced(name, flows);
        let checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
        let count = |filter: &str| {
            let output = Command::new("tshark").args(["-r", &path, "-Y", filter]).args(checks).output();
            let output = output.expect("needs tshark: install the Debian package");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).lines().count()
        };
        assert!(count("tcp.checksum.status == \"Good\"") > 50, "{name}");
        assert_eq!(
            count("tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\" || _ws.malformed"),
            0,
            "{name}"
        );
        fs::remove_file(path).unwrap();
    }
}
