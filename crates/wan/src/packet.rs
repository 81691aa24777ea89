//! The packets that a path carries.

use nichrome_wire::Ecn;

use crate::ethernet;

/// The operations that a path needs of a packet.
pub trait Packet: Sized {
    /// Returns the length including the link header, in bytes: the unit of rate limits.
    fn wire_len(&self) -> usize;

    /// Returns the length behind the link header, in bytes: the unit of MTUs and bandwidth traces. By default
    /// subtracts an untagged Ethernet header of 14 bytes.
    fn network_len(&self) -> usize {
        self.wire_len().saturating_sub(nichrome_wire::EthernetHeader::LEN)
    }

    /// Returns the length behind the link header, in bytes, up to which packets pass with any MTU:
    /// links below the minimum MTU of a protocol must fragment and reassemble by themselves. Default 0.
    fn least_mtu(&self) -> usize {
        0
    }

    /// Fragments the packet as a router does, to a [`Packet::network_len`] of at most `mtu`. `None` if its
    /// protocol forbids that, and by default.
    fn fragments(&self, mtu: u16) -> Option<Vec<Self>> {
        let _ = mtu;
        None
    }

    /// Flips a bit, counted from the start of the link header. Does nothing beyond the end.
    fn flip_bit(&mut self, bit: usize);

    /// Copies the packet; `None` if no buffer is free.
    fn duplicate(&self) -> Option<Self>;

    /// Returns the ECN bits; [`Ecn::NotEct`] for other protocols than IP.
    fn ecn(&self) -> Ecn;

    /// Sets CE and updates the IPv4 header checksum. Does nothing for other protocols than IP.
    fn mark_ce(&mut self);
}

/// An Ethernet frame.
impl Packet for Vec<u8> {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn network_len(&self) -> usize {
        ethernet::network_len(self)
    }

    fn least_mtu(&self) -> usize {
        ethernet::least_mtu(self)
    }

    fn fragments(&self, mtu: u16) -> Option<Vec<Self>> {
        nichrome_wire::ipv4_fragments(self, mtu)
    }

    fn flip_bit(&mut self, bit: usize) {
        ethernet::flip_bit(self, bit);
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn ecn(&self) -> Ecn {
        ethernet::ecn(self)
    }

    fn mark_ce(&mut self) {
        ethernet::mark_ce(self);
    }
}

/// A packet without content, for simulations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dummy {
    /// Length including the link header, in bytes.
    pub len: u32,
    /// The ECN bits.
    pub ecn: Ecn,
    /// True if an odd number of bits was flipped.
    pub corrupt: bool,
    /// An identifier for the caller; ignored by the path.
    pub id: u64,
}

impl Packet for Dummy {
    fn wire_len(&self) -> usize {
        self.len as usize
    }

    fn flip_bit(&mut self, bit: usize) {
        self.corrupt ^= bit / 8 < self.wire_len();
    }

    fn duplicate(&self) -> Option<Self> {
        Some(*self)
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_number_of_flipped_bits_corrupts_a_packet_without_content() {
        let mut packet = Dummy { len: 2, ..Dummy::default() };
        packet.flip_bit(16);
        assert!(!packet.corrupt, "beyond the end");
        packet.flip_bit(15);
        assert!(packet.corrupt);
        packet.flip_bit(0);
        assert!(!packet.corrupt);
        assert_eq!((packet.least_mtu(), packet.fragments(1500)), (0, None));
    }

    #[test]
    fn a_frame_is_as_long_as_its_bytes_and_copied_with_them() {
        let mut frame = vec![0, 1, 2];
        assert_eq!((frame.wire_len(), frame.duplicate()), (3, Some(vec![0, 1, 2])));
        frame.flip_bit(7);
        assert_eq!(frame, [1, 1, 2]);
    }
}
