//! Damage that a network does to frames, and frames that are not TCP.

use nichrome_lro::Medium;
use nichrome_wire::Ipv6Header;
use nichrome_wire::checksum::checksum;

use super::choose::Choose;

/// Flips a bit, cuts the frame, pads it, or makes a fragment of it.
pub fn damage(choose: &mut impl Choose, frame: &mut Vec<u8>, medium: Medium) {
    let bits = frame.len() as u32 * 8;
    match choose.below(8) {
        0..3 => {
            let bit = choose.below(bits) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        3 => frame.truncate(choose.below(frame.len() as u32 + 1) as usize),
        4 => unusual_checksum(frame),
        5 => frame.extend(std::iter::repeat_n(0, 1 + choose.below(20) as usize)),
        _ => fragment(choose, frame, medium),
    }
}

/// Makes the TCP checksum of an IPv4 segment 0xFFFF, which is equivalent to 0, and which no sender computes.
/// Sets the urgent pointer, which the engines ignore, so that the checksum is right.
fn unusual_checksum(frame: &mut [u8]) {
    let Some(ip) = frame.windows(2).position(|pair| pair == [0x45, 0]).filter(|at| *at < 20) else { return };
    let Some(tcp) = frame.get_mut(ip + 20..).filter(|tcp| tcp.len() >= 20 && tcp[18..20] == [0, 0]) else {
        return;
    };
    tcp.copy_within(16..18, 18);
    tcp[16..18].fill(0xFF);
}

/// Sets the fragment field of an untagged IPv4 packet.
fn fragment(choose: &mut impl Choose, frame: &mut [u8], medium: Medium) {
    let at = if medium == Medium::Ip { 0 } else { 14 };
    if frame.get(at) == Some(&0x45) && frame.len() >= at + 20 && (at == 0 || frame[12..14] == [8, 0]) {
        let field: [u8; 2] = choose.one_of(&[[0x20, 0], [0x20, 3], [0, 9]]);
        frame[at + 6..at + 8].copy_from_slice(&field);
        frame[at + 10..at + 12].fill(0);
        let sum = checksum(&frame[at..at + 20]);
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Sets the data offset of an untagged IPv6 segment to a random value, or ends the packet within the TCP
/// header; the payload length stays right.
pub fn malform_tcp_header(choose: &mut impl Choose, frame: &mut Vec<u8>, medium: Medium) {
    let at = if medium == Medium::Ip { 0 } else { 14 };
    let is_ipv6 = medium == Medium::Ip || frame.get(12..14) == Some(&[0x86, 0xDD]);
    let packet = frame.get(at..).filter(|_| is_ipv6).and_then(Ipv6Header::new);
    let Some(Ok(upper)) = packet.filter(|ip| ip.version() == 6).map(|ip| ip.upper_layer()) else { return };
    let transport = at + Ipv6Header::LEN + upper.offset;
    if choose.chance(50) {
        frame[transport + 12] = (choose.below(16) as u8) << 4;
    } else {
        frame.truncate(transport + choose.below(20) as usize);
        let payload_len = (frame.len() - at - Ipv6Header::LEN) as u16;
        frame[at + 4..at + 6].copy_from_slice(&payload_len.to_be_bytes());
    }
}

/// A frame that is not TCP: another protocol, noise, or nothing.
pub fn not_tcp(choose: &mut impl Choose, medium: Medium) -> Vec<u8> {
    let mut packet = match choose.below(4) {
        0 => vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 8, 0, 0],
        1 => (0..choose.below(80)).map(|_| choose.below(256) as u8).collect(),
        2 => [&[0x60, 0, 0, 0, 0, 8, 58, 64][..], &[0; 40]].concat(),
        _ => Vec::new(),
    };
    if medium == Medium::Ethernet {
        let ethertype: [u8; 2] = choose.one_of(&[[8, 0], [0x86, 0xDD], [8, 6], [0x81, 0]]);
        packet.splice(0..0, [&[2; 12][..], &ethertype].concat());
    }
    packet
}
