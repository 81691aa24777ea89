//! The integrity check equals that of Python's zlib.

use std::io::{Seek as _, Write as _};
use std::process::Command;

use nichrome_wire::AddressPair;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Epoch, PacketCheck};

use crate::installed;

const PROGRAM: &str = "import sys, zlib
for line in sys.stdin:
    epoch, covered = line.split()
    print(format(zlib.crc32(bytes.fromhex(covered), int(epoch)), '08x'))";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns zlib's CRC of each line's epoch and hexadecimal bytes.
fn zlib(lines: &str) -> String {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    file.rewind().unwrap();
    let output = installed::run(Command::new("python3").args(["-c", PROGRAM]).stdin(file), "python3");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_check_is_the_crc_of_zlib_begun_with_the_epoch() {
    let v4 = AddressPair::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let v6 = AddressPair::V6 { src: [1; 16].into(), dst: [2; 16].into() };
    let mut lines = String::new();
    let mut ours = String::new();
    for (addresses, hexed) in [(v4, "0a0000010a000002".to_owned()), (v6, hex(&[[1; 16], [2; 16]].concat()))] {
        for (epoch, covered) in [(0, &b""[..]), (0xDEAD_BEEF, b"123456789"), (u32::MAX, &[0; 1500])] {
            lines += &format!("{epoch} {hexed}{}\n", hex(covered));
            let flow = UdpFlow::to_star(addresses, 1234);
            let check = PacketCheck::new(Epoch(epoch)).compute(&flow, covered);
            ours += &format!("{}\n", hex(&check));
        }
    }
    assert_eq!(ours, zlib(&lines));
}
