//! The packet type of live paths: a frame with its checksum state.

use std::io::IoSlice;

use nichrome_port::{Arena, Piece, WireFrame};
use nichrome_tso::complete_checksum;
use nichrome_wan::{Packet, ethernet};
use nichrome_wire::{ChecksumState, Ecn, VirtioNetRepr, ipv4_fragments};

/// A frame and its checksum state.
#[derive(Debug)]
pub struct PathFrame {
    frame: Piece,
    /// Checksum state; unchecked once a bit was flipped.
    pub checksum: ChecksumState,
}

impl PathFrame {
    /// Wraps a received or segmented frame.
    pub fn new(frame: Piece, checksum: ChecksumState) -> Self {
        Self { frame, checksum }
    }

    /// Unwraps the frame.
    pub(crate) fn into_frame(self) -> Piece {
        self.frame
    }

    /// Copies the packet to memory of its own instead of an arena: copies are rare.
    fn copy(&self) -> Self {
        Self::new(self.frame.to_vec().into(), self.checksum)
    }

    /// Completes a partial checksum.
    fn complete(&mut self) {
        let virtio = VirtioNetRepr { checksum: self.checksum, gso: None };
        if let ChecksumState::Partial { .. } = self.checksum
            && complete_checksum(&mut self.frame, &virtio).is_ok()
        {
            self.checksum = ChecksumState::Valid;
        }
    }
}

/// Converts a packet to a received frame, whose virtio_net_hdr has the packet's checksum state.
impl From<PathFrame> for WireFrame<PathFrame> {
    #[inline]
    fn from(packet: PathFrame) -> Self {
        let virtio = VirtioNetRepr { checksum: packet.checksum, gso: None }.emit();
        Self { buffer: packet, virtio }
    }
}

/// Copies `parts` into the arena as one frame.
pub(crate) fn gather(arena: &mut Arena, parts: &[IoSlice<'_>]) -> Piece {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut room = arena.room(len);
    for part in parts {
        let (place, rest) = room.split_at_mut(part.len());
        place.copy_from_slice(part);
        room = rest;
    }
    arena.take(len)
}

impl AsRef<[u8]> for PathFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Packet for PathFrame {
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

    /// Completes a partial checksum before fragmentation.
    fn fragments(&self, mtu: u16) -> Option<Vec<Self>> {
        let mut whole = self.copy();
        whole.complete();
        let fragments = ipv4_fragments(whole.as_ref(), mtu)?.into_iter();
        Some(fragments.map(|bytes| Self::new(bytes.into(), whole.checksum)).collect())
    }

    /// Completes a partial checksum first, so that the receiver can detect the flipped bit.
    fn flip_bit(&mut self, bit: usize) {
        self.complete();
        ethernet::flip_bit(&mut self.frame, bit);
        self.checksum = ChecksumState::Unchecked;
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.copy())
    }

    fn ecn(&self) -> Ecn {
        ethernet::ecn(self.as_ref())
    }

    fn mark_ce(&mut self) {
        ethernet::mark_ce(&mut self.frame);
    }
}
