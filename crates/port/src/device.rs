//! A network interface that sends and receives single frames with a virtio_net_hdr, without blocking.

use std::io::IoSlice;
use std::os::fd::AsFd;

use nichrome_wire::VirtioNetHeader;
use rustix::io;

/// Maximum length of a received frame in bytes: virtio_net_hdr, Ethernet header, two VLAN tags, 64 KB IP
/// packet.
pub const MAX_RECEIVE: usize = VirtioNetHeader::LEN + 14 + 8 + 65_535;

/// A received frame and its pending offloads.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Pending segmentation and checksum offloads.
    pub virtio: VirtioNetHeader,
    /// Offset of the frame in the buffer, in bytes.
    pub at: usize,
    /// The frame, starting at the Ethernet header.
    pub frame: &'a [u8],
}

impl<'a> Received<'a> {
    /// Splits a virtio_net_hdr from the frame behind it; `None` if `bytes` is too short.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (virtio, frame) = bytes.split_first_chunk()?;
        Some(Self { virtio: VirtioNetHeader::from_bytes(virtio), at: VirtioNetHeader::LEN, frame })
    }
}

/// An interface that exchanges frames with a virtio_net_hdr of 10 bytes.
pub trait Device: AsFd {
    /// Receives a frame into `buffer`, which has [`MAX_RECEIVE`] bytes; longer frames are truncated. Returns
    /// `None` if no frame is pending.
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>>;

    /// Sends a frame, the concatenation of at most 1,024 `parts`. The first part begins with the
    /// virtio_net_hdr.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Sends a contiguous frame that begins with its virtio_net_hdr.
    fn send_bytes(&self, bytes: &[u8]) -> io::Result<()>;
}
