//! The examples of docs/star.md.

use nichrome_wire::star::Rights;

use super::common::{LEASE, Packet, Server, ends, secret};

const SPECIFICATION: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/star.md"));

/// Bytes in the format of the specification: words of four, eight per line.
fn dump(bytes: &[u8]) -> String {
    let words: Vec<String> =
        bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    words.chunks(8).map(|line| format!("    {}\n", line.join(" "))).collect()
}

fn is_in_the_specification(bytes: &[u8]) {
    assert!(SPECIFICATION.contains(&dump(bytes)), "not in docs/star.md:\n{}", dump(bytes));
}

#[test]
fn the_examples_of_the_specification_equal_built_packets() {
    let rdp = Packet::rdp(0x111, 0x1_0000, b"StaR 2019!").built();
    is_in_the_specification(&rdp);
    is_in_the_specification(&Server::new(None).exchange(&rdp).unwrap().datagram);
    let gd = Packet::gd(0x111, 0x1_0000, 8).authenticated().built();
    is_in_the_specification(&secret().lease_key(&ends(), LEASE).bytes());
    let code = secret().grant_code(&ends(), 0x111, (0x1_0000, 1000), Rights::STORE | Rights::FETCH);
    is_in_the_specification(&code.0.to_be_bytes());
    is_in_the_specification(&gd);
    is_in_the_specification(&Server::authenticating().exchange(&gd).unwrap().datagram);
}
