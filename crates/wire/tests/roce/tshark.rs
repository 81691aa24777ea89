//! tshark sees the same packets with the same fields.

use nichrome_wire::rdma::BthHeader;

use super::captures::{CAPTURES, Capture, folder, packets};
use crate::oracle::tshark;

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
