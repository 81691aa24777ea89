//! The memory of a TPACKET_V3 receive ring: blocks that the kernel fills with frames and hands over one by one
//! (Linux Documentation/networking/packet_mmap.rst).

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use nichrome_wire::{VirtioNetHeader, VlanTag};
use rustix::io;

use crate::mapping::{Mapping, Plain, plain};
use crate::stripped_tag::stripped_tag;

/// A frame in a block, valid until the next is taken.
pub(super) struct RingFrame<'a> {
    /// Its virtio_net_hdr.
    pub virtio: VirtioNetHeader,
    /// Its bytes, without the tag.
    pub bytes: &'a [u8],
    /// The outermost VLAN tag, which the kernel has taken out.
    pub tag: Option<VlanTag>,
    /// Whether the end is missing, because the frame did not fit into a block.
    pub is_cut: bool,
}

/// The blocks and the place in them up to which frames were taken.
#[derive(Debug)]
pub(super) struct Blocks {
    memory: Mapping,
    block_size: usize,
    current: usize,
    /// What is left of the current block; `None` while it is the kernel's.
    rest: Option<Rest>,
}

/// The frames of a block that are still to be taken.
#[derive(Clone, Copy, Debug)]
struct Rest {
    frames: u32,
    /// Where the next one's header is, in bytes from the start of the block.
    offset: usize,
}

impl Blocks {
    /// Maps the ring that was made for `socket`.
    pub(super) fn map(socket: BorrowedFd<'_>, block_size: usize, blocks: usize) -> io::Result<Self> {
        let memory = Mapping::of(socket, 0, block_size * blocks)?;
        Ok(Self { memory, block_size, current: 0, rest: None })
    }

    /// Whether a frame can be taken.
    #[inline]
    pub(super) fn is_ready(&mut self) -> bool {
        loop {
            match self.rest.or_else(|| self.open()) {
                None => return false,
                Some(Rest { frames: 0, .. }) => self.close(),
                rest => {
                    self.rest = rest;
                    return true;
                }
            }
        }
    }

    /// The next frame; `None` where there is none. A block goes back to the kernel with the call after its last frame.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RingFrame<'_>> {
        if !self.is_ready() {
            return None;
        }
        // A frame that does not lie in the block would end it.
        let Rest { frames, offset } = self.rest.replace(Rest { frames: 0, offset: 0 })?;
        let header: libc::tpacket3_hdr = self.read(offset)?;
        self.rest = Some(Rest { frames: frames - 1, offset: offset + header.tp_next_offset as usize });
        let start = offset + usize::from(header.tp_mac);
        let virtio = self.bytes(start.checked_sub(VirtioNetHeader::LEN)?, VirtioNetHeader::LEN)?;
        let virtio = VirtioNetHeader::from_bytes(virtio.first_chunk()?);
        let bytes = self.bytes(start, header.tp_snaplen as usize)?;
        Some(RingFrame { virtio, bytes, tag: tag(&header), is_cut: header.tp_snaplen < header.tp_len })
    }

    /// Opens the current block if the kernel has handed it over.
    #[inline]
    fn open(&self) -> Option<Rest> {
        // Acquire: what the kernel wrote into the block before it changed the status is visible after this.
        if self.status()?.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header: libc::tpacket_hdr_v1 = self.read(BLOCK_HEADER)?;
        Some(Rest { frames: header.num_pkts, offset: header.offset_to_first_pkt as usize })
    }

    /// Hands the current block back.
    fn close(&mut self) {
        self.rest = None;
        if let Some(status) = self.status() {
            // Release: the kernel writes into the block only after we have read the last of it.
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.current = (self.current + 1) % (self.memory.len() / self.block_size);
    }

    /// The word that says whose the current block is.
    #[allow(unsafe_code)]
    #[inline]
    fn status(&self) -> Option<&AtomicU32> {
        let place = self.place(BLOCK_HEADER, size_of::<AtomicU32>())?;
        // SAFETY: the place lies in the mapping and is aligned, as blocks begin at pages. The kernel changes the word
        // while we look at it, which is what atomics are for.
        Some(unsafe { place.cast().as_ref() })
    }

    /// A structure of numbers, `offset` bytes into the current block.
    #[allow(unsafe_code)]
    #[inline]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        let place = self.place(offset, size_of::<T>())?;
        // SAFETY: the bytes lie in the mapping, are a `T` whatever they are, and are ours: this is called after the
        // kernel has handed over the block, and it does not write to it until it gets it back.
        Some(unsafe { place.cast::<T>().read_unaligned() })
    }

    /// `len` bytes, `offset` bytes into the current block.
    #[allow(unsafe_code)]
    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let place = self.place(offset, len)?;
        // SAFETY: the bytes lie in the mapping and are ours: this is called after the kernel has handed over the block,
        // and to hand it back takes `&mut self`, for which this borrow must have ended.
        Some(unsafe { slice::from_raw_parts(place.as_ptr(), len) })
    }

    /// Where in memory `len` bytes from `offset` of the current block are; `None` where they are not all in it.
    #[allow(unsafe_code)]
    #[inline]
    fn place(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.block_size {
            return None;
        }
        // SAFETY: `current` is the number of a block, so that this is inside the mapping.
        Some(unsafe { self.memory.start().add(self.current * self.block_size + offset) })
    }
}

// What a block and each frame in it begin with.
plain!(libc::tpacket_hdr_v1, libc::tpacket3_hdr);

/// Where in a block its header is: behind version and the offset of private data, which we have none of.
const BLOCK_HEADER: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr);

/// The tag that the kernel took out of a frame.
#[inline]
fn tag(header: &libc::tpacket3_hdr) -> Option<VlanTag> {
    stripped_tag(header.tp_status, header.hv1.tp_vlan_tci as u16, header.hv1.tp_vlan_tpid)
}
