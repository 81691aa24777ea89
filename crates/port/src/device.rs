//! What a driver wants of an interface: frames with their virtio_net_hdr, one at a time, without waiting.

use std::io::IoSlice;
use std::os::fd::AsFd;

use nichrome_wire::VirtioNetHeader;
use rustix::io;

/// Bytes that the longest frame takes, its virtio_net_hdr included: an IP packet of 64 KB, Ethernet, two tags.
pub const MAX_RECEIVE: usize = VirtioNetHeader::LEN + 14 + 8 + 65_535;

/// A frame, and what its sender left to do.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// What is left to do: segmentation, the checksum.
    pub virtio: VirtioNetHeader,
    /// The frame, from the Ethernet header on.
    pub frame: &'a [u8],
}

impl<'a> Received<'a> {
    /// The frame in `bytes`, which begin with the virtio_net_hdr; `None` where they are too short for one.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (virtio, frame) = bytes.split_first_chunk()?;
        Some(Self { virtio: VirtioNetHeader::from_bytes(virtio), frame })
    }
}

/// An interface whose frames come and go with a virtio_net_hdr of 10 bytes.
pub trait Device: AsFd {
    /// Receives a frame into `buffer`, which has [`MAX_RECEIVE`] bytes (what does not fit is cut off); `None` where
    /// there is none.
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>>;

    /// Sends a frame that consists of `parts`, the first of which begins with the virtio_net_hdr. At most 1,024.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Sends a frame that lies in one piece behind its virtio_net_hdr.
    fn send_bytes(&self, bytes: &[u8]) -> io::Result<()>;
}
