//! The receive ring of TPACKET_V3: blocks of frames that the kernel hands over one by one (Linux
//! Documentation/networking/packet_mmap.rst).

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use nichrome_wire::{VirtioNetHeader, VlanTag};
use rustix::io;

use crate::mapping::{Mapping, Plain, plain};
use crate::stripped_tag::stripped_tag;

/// A frame in a block, valid until the next call of `next`.
pub(super) struct RingFrame<'a> {
    /// The virtio_net_hdr.
    pub virtio: VirtioNetHeader,
    /// The bytes, without the stripped VLAN tag.
    pub bytes: &'a [u8],
    /// The outermost VLAN tag, which the kernel stripped.
    pub tag: Option<VlanTag>,
    /// True if the kernel truncated the frame because it did not fit the block.
    pub is_cut: bool,
}

/// The ring's blocks and the read position.
#[derive(Debug)]
pub(super) struct Blocks {
    memory: Mapping,
    block_size: usize,
    current: usize,
    /// Unread frames of the current block; `None` while the kernel owns the block.
    unread: Option<UnreadFrames>,
}

/// The unread frames of a block.
#[derive(Clone, Copy, Debug)]
struct UnreadFrames {
    frames: u32,
    /// Offset of the next frame's header in the block, in bytes.
    offset: usize,
}

impl Blocks {
    /// Maps the ring of `socket`.
    pub(super) fn map(socket: BorrowedFd<'_>, block_size: usize, blocks: usize) -> io::Result<Self> {
        let memory = Mapping::of(socket, 0, block_size * blocks)?;
        Ok(Self { memory, block_size, current: 0, unread: None })
    }

    /// Returns true if a frame is available.
    #[inline]
    pub(super) fn is_ready(&mut self) -> bool {
        loop {
            match self.unread.or_else(|| self.open()) {
                None => return false,
                Some(UnreadFrames { frames: 0, .. }) => self.close(),
                unread => {
                    self.unread = unread;
                    return true;
                }
            }
        }
    }

    /// Returns the next frame, if any. Returns a block to the kernel in the call after its last frame.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RingFrame<'_>> {
        if !self.is_ready() {
            return None;
        }
        // An early return below, for a frame that exceeds the block, ends the block.
        let UnreadFrames { frames, offset } = self.unread.replace(UnreadFrames { frames: 0, offset: 0 })?;
        let header: libc::tpacket3_hdr = self.read(offset)?;
        self.unread =
            Some(UnreadFrames { frames: frames - 1, offset: offset + header.tp_next_offset as usize });
        let start = offset + usize::from(header.tp_mac);
        let virtio = self.bytes(start.checked_sub(VirtioNetHeader::LEN)?, VirtioNetHeader::LEN)?;
        let virtio = VirtioNetHeader::from_bytes(virtio.first_chunk()?);
        let bytes = self.bytes(start, header.tp_snaplen as usize)?;
        Some(RingFrame { virtio, bytes, tag: tag(&header), is_cut: header.tp_snaplen < header.tp_len })
    }

    /// Opens the current block if the kernel has handed it over.
    #[inline]
    fn open(&self) -> Option<UnreadFrames> {
        // Acquire: what the kernel wrote into the block before it changed the status is visible after this.
        if self.status()?.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header: libc::tpacket_hdr_v1 = self.read(BLOCK_HEADER)?;
        Some(UnreadFrames { frames: header.num_pkts, offset: header.offset_to_first_pkt as usize })
    }

    /// Returns the current block to the kernel.
    fn close(&mut self) {
        self.unread = None;
        if let Some(status) = self.status() {
            // Release: the kernel writes into the block only after we have read the last of it.
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.current = (self.current + 1) % (self.memory.len() / self.block_size);
    }

    /// Returns the status word, which tells whether the kernel or this process owns the current block.
    #[allow(unsafe_code)]
    #[inline]
    fn status(&self) -> Option<&AtomicU32> {
        let place = self.place(BLOCK_HEADER, size_of::<AtomicU32>())?;
        // SAFETY: the word lies in the mapping and is aligned, since blocks begin at pages. The kernel may
        // change it concurrently, hence an atomic.
        Some(unsafe { place.cast().as_ref() })
    }

    /// Reads a structure of integers at `offset` in the current block.
    #[allow(unsafe_code)]
    #[inline]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        let place = self.place(offset, size_of::<T>())?;
        // SAFETY: the bytes lie in the mapping, any bytes are a valid `T`, and the kernel does not write the
        // block: callers run between its hand-over and its return.
        Some(unsafe { place.cast::<T>().read_unaligned() })
    }

    /// Borrows `len` bytes at `offset` in the current block.
    #[allow(unsafe_code)]
    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let place = self.place(offset, len)?;
        // SAFETY: the bytes lie in the mapping, and the kernel does not write the block between its hand-over
        // and its return, which takes `&mut self` and so ends this borrow.
        Some(unsafe { slice::from_raw_parts(place.as_ptr(), len) })
    }

    /// Returns the address of `len` bytes at `offset` in the current block; `None` if they exceed it.
    #[allow(unsafe_code)]
    #[inline]
    fn place(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.block_size {
            return None;
        }
        // SAFETY: `current` is a valid block index, so the result lies in the mapping.
        Some(unsafe { self.memory.start().add(self.current * self.block_size + offset) })
    }
}

