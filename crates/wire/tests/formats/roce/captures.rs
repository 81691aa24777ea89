//! Every RoCE packet of the captures: parsed, its ICRC verified, built again to the same bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;

use nichrome_wire::rdma::{DatagramWriter, IcrcCheck, IcrcChecker, ROCE_PORT, Repr, UdpFlow};
use nichrome_wire::{AddressPair, EtherType, IpProtocol, Ipv4Repr, Ipv6Repr, LinkHeader, UdpHeader};
use pcap_file::pcap::PcapReader;

/// A capture and its RoCE packets, as `tshark -r FILE -Y infiniband | wc -l` counts them.
pub(crate) struct Capture {
    pub(crate) file: &'static str,
    packets: usize,
}

pub(crate) const CAPTURES: [Capture; 3] = [
    Capture { file: "rxe-read-loss.pcap", packets: 790 },
    Capture { file: "rxe-verbs.pcap", packets: 441 },
    Capture { file: "rxe-write-loss.pcap", packets: 887 },
];

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures"))
}

/// A RoCE packet of a capture.
pub(crate) struct Packet {
    /// Its number in the capture, from 1.
    pub(crate) number: usize,
    pub(crate) flow: UdpFlow,
    /// The identification of IPv4.
    pub(crate) ident: Option<u16>,
    pub(crate) datagram: Vec<u8>,
}

/// The RoCE packets of a capture.
pub(crate) fn packets(file: &str) -> Vec<Packet> {
    let mut reader = PcapReader::new(File::open(folder().join(file)).unwrap()).unwrap();
    let mut packets = Vec::new();
    let mut number = 0;
    while let Some(packet) = reader.next_packet() {
        number += 1;
        packets.extend(roce_packet(number, &packet.unwrap().data));
    }
    packets
}

fn roce_packet(number: usize, frame: &[u8]) -> Option<Packet> {
    let link = LinkHeader::new(frame).unwrap();
    let (addresses, ident, udp) = match link.ethertype() {
        EtherType::IPV4 => {
            let (ip, payload) = Ipv4Repr::parse(link.payload()).unwrap();
            let udp = (ip.protocol == IpProtocol::UDP).then_some(payload)?;
            (AddressPair::V4 { src: ip.src, dst: ip.dst }, Some(ip.ident), udp)
        }
        EtherType::IPV6 => {
            let (ip, payload) = Ipv6Repr::parse(link.payload()).unwrap();
            let udp = (ip.next_header == IpProtocol::UDP).then_some(payload)?;
            (AddressPair::V6 { src: ip.src, dst: ip.dst }, None, udp)
        }
        _ => return None,
    };
    // Linux's rxe sends no UDP checksum, not even over IPv6.
    let header = UdpHeader::new(udp).unwrap();
    let flow = UdpFlow { addresses, src_port: header.src_port(), dst_port: header.dst_port() };
    let datagram = header.payload().unwrap().to_vec();
    (flow.dst_port == ROCE_PORT).then_some(Packet { number, flow, ident, datagram })
}

fn rebuilt(packet: &Packet) -> Vec<u8> {
    let (repr, payload) = Repr::parse(&packet.datagram).unwrap();
    let mut buffer = vec![0xA5; repr.datagram_len(payload.len())];
    let ident = packet.ident.unwrap_or_default();
    let mut writer = DatagramWriter::new(&repr, payload.len(), &packet.flow, ident, &mut buffer).unwrap();
    writer.payload().copy_from_slice(payload);
    assert_eq!(writer.finish(), buffer.len());
    buffer
}

#[test]
fn every_packet_parses_and_is_rebuilt_and_every_icrc_is_right() {
    for Capture { file, packets: expected } in CAPTURES {
        let packets = packets(file);
        assert_eq!(packets.len(), expected, "{file}");
        let mut checker = IcrcChecker::default();
        for packet in packets {
            let right = match packet.ident {
                None | Some(0) => IcrcCheck::Valid,
                Some(ident) => IcrcCheck::ValidForIdent(ident),
            };
            let at = format!("{file}, frame {}", packet.number);
            assert_eq!(checker.check(&packet.flow, &packet.datagram), right, "{at}");
            assert_eq!(rebuilt(&packet), packet.datagram, "{at}");
        }
    }
}

#[test]
fn no_capture_is_left_out() {
    let present: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("rxe-"))
        .collect();
    assert_eq!(present, CAPTURES.map(|capture| capture.file.to_owned()).into());
}
