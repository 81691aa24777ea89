//! What Linux's siw sent over TCP (tests/captures/siw-verbs.pcap), for tests of several crates.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use pcap_file::pcap::PcapReader;

/// Source and destination: address and port.
#[allow(unreachable_pub)]
pub type Direction = ([u8; 6], [u8; 6]);

/// Returns the bytes of each direction of each TCP connection.
#[allow(clippy::unwrap_used, unreachable_pub)]
pub fn streams() -> BTreeMap<Direction, Vec<u8>> {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/siw-verbs.pcap"));
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut streams: BTreeMap<Direction, (u32, Vec<u8>)> = BTreeMap::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data;
        let Some(ip) = frame.get(14..).filter(|ip| frame[12..14] == [8, 0] && ip[9] == 6) else { continue };
        let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[20..len];
        let end = |address: &[u8], port: &[u8]| [address, port].concat().try_into().unwrap();
        let direction = (end(&ip[12..16], &tcp[..2]), end(&ip[16..20], &tcp[2..4]));
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
        if tcp[13] & 0x02 != 0 {
            streams.insert(direction, (sequence.wrapping_add(1), Vec::new()));
            continue;
        }
        let data = &tcp[usize::from(tcp[12] >> 4) * 4..];
        let Some((first, bytes)) = streams.get_mut(&direction) else { continue };
        let at = sequence.wrapping_sub(*first) as usize;
        // The path neither lost nor reordered; what TCP sent again is there already.
        if at <= bytes.len() && at + data.len() > bytes.len() {
            bytes.truncate(at);
            bytes.extend(data);
        }
    }
    streams.into_iter().map(|(direction, (_, bytes))| (direction, bytes)).collect()
}
