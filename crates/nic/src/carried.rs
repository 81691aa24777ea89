//! The packet type of live paths: a frame in a pool buffer with its checksum state.

use nichrome_port::Buffer;
use nichrome_tso::complete_checksum;
use nichrome_wan::{Packet, ethernet};
use nichrome_wire::{ChecksumState, Ecn, VirtioNetRepr, ipv4_fragments};

/// A frame and its checksum state.
#[derive(Debug)]
pub struct Carried {
    memory: Memory,
    /// Checksum state; unchecked once a bit was flipped.
    pub checksum: ChecksumState,
}

/// The frame's memory. Copies are rare, so they do not come from the pool.
#[derive(Debug)]
enum Memory {
    Pooled(Buffer),
    Own(Vec<u8>),
}

impl Carried {
    /// Wraps a received or segmented frame.
    pub fn new(buffer: Buffer, checksum: ChecksumState) -> Self {
        Self { memory: Memory::Pooled(buffer), checksum }
    }

    /// Wraps a frame that is not in a pool buffer.
    pub(crate) fn from_bytes(bytes: Vec<u8>, checksum: ChecksumState) -> Self {
        Self { memory: Memory::Own(bytes), checksum }
    }

    fn copy(&self) -> Self {
        Self::from_bytes(self.as_ref().to_vec(), self.checksum)
    }

    /// Completes a partial checksum.
    fn complete(&mut self) {
        let virtio = VirtioNetRepr { checksum: self.checksum, gso: None };
        if let ChecksumState::Partial { .. } = self.checksum
            && complete_checksum(self.as_mut(), &virtio).is_ok()
        {
            self.checksum = ChecksumState::Valid;
        }
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

    /// The fragments have a complete checksum.
    fn fragments(&self, mtu: u16) -> Option<Vec<Self>> {
        let mut whole = self.copy();
        whole.complete();
        let fragments = ipv4_fragments(whole.as_ref(), mtu)?.into_iter();
        Some(fragments.map(|bytes| Self::from_bytes(bytes, whole.checksum)).collect())
    }

    /// A partial checksum is completed first, so that the receiver can notice.
    fn flip_bit(&mut self, bit: usize) {
        self.complete();
        ethernet::flip_bit(self.as_mut(), bit);
        self.checksum = ChecksumState::Unchecked;
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.copy())
    }

    fn ecn(&self) -> Ecn {
        ethernet::ecn(self.as_ref())
    }

    fn mark_ce(&mut self) {
        ethernet::mark_ce(self.as_mut());
    }
}
