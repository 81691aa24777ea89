//! tshark sees the same packets with the same fields.

use std::io;
use std::process::Command;

use nichrome_wire::rdma::BthHeader;

use super::captures::{CAPTURES, Capture, folder, packets};

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

/// `None` where tshark is not installed.
fn tshark_fields(file: &str) -> Option<Fields> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder().join(file)).args(["-Y", "infiniband.bth", "-T", "fields"]);
    let fields = ["frame.number", "infiniband.bth.opcode", "infiniband.bth.padcnt", "infiniband.bth.destqp"];
    for field in fields.into_iter().chain(["infiniband.bth.psn"]) {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| fields_of(line).unwrap_or_else(|| panic!("{file}: {line}"))).collect())
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
        let Some(theirs) = tshark_fields(file) else {
            assert!(std::env::var_os("CI").is_none(), "CI needs tshark: apt-get install tshark");
            eprintln!("Not compared with tshark, which is not installed: apt-get install tshark");
            return;
        };
        assert_eq!(our_fields(file), theirs, "{file}");
    }
}
