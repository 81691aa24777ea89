//! tshark with our dissector (dist/wireshark/star.lua) sees every field of every packet, and nothing
//! malformed.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use etherparse::PacketBuilder;
use nichrome_wire::AddressPair;
use nichrome_wire::rdma::{QpNumber, RKey, ROCE_PORT};
use nichrome_wire::star::{
    Atomic, Authentication, CqeNotice, Data, Element, Epoch, Flags, Message, NextLease, Repr, Request,
    Target, Wqe, WqeFlags, segments,
};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use super::generated::{Generated, packet, sum};
use crate::installed;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/wireshark/star.lua");
const NOTHING: [&str; 0] = [];

fn frame(packet: &Generated, datagram: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ip = match packet.flow.addresses {
        AddressPair::V4 { src, dst } => ethernet.ipv4(src.octets(), dst.octets(), 64),
        AddressPair::V6 { src, dst } => ethernet.ipv6(src.octets(), dst.octets(), 64),
    };
    let mut frame = Vec::new();
    ip.udp(packet.flow.src_port, packet.flow.dst_port).write(&mut frame, datagram).unwrap();
    frame
}

fn capture(folder: &TempDir, frames: &[Vec<u8>]) -> PathBuf {
    let path = folder.path().join("star.pcap");
    let mut writer = PcapWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
    for frame in frames {
        let time = std::time::Duration::ZERO;
        writer.write_packet(&PcapPacket::new(time, frame.len() as u32, frame)).unwrap();
    }
    path
}

/// Returns the lines that tshark prints of a capture with our dissector.
fn tshark(capture: &Path, arguments: &[&str]) -> Vec<String> {
    let script = format!("lua_script:{SCRIPT}");
    let read = ["-X", &script, "-r", capture.to_str().unwrap()];
    installed::tshark(&[&read[..], arguments].concat())
}

