//! scapy computes the same ICRC, for the captures and for packets of ours.

use std::fs::File;
use std::iter::repeat_with;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nichrome_wire::{
    AddressPair, Ecn, Fragment, HeaderOptions, IpProtocol, Ipv4Repr, TrafficClass, UdpChecksum, UdpRepr,
};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::captures::{CAPTURES, folder, packets};
use super::generated::{Generated, packet};
use super::properties::built;
use crate::installed;

/// Returns how many RoCE packets scapy found right in each file.
fn scapy_counts(files: &[PathBuf]) -> Vec<usize> {
    // Debian's scapy is installed for Debian's Python.
    let python = "/usr/bin/python3";
    let has_scapy = Command::new(python).args(["-c", "import scapy.contrib.roce"]).output();
    let has_scapy = has_scapy.is_ok_and(|output| output.status.success());
    assert!(has_scapy, "scapy is not installed: apt-get install python3-scapy");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats/roce/icrc.py");
    let output = installed::run(Command::new(python).arg(script).args(files), "python3");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

/// An IP packet; `None` over IPv6, whose ICRC scapy does not know.
fn ip_packet(packet: &Generated) -> Option<Vec<u8>> {
    let AddressPair::V4 { src, dst } = packet.flow.addresses else { return None };
    let udp = UdpRepr {
        src_port: packet.flow.src_port,
        dst_port: packet.flow.dst_port,
        checksum: UdpChecksum::Present,
    };
    let mut datagram = Vec::new();
    udp.emit(&packet.flow.addresses, &built(packet), &mut datagram).unwrap();
    let ip = Ipv4Repr {
        src,
        dst,
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: TrafficClass::from(Ecn::Ect0),
        ident: 0,
        dont_fragment: true,
        fragment: Fragment::default(),
        options: HeaderOptions::default(),
    };
    let mut out = Vec::new();
    ip.emit(datagram.len(), &mut out).unwrap();
    out.extend(datagram);
    Some(out)
}

/// Writes a capture of `count` packets of ours.
fn write_ours(path: &Path, count: usize) {
    let mut runner = TestRunner::deterministic();
    let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    let mut generate = || packet().new_tree(&mut runner).unwrap().current();
    for packet in repeat_with(|| ip_packet(&generate())).flatten().take(count) {
        writer.write_packet(&PcapPacket::new(Duration::ZERO, packet.len() as u32, &packet)).unwrap();
    }
}

#[test]
fn scapy_computes_the_same_icrc() {
    let ours = Path::new(env!("CARGO_TARGET_TMPDIR")).join("roce-ours.pcap");
    write_ours(&ours, 500);
    let mut files: Vec<_> = CAPTURES.iter().map(|capture| folder().join(capture.file)).collect();
    files.push(ours);
    let over_ipv4 = |file| packets(file).iter().filter(|packet| packet.ident.is_some()).count();
    let mut expected: Vec<_> = CAPTURES.iter().map(|capture| over_ipv4(capture.file)).collect();
    expected.push(500);
    assert_eq!(scapy_counts(&files), expected);
}
