//! Tunnels that frames are sent through.

use nichrome_lro::Medium;
use nichrome_wire::checksum::checksum;

use super::choose::Choose;

/// The header that packets are wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapping {
    Ipv4,
    Ipv6,
    Pppoe,
}

/// One end of a tunnel.
pub struct Tunnel {
    pub wrapping: Wrapping,
    /// The identification of the next IPv4 header.
    pub ident: u16,
    pub step: u16,
}

impl Tunnel {
    /// A tunnel, or none.
    pub fn any(choose: &mut impl Choose, medium: Medium) -> Option<Self> {
        let wrapping = match choose.below(16) {
            13 => Wrapping::Ipv4,
            14 => Wrapping::Ipv6,
            15 if medium == Medium::Ethernet => Wrapping::Pppoe,
            _ => return None,
        };
        Some(Self { wrapping, ident: choose.one_of(&[0, u16::MAX - 2]), step: choose.one_of(&[1, 0, 2]) })
    }

    /// The packet in a frame with `tags` VLAN tags, wrapped.
    pub fn wrap(&mut self, frame: &[u8], medium: Medium, tags: usize) -> Vec<u8> {
        let link = if medium == Medium::Ip { 0 } else { 14 + 4 * tags };
        let (link, packet) = frame.split_at(link);
        let is_ipv4 = packet[0] >> 4 == 4;
        let len = packet.len() as u16;
        let protocol = if is_ipv4 { 4 } else { 41 };
        let [high, low] = (len + 2).to_be_bytes();
        let (ethertype, outer) = match self.wrapping {
            Wrapping::Ipv4 => ([0x08, 0x00], self.ipv4(protocol, len)),
            Wrapping::Ipv6 => {
                let lengths = [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol, 9]].concat();
                ([0x86, 0xDD], [lengths, vec![0xFD; 32]].concat())
            }
            Wrapping::Pppoe => {
                ([0x88, 0x64], vec![0x11, 0, 0, 7, high, low, 0, if is_ipv4 { 0x21 } else { 0x57 }])
            }
        };
        let mut link = link.to_vec();
        if let Some(field) = link.len().checked_sub(2) {
            link[field..].copy_from_slice(&ethertype);
        }
        [link, outer, packet.to_vec()].concat()
    }

    fn ipv4(&mut self, protocol: u8, len: u16) -> Vec<u8> {
        let (total, ident) = ((len + 20).to_be_bytes(), self.ident.to_be_bytes());
        self.ident = self.ident.wrapping_add(self.step);
        let fields = [&[0x45, 0][..], &total, &ident, &[0x40, 0, 64, protocol, 0, 0]].concat();
        let mut header = [&fields[..], &[192, 0, 2, 1, 192, 0, 2, 2]].concat();
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }
}
