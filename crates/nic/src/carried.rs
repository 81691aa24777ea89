//! The packet type of live paths: a frame in a pool buffer with its checksum state.

use nichrome_lro::ChecksumStatus;
use nichrome_port::Buffer;
use nichrome_wan::{Packet, ethernet};
use nichrome_wire::{Ecn, ipv4_fragments};

/// A frame and its checksum state.
#[derive(Debug)]
pub struct Carried {
    memory: Memory,
    /// Checksum state; unknown once a bit was flipped.
    pub checksum: ChecksumStatus,
}

/// The frame's memory. Copies are rare, so they do not come from the pool.
#[derive(Debug)]
enum Memory {
    Pooled(Buffer),
    Own(Vec<u8>),
}

impl Carried {
    /// Wraps a received or segmented frame.
    pub fn new(buffer: Buffer, checksum: ChecksumStatus) -> Self {
        Self { memory: Memory::Pooled(buffer), checksum }
    }
}

impl AsRef<[u8]> for Carried {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.memory {
            Memory::Pooled(buffer) => buffer,
            Memory::Own(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for Carried {
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Pooled(buffer) => buffer,
            Memory::Own(bytes) => bytes,
        }
    }
}

impl Packet for Carried {
    #[inline]
    fn wire_len(&self) -> usize {
        self.as_ref().len()
    }

    fn network_len(&self) -> usize {
        ethernet::network_len(self.as_ref())
    }

    fn least_mtu(&self) -> usize {
        ethernet::least_mtu(self.as_ref())
    }

    fn fragments(&self, mtu: u16) -> Option<Vec<Self>> {
        let fragments = ipv4_fragments(self.as_ref(), mtu)?.into_iter();
        Some(fragments.map(|bytes| Self { memory: Memory::Own(bytes), checksum: self.checksum }).collect())
    }

    fn flip_bit(&mut self, bit: usize) {
        ethernet::flip_bit(self.as_mut(), bit);
        self.checksum = ChecksumStatus::Unknown;
    }

    fn duplicate(&self) -> Option<Self> {
        Some(Self { memory: Memory::Own(self.as_ref().to_vec()), checksum: self.checksum })
    }

    fn ecn(&self) -> Ecn {
        ethernet::ecn(self.as_ref())
    }

    fn mark_ce(&mut self) {
        ethernet::mark_ce(self.as_mut());
    }
}
