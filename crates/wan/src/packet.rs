//! What a path carries.

use nichrome_wire::Ecn;

use crate::ethernet;

/// A packet, as much of it as a path must know.
pub trait Packet: Sized {
    /// Bytes, link header included: what a rate limit counts.
    fn wire_len(&self) -> usize;

    /// Bytes behind the link header: what an MTU limits and a bandwidth trace counts. Unless it says otherwise, an
    /// untagged Ethernet header of 14 bytes is taken off.
    fn network_len(&self) -> usize {
        self.wire_len().saturating_sub(nichrome_wire::EthernetHeader::LEN)
    }

    /// Bytes behind the link header that get through whatever the MTU is: a link that takes less than the packet's
    /// protocol asks for cuts packets by its own means, and puts them together again. Unless it says otherwise, none.
    fn least_mtu(&self) -> usize {
        0
    }

    /// The packet cut to several whose [`Packet::network_len`] is `mtu` at most, as a router does it; `None` where the packet's
    /// protocol does not allow it. Unless it says otherwise, none is cut.
    fn fragments(&self, mtu: u16) -> Option<Vec<Self>> {
        let _ = mtu;
        None
    }

    /// Flips a bit, counted from the first bit of the link header; beyond the end, nothing.
    fn flip_bit(&mut self, bit: usize);

    /// A copy; `None` where there is no buffer for it.
    fn duplicate(&self) -> Option<Self>;

    /// The ECN bits; [`Ecn::NotEct`] for what is not IP.
    fn ecn(&self) -> Ecn;

    /// Sets "congestion experienced", and an IPv4 header checksum right; does nothing to what is not IP.
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
    /// Bytes, link header included.
    pub len: u32,
    /// The ECN bits.
    pub ecn: Ecn,
    /// Whether an odd number of its bits was flipped.
    pub corrupt: bool,
    /// Which packet it is; a path does not look at it.
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
