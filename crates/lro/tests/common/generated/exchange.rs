//! UDP datagrams of one sender, and how they are built.

use nichrome_lro::Medium;
use nichrome_wire::checksum::checksum;
use nichrome_wire::{AddressPair, IpProtocol, Network, TcpFrame, transmitted_checksum};

use super::choose::Choose;

/// Returns the frame of a UDP datagram that has the addresses, ports and payload of a segment.
pub fn datagram(segment: &TcpFrame, medium: Medium) -> Vec<u8> {
    let segment = TcpFrame { options: Vec::new(), ..segment.clone() };
    let (mut frame, ip) = match medium {
        Medium::Ip => (segment.build_ip(), 0),
        Medium::Ethernet => (segment.build(), 14 + 4 * segment.tags.len()),
    };
    let udp = frame.len() - segment.payload.len() - 20;
    frame.drain(udp + 8..udp + 20);
    let (total, length) = ((frame.len() - ip) as u16, (frame.len() - udp) as u16);
    let addresses = match &segment.network {
        Network::Ipv4 { src, dst, .. } => {
            frame[ip + 9] = IpProtocol::UDP.0;
            frame[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
            complete_ipv4(&mut frame[ip..udp]);
            AddressPair::V4 { src: *src, dst: *dst }
        }
        Network::Ipv6 { src, dst, extensions, .. } => {
            let announces = if extensions.is_empty() { ip + 6 } else { ip + 40 };
            frame[announces] = IpProtocol::UDP.0;
            frame[ip + 4..ip + 6].copy_from_slice(&(total - 40).to_be_bytes());
            AddressPair::V6 { src: *src, dst: *dst }
        }
    };
    frame[udp + 4..udp + 6].copy_from_slice(&length.to_be_bytes());
    frame[udp + 6..udp + 8].fill(0);
    let sum = addresses.pseudo_header(IpProtocol::UDP, length.into()).add_bytes(&frame[udp..]).finish();
    frame[udp + 6..udp + 8].copy_from_slice(&transmitted_checksum(sum).to_be_bytes());
    frame
}

/// Writes the checksum of an IPv4 header.
fn complete_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A sender of datagrams.
pub struct Exchange {
    /// Addresses, ports, and the other header fields that do not change.
    next: TcpFrame,
    /// Payload of most datagrams, in bytes.
    size: usize,
    step: u16,
}

impl Exchange {
    /// A sender with the addresses and ports of `fields`, which a TCP connection may use, too.
    pub fn new(choose: &mut impl Choose, fields: TcpFrame) -> Self {
        Self { next: fields, size: choose.one_of(&[1200, 100, 30, 1, 8000]), step: choose.one_of(&[1, 0, 2]) }
    }

    /// The next datagram.
    pub fn send(&mut self, choose: &mut impl Choose, medium: Medium) -> Vec<u8> {
        let mut fields = self.next.clone();
        let mut has_checksum = true;
        let mut len = self.size;
        match choose.below(32) {
            0..24 => {}
            24..26 => len = choose.below(self.size as u32) as usize,
            26 => len += 1,
            27 => has_checksum = false,
            28 => self.size = choose.one_of(&[1200, 100, 30, 1, 8000]),
            29 => len = 0,
            _ => with_another_field(choose, &mut fields.network),
        }
        if let Network::Ipv4 { ident, .. } = &mut self.next.network {
            *ident = ident.wrapping_add(self.step);
        }
        let first = choose.below(256) as u8;
        fields.payload = (0..len).map(|at| first.wrapping_add(at as u8)).collect();
        let mut frame = datagram(&fields, medium);
        if !has_checksum {
            let udp = frame.len() - len - 8;
            frame[udp + 6..udp + 8].fill(0);
        }
        frame
    }
}

fn with_another_field(choose: &mut impl Choose, network: &mut Network) {
    match network {
        Network::Ipv4 { ttl, options, .. } => match choose.below(2) {
            0 => *ttl -= 1,
            _ => *options = vec![1; 4],
        },
        Network::Ipv6 { hop_limit, .. } => *hop_limit -= 1,
    }
}