/// The fields of a packet in the order of [`FIELDS`], as tshark prints them; several of one name with commas.
struct Line {
    fields: Vec<(&'static str, Box<dyn Display>)>,
}

/// Every field of the dissector.
const FIELDS: [&str; 65] = [
    "star.version",
    "star.type",
    "star.flags",
    "star.flags.last",
    "star.flags.solicited",
    "star.flags.to_server",
    "star.flags.ecn_echo",
    "star.flags.refused",
    "star.flags.authenticated",
    "star.flags.reserved",
    "star.flags.reserved_4",
    "star.length",
    "star.reason",
    "star.connection",
    "star.sequence",
    "star.stamp",
    "star.address",
    "star.key",
    "star.capability.base",
    "star.capability.len",
    "star.capability.rights",
    "star.capability.server",
    "star.lease",
    "star.stored_before",
    "star.atomic.opcode",
    "star.atomic.ticket",
    "star.atomic.compare",
    "star.atomic.swap_or_add",
    "star.wqe.opcode",
    "star.wqe.flags",
    "star.wqe.flags.signaled",
    "star.wqe.flags.fence",
    "star.wqe.flags.solicited",
    "star.wqe.flags.inline",
    "star.wqe.segments",
    "star.wqe.wr_id",
    "star.wqe.immediate",
    "star.wqe.invalidate",
    "star.wqe.address",
    "star.wqe.key",
    "star.wqe.len",
    "star.wqe.compare",
    "star.wqe.swap_or_add",
    "star.wqe.inline",
    "star.segment.address",
    "star.segment.len",
    "star.segment.lkey",
    "star.segment.code",
    "star.region.key",
    "star.region.address",
    "star.region.len",
    "star.region.rights",
    "star.region.code",
    "star.lease.masked_key",
    "star.close.status",
    "star.cqe.wr_id",
    "star.cqe.status",
    "star.cqe.completed",
    "star.cqe.notice",
    "star.cqe.len",
    "star.cqe.immediate",
    "star.cqe.invalidate",
    "star.payload",
    "star.tag",
    "star.epoch",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex8(value: u8) -> String {
    format!("0x{value:02x}")
}

fn hex32(value: u32) -> String {
    format!("0x{value:08x}")
}

fn hex64(value: u64) -> String {
    format!("0x{value:016x}")
}

fn bit(set: bool) -> String {
    u8::from(set).to_string()
}

impl Line {
    fn put(&mut self, field: &'static str, value: impl Display + 'static) {
        assert!(FIELDS.contains(&field));
        self.fields.push((field, Box::new(value)));
    }

    /// The line that tshark is to print.
    fn text(&self) -> String {
        let value = |name: &&str| {
            let values: Vec<String> = self
                .fields
                .iter()
                .filter(|(field, _)| field == name)
                .map(|(_, value)| value.to_string())
                .collect();
            values.join(",")
        };
        FIELDS.iter().map(value).collect::<Vec<_>>().join("\t")
    }

    fn of(packet: &Generated, datagram: &[u8]) -> Self {
        let mut line = Self { fields: Vec::new() };
        let Repr { flags, connection, sequence, stamp, message } = packet.repr;
        line.put("star.version", 2);
        line.put("star.type", message.packet_type() as u8);
        line.put("star.flags", hex8(flags.bits()));
        for (name, flag) in [
            ("star.flags.last", Flags::LAST),
            ("star.flags.solicited", Flags::SOLICITED),
            ("star.flags.to_server", Flags::TO_SERVER),
            ("star.flags.ecn_echo", Flags::ECN_ECHO),
            ("star.flags.refused", Flags::REFUSED),
            ("star.flags.authenticated", Flags::AUTHENTICATED),
        ] {
            line.put(name, bit(flags.contains(flag)));
        }
        line.put("star.flags.reserved", bit(false));
        line.put("star.flags.reserved_4", bit(false));
        line.put("star.length", u16::from_be_bytes([datagram[2], datagram[3]]));
        line.put("star.connection", hex32(connection.value()));
        line.put("star.sequence", sequence.0);
        line.put("star.stamp", stamp.0);
        line.message(&message, &packet.payload);
        if flags.contains(Flags::AUTHENTICATED) {
            line.put("star.tag", hex64(Authentication::covered(&packet.flow, datagram, sum).unwrap()));
        } else {
            line.put("star.epoch", hex32(packet.epoch.0));
        }
        line
    }

    fn message(&mut self, message: &Message, payload: &[u8]) {
        match *message {
            Message::Wqep(element) => self.element(&element, payload),
            Message::Cqep(cqe) => {
                self.put("star.cqe.wr_id", hex64(cqe.wr_id));
                self.put("star.cqe.status", cqe.status.code());
                self.put("star.cqe.completed", cqe.completed as u8);
                self.put("star.cqe.len", cqe.len);
                match cqe.notice {
                    None => self.put("star.cqe.notice", 0),
                    Some(CqeNotice::Immediate(data)) => {
                        self.put("star.cqe.notice", 1);
                        self.put("star.cqe.immediate", hex(&data.0));
                    }
                    Some(CqeNotice::Invalidate(key)) => {
                        self.put("star.cqe.notice", 2);
                        self.put("star.cqe.invalidate", hex32(key.0));
                    }
                }
            }
            Message::Rdp(span) | Message::Gd(span, _) | Message::Aop(span, _) => {
                self.put("star.address", hex64(span.address));
                self.put("star.key", hex32(span.key));
                self.put("star.capability.base", hex64(span.capability.base));
                self.put("star.capability.len", span.capability.len);
                self.put("star.capability.rights", hex8(span.capability.rights.bits()));
                self.put("star.capability.server", format!("0x{:06x}", span.capability.server.value()));
                self.put("star.lease", span.capability.lease.0);
                if let Message::Aop(_, Atomic { kind, ticket, operands }) = *message {
                    self.put("star.atomic.opcode", kind as u8);
                    self.put("star.atomic.ticket", ticket);
                    self.put("star.atomic.compare", hex64(operands.compare));
                    self.put("star.atomic.swap_or_add", hex64(operands.swap_or_add));
                }
            }
            Message::Ra(Err(reason)) | Message::Sdp(Err(reason)) => self.put("star.reason", reason as u16),
            Message::Ea | Message::Sdp(Ok(())) => {}
            Message::Ra(Ok(before)) => self.put("star.stored_before", format!("0x{before:04x}")),
        }
        let is_data = matches!(message, Message::Rdp(_) | Message::Sdp(_));
        if is_data && !payload.is_empty() {
            self.put("star.payload", hex(payload));
        }
    }

    fn element(&mut self, element: &Element, payload: &[u8]) {
        let opcode: u8 = match element {
            Element::Work(wqe) => {
                self.work(wqe, payload);
                opcode_of(&wqe.request)
            }
            Element::Register(region) => {
                self.put("star.region.key", hex32(region.key.0));
                self.put("star.region.address", hex64(region.address));
                self.put("star.region.len", region.len);
                self.put("star.region.rights", hex8(region.rights));
                self.put("star.region.code", hex64(region.code.0));
                16
            }
            Element::Deregister(key) => {
                self.put("star.region.key", hex32(key.0));
                17
            }
            Element::Lease(NextLease { lease, masked_key }) => {
                self.put("star.lease", lease.0);
                self.put("star.lease.masked_key", hex(masked_key));
                19
            }
            Element::Rights(rights) => {
                self.put("star.region.rights", hex8(*rights));
                20
            }
            Element::Close(status) => {
                self.put("star.close.status", status.code());
                18
            }
        };
        self.put("star.wqe.opcode", opcode);
        let (flags, inline) = match element {
            Element::Work(Wqe { flags, data, .. }) => (*flags, *data == Data::Inline),
            _ => (WqeFlags::NONE, false),
        };
        let [signaled, fence, solicited] =
            [WqeFlags::SIGNALED, WqeFlags::FENCE, WqeFlags::SOLICITED].map(|flag| flags.contains(flag));
        let all = [signaled, fence, solicited, inline].into_iter().enumerate();
        self.put("star.wqe.flags", hex8(all.map(|(place, set)| u8::from(set) << place).sum()));
        self.put("star.wqe.flags.signaled", bit(signaled));
        self.put("star.wqe.flags.fence", bit(fence));
        self.put("star.wqe.flags.solicited", bit(solicited));
        self.put("star.wqe.flags.inline", bit(inline));
    }

    fn work(&mut self, wqe: &Wqe, payload: &[u8]) {
        self.put("star.wqe.wr_id", hex64(wqe.wr_id));
        self.put("star.wqe.len", wqe.len);
        match wqe.request {
            Request::SendWithImmediate(data) | Request::WriteWithImmediate(_, data) => {
                self.put("star.wqe.immediate", hex(&data.0));
            }
            Request::SendWithInvalidate(key) => self.put("star.wqe.invalidate", hex32(key.0)),
            _ => {}
        }
        if let Some(Target { address, rkey: RKey(key) }) = target_of(&wqe.request) {
            self.put("star.wqe.address", hex64(address));
            self.put("star.wqe.key", hex32(key));
        }
        if let Request::CompareSwap(_, operands) | Request::FetchAdd(_, operands) = wqe.request {
            self.put("star.wqe.compare", hex64(operands.compare));
            self.put("star.wqe.swap_or_add", hex64(operands.swap_or_add));
        }
        match wqe.data {
            Data::Segments(count) => {
                self.put("star.wqe.segments", count);
                for segment in segments(payload) {
                    self.put("star.segment.address", hex64(segment.address));
                    self.put("star.segment.len", segment.len);
                    self.put("star.segment.lkey", hex32(segment.lkey));
                    self.put("star.segment.code", hex64(segment.code.0));
                }
            }
            Data::Inline => {
                self.put("star.wqe.segments", 0);
                if !payload.is_empty() {
                    self.put("star.wqe.inline", hex(payload));
                }
            }
        }
    }
}

fn opcode_of(request: &Request) -> u8 {
    match request {
        Request::Send => 1,
        Request::SendWithImmediate(_) => 2,
        Request::SendWithInvalidate(_) => 3,
        Request::Write(_) => 4,
        Request::WriteWithImmediate(..) => 5,
        Request::Read(_) => 6,
        Request::CompareSwap(..) => 7,
        Request::FetchAdd(..) => 8,
        Request::Receive => 9,
    }
}

fn target_of(request: &Request) -> Option<Target> {
    match *request {
        Request::Write(target) | Request::WriteWithImmediate(target, _) | Request::Read(target) => {
            Some(target)
        }
        Request::CompareSwap(target, _) | Request::FetchAdd(target, _) => Some(target),
        _ => None,
    }
}

/// Packets from the port of live adapters, which is below that of StaR, and from ports above.
fn generated(count: usize) -> Vec<Generated> {
    let mut runner = TestRunner::deterministic();
    let mut packets: Vec<_> = (0..count).map(|_| packet().new_tree(&mut runner).unwrap().current()).collect();
    for (nth, packet) in packets.iter_mut().enumerate() {
        let port = &mut packet.flow.src_port;
        *port = if nth % 2 == 0 { ROCE_PORT } else { *port | 0xC000 };
    }
    packets
}

#[test]
fn tshark_takes_packets_to_the_port_of_roce_for_roce() {
    let mut packets = generated(2);
    packets.iter_mut().for_each(|packet| packet.flow.dst_port = ROCE_PORT);
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<Vec<u8>> = packets.iter().map(|packet| frame(packet, &[0; 32])).collect();
    let protocols = tshark(&capture(&folder, &frames), &["-T", "fields", "-e", "_ws.col.Protocol"]);
    assert_eq!(protocols, ["RRoCE", "RRoCE"]);
}

#[test]
fn tshark_sees_every_field_and_nothing_malformed() {
    let packets = generated(1000);
    let datagrams: Vec<Vec<u8>> = packets.iter().map(Generated::built).collect();
    let frames: Vec<Vec<u8>> =
        packets.iter().zip(&datagrams).map(|(packet, bytes)| frame(packet, bytes)).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = capture(&folder, &frames);
    let mut arguments = vec!["-T", "fields"];
    FIELDS.iter().for_each(|field| arguments.extend(["-e", field]));
    let theirs = tshark(&file, &arguments);
    assert_eq!(theirs.len(), packets.len());
    let mut seen = [false; FIELDS.len()];
    for ((packet, datagram), theirs) in packets.iter().zip(&datagrams).zip(theirs) {
        let line = Line::of(packet, datagram);
        assert_eq!(theirs, line.text(), "{:?}", packet.repr);
        for (place, name) in FIELDS.iter().enumerate() {
            seen[place] |= line.fields.iter().any(|(field, _)| field == name);
        }
    }
    assert_eq!(seen, [true; FIELDS.len()]);
    assert_eq!(tshark(&file, &["-Y", "_ws.malformed || star.malformed || _ws.lua.error"]), NOTHING);
}

#[test]
fn tshark_summarizes_a_packet_in_one_line() {
    let connection = QpNumber::new(0x11).unwrap();
    let mut packet = generated(1).remove(0);
    let message = Message::Ra(Err(nichrome_wire::star::Reason::Bounds));
    let flags = Flags::REFUSED;
    let (sequence, stamp) = (nichrome_wire::SeqNumber(5), nichrome_wire::star::Stamp(0));
    packet.repr = Repr { flags, connection, sequence, stamp, message };
    packet.payload.clear();
    let folder = tempfile::tempdir().unwrap();
    let file = capture(&folder, &[frame(&packet, &packet.built())]);
    let lines = tshark(&file, &["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]);
    assert_eq!(lines, ["StaR\tRA Conn=0x11 Seq=5 Refused: Bounds"]);
    assert_ne!(tshark(&file, &["-Y", "star.refusal"]), NOTHING);
}

#[test]
fn tshark_marks_packets_of_another_start() {
    let mut packets = generated(10);
    for (nth, packet) in packets.iter_mut().enumerate() {
        packet.epoch = Epoch(0xABCD_0000 + u32::from(nth == 3));
        packet.repr.flags = packet.repr.flags.without(Flags::AUTHENTICATED);
    }
    let frames: Vec<Vec<u8>> = packets.iter().map(|packet| frame(packet, &packet.built())).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = capture(&folder, &frames);
    let marked = ["-Y", "star.other_epoch", "-T", "fields", "-e", "frame.number", "-o"];
    assert_eq!(tshark(&file, &[&marked[..], &["star.epoch:0xABCD0000"]].concat()), ["4"]);
    assert_eq!(tshark(&file, &[&marked[..], &["star.epoch:"]].concat()), NOTHING);
}

/// The dissector marks as malformed exactly the packets that our parser refuses. In every damaged packet, the
/// epoch that it derives from the CRC is wrong.
#[test]
fn tshark_marks_damaged_packets() {
    let mut runner = TestRunner::deterministic();
    let damage = (any::<prop::sample::Index>(), 1u8..);
    let packets = generated(1000);
    let mut refused = Vec::new();
    let mut damaged = |packet: &Generated| {
        let (at, bits) = damage.new_tree(&mut runner).unwrap().current();
        let mut datagram = packet.built();
        let at = at.index(datagram.len().min(48));
        datagram[at] ^= bits;
        refused.push(Repr::parse(&datagram).is_err());
        frame(packet, &datagram)
    };
    let frames: Vec<Vec<u8>> = packets.iter().map(&mut damaged).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = capture(&folder, &frames);
    let fields = ["-T", "fields", "-e", "star.malformed", "-e", "star.epoch"];
    let theirs = tshark(&file, &fields);
    assert_eq!(theirs.len(), packets.len());
    for ((line, packet), refused) in theirs.iter().zip(&packets).zip(&refused) {
        let (malformed, epoch) = line.split_once('\t').unwrap();
        assert_eq!(!malformed.is_empty(), *refused, "{:?}", packet.repr);
        assert_ne!(epoch, hex32(packet.epoch.0));
    }
    let count = refused.iter().filter(|refused| **refused).count();
    assert!((100..900).contains(&count), "{count}");
    assert_eq!(tshark(&file, &["-Y", "_ws.lua.error"]), NOTHING);
}