// The headers of a block and of each frame in it.
plain!(libc::tpacket_hdr_v1, libc::tpacket3_hdr);

/// Offset of the block header: behind the version and the private-data offset.
const BLOCK_HEADER: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr);

/// Returns the VLAN tag that the kernel stripped from the frame.
#[inline]
fn tag(header: &libc::tpacket3_hdr) -> Option<VlanTag> {
    stripped_tag(header.tp_status, header.hv1.tp_vlan_tci as u16, header.hv1.tp_vlan_tpid)
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::mem;

    const BLOCK: usize = 4096;

    /// Returns a ring of two blocks, which the kernel owns.
    fn ring() -> Blocks {
        Blocks { memory: Mapping::zeroed(2 * BLOCK).unwrap(), block_size: BLOCK, current: 0, unread: None }
    }

    /// Writes a value into the ring, as the kernel does.
    fn put<T: Copy>(blocks: &Blocks, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= blocks.memory.len());
        // SAFETY: the bytes lie in the mapping, and nothing borrows them.
        unsafe { blocks.memory.start().add(offset).cast::<T>().write_unaligned(value) };
    }

    /// Writes a frame whose header is at `offset`; returns the offset of its bytes.
    fn put_frame(blocks: &Blocks, offset: usize, bytes: &[u8], tci: Option<u16>) -> usize {
        // SAFETY: all fields are integers.
        let mut header: libc::tpacket3_hdr = unsafe { mem::zeroed() };
        let start = offset + size_of::<libc::tpacket3_hdr>() + VirtioNetHeader::LEN;
        header.tp_next_offset = 256;
        header.tp_mac = (start - offset) as u16;
        (header.tp_snaplen, header.tp_len) = (bytes.len() as u32, 60);
        if let Some(tci) = tci {
            header.tp_status = libc::TP_STATUS_VLAN_VALID;
            header.hv1.tp_vlan_tci = tci.into();
        }
        put(blocks, offset, header);
        put(blocks, start - VirtioNetHeader::LEN, [1u8; VirtioNetHeader::LEN]);
        bytes.iter().enumerate().for_each(|(nth, byte)| put(blocks, start + nth, *byte));
        start
    }

    /// Hands a block over with `frames` frames from `first` on.
    fn hand_over(blocks: &Blocks, block: usize, frames: u32, first: u32) {
        let at = block * BLOCK + BLOCK_HEADER;
        put(blocks, at + mem::offset_of!(libc::tpacket_hdr_v1, num_pkts), frames);
        put(blocks, at + mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt), first);
        put(blocks, at + mem::offset_of!(libc::tpacket_hdr_v1, block_status), libc::TP_STATUS_USER);
    }

    #[test]
    fn frames_are_read_block_by_block_and_each_block_returns_to_the_kernel() {
        let mut blocks = ring();
        assert!(!blocks.is_ready() && blocks.next().is_none());
        put_frame(&blocks, 128, &[7; 60], None);
        put_frame(&blocks, 128 + 256, &[8; 59], Some(5));
        hand_over(&blocks, 0, 2, 128);
        let frame = blocks.next().unwrap();
        assert_eq!((frame.bytes, frame.tag, frame.is_cut), (&[7; 60][..], None, false));
        assert_eq!(frame.virtio, VirtioNetHeader::from_bytes(&[1; VirtioNetHeader::LEN]));
        let frame = blocks.next().unwrap();
        assert_eq!((frame.bytes, frame.tag.map(|tag| tag.tci), frame.is_cut), (&[8; 59][..], Some(5), true));
        assert_eq!(blocks.status().unwrap().load(Ordering::Relaxed), libc::TP_STATUS_USER);
        assert!(blocks.next().is_none());
        assert_eq!(blocks.current, 1);
        put_frame(&blocks, BLOCK + 128, &[9; 60], None);
        hand_over(&blocks, 1, 1, 128);
        assert_eq!(blocks.next().unwrap().bytes, [9; 60]);
        assert!(blocks.next().is_none());
        assert_eq!(blocks.current, 0);
        assert_eq!(blocks.status().unwrap().load(Ordering::Relaxed), libc::TP_STATUS_KERNEL);
    }

    #[test]
    fn a_frame_that_exceeds_its_block_ends_it() {
        let mut blocks = ring();
        let start = put_frame(&blocks, 128, &[7; 60], None);
        let len_at = 128 + mem::offset_of!(libc::tpacket3_hdr, tp_snaplen);
        for (len, fits) in [(BLOCK - start, true), (BLOCK - start + 1, false)] {
            put(&blocks, len_at, len as u32);
            blocks.current = 0;
            hand_over(&blocks, 0, 1, 128);
            assert_eq!(blocks.next().map(|frame| frame.bytes.len()), fits.then_some(len));
            assert!(blocks.next().is_none());
        }
    }

    proptest! {
        #[test]
        fn any_content_is_read_within_the_block(content in proptest::collection::vec(any::<u8>(), 200), first in 0u32..5000) {
            let mut blocks = ring();
            content.iter().enumerate().for_each(|(nth, byte)| put(&blocks, 64 + nth, *byte));
            hand_over(&blocks, 0, 3, first);
            let mut frames = 0;
            while let Some(frame) = blocks.next() {
                prop_assert!(frame.bytes.len() <= BLOCK);
                frames += 1;
            }
            prop_assert!(frames <= 3);
        }
    }
}
