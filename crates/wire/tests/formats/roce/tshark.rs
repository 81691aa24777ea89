//! tshark sees the same packets with the same fields.

use std::collections::BTreeMap;

use nichrome_wire::rdma::{BthHeader, Extension, Opcode, Operation, Position, Transport};

use super::captures::{CAPTURES, Capture, folder, packets};
use crate::installed::tshark;

/// Frame number, opcode, padding, destination queue pair and sequence number of each packet, in order.
type Fields = Vec<[u32; 5]>;

fn our_fields(file: &str) -> Fields {
    packets(file)
        .into_iter()
        .map(|packet| {
            let bth = BthHeader::new(&packet.datagram).unwrap();
            let number = packet.number as u32;
            [number, bth.opcode_byte().into(), bth.pad() as u32, bth.dest_qp().value(), bth.psn().value()]
        })
        .collect()
}

fn tshark_fields(file: &str) -> Fields {
    let path = folder().join(file);
    let fields = ["frame.number", "infiniband.bth.opcode", "infiniband.bth.padcnt", "infiniband.bth.destqp"];
    let fields = [&fields[..], &["infiniband.bth.psn"]].concat();
    let fields: Vec<&str> = fields.into_iter().flat_map(|field| ["-e", field]).collect();
    let all = ["-r", path.to_str().unwrap(), "-Y", "infiniband.bth", "-T", "fields"];
    let lines = tshark(&[&all[..], &fields].concat());
    lines.iter().map(|line| fields_of(line).unwrap_or_else(|| panic!("{file}: {line}"))).collect()
}

fn fields_of(line: &str) -> Option<[u32; 5]> {
    let number = |field: &str| match field.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => field.parse().ok(),
    };
    let fields: Option<Vec<u32>> = line.split('\t').map(number).collect();
    fields?.try_into().ok()
}

#[test]
fn tshark_reads_the_same_headers() {
    for Capture { file, .. } in CAPTURES {
        assert_eq!(our_fields(file), tshark_fields(file), "{file}");
    }
}

/// Wireshark's name of an opcode, without the name of its transport service.
fn name_in_wireshark(opcode: Opcode) -> Option<String> {
    let operation = match opcode.operation() {
        Operation::Send => "SEND",
        Operation::Write => "RDMA WRITE",
        Operation::ReadRequest => return Some("RDMA READ Request".to_owned()),
        Operation::ReadResponse => "RDMA READ response",
        Operation::Acknowledge => return Some("Acknowledge".to_owned()),
        Operation::AtomicAcknowledge => return Some("ATOMIC Acknowledge".to_owned()),
        Operation::CompareSwap => return Some("CmpSwap".to_owned()),
        Operation::FetchAdd => return Some("FetchAdd".to_owned()),
        // Wireshark 4.0 does not know annex A19.
        Operation::Flush | Operation::AtomicWrite => return None,
        Operation::CongestionNotification => return None,
    };
    let position = match opcode.position() {
        Position::First => " First",
        Position::Middle => " Middle",
        Position::Last => " Last",
        Position::Only => " Only",
    };
    let tail = match opcode.extensions() {
        [.., Extension::ImmDt] => " with Immediate",
        [.., Extension::Ieth] => " with Invalidate",
        _ => "",
    };
    Some([operation, position, tail].concat())
}

#[test]
fn tshark_gives_the_opcodes_of_xrc_the_same_names() {
    let lines = tshark(&["-G", "values"]);
    let prefix = "Extended Reliable Connection (XRC) - ";
    let theirs: BTreeMap<u8, String> = lines
        .iter()
        .filter_map(|line| {
            let [_, "infiniband.bth.opcode", code, name] = line.split('\t').collect::<Vec<_>>()[..] else {
                return None;
            };
            Some((code.parse().ok()?, name.strip_prefix(prefix)?.to_owned()))
        })
        .collect();
    let of_xrc = Opcode::all().filter(|opcode| opcode.transport() == Transport::Xrc);
    let ours = of_xrc.filter_map(|opcode| Some((opcode.code(), name_in_wireshark(opcode)?))).collect();
    assert_eq!(theirs, ours);
}
