//! AF_PACKET with a receive ring in shared memory (TPACKET_V3): the fallback where AF_XDP is unavailable.
//!
//! Frames carry a virtio_net_hdr, which describes pending offloads of local senders. Frames coalesced by the
//! kernel, or not yet segmented, have up to 64 KB. VLAN tags that the kernel strips are reinserted. The
//! kernel's own stack receives the same frames.
//!
//! **Latency.** The kernel hands over a block when it is full, or when a timer of 1 ms (the minimum; up to
//! one tick, 4 ms, before Linux 6.18) finds frames in it. So a single frame is delayed by up to 1 ms. Each
//! period can consume a block: a worker may pause for as many ms as there are blocks before frames are
//! dropped.

mod blocks;
mod transmit;

use std::io::IoSlice;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use thiserror::Error;

use crate::interface_name::InterfaceName;
use crate::netlink::Interface;
use crate::os_error::OsError;
use crate::packet_options::{
    bind_to_interface, make_promiscuous, option, packet_socket, refuse_all, refuse_outgoing, set_option,
};
use crate::pool::{Buffer, BufferPool};
use crate::stripped_tag::{ADDRESSES_LEN, TAG_LEN, behind_a_tag, tag_bytes};
use crate::wire_queue::{
    LINK_OVERHEAD, TransmitError, VLAN_TAG, WireFrame, WireQueue, WireStats, pending_error,
};
use blocks::{Blocks, RingFrame};
use transmit::TransmitQueue;

/// Size of a block in bytes: several frames of maximum length.
const BLOCK_SIZE: usize = 1 << 18;

/// Timeout after which the kernel hands over a partly filled block, in ms.
const BLOCK_TIMEOUT: u32 = 1;

/// A failure to open a packet ring.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PacketRingError {
    /// This user may not open packet sockets.
    #[error(
        "cannot open {0} for frames: that needs CAP_NET_RAW (sudo, or 'setcap cap_net_raw,cap_net_admin+ep')"
    )]
    NotPermitted(InterfaceName),
    /// The interface was removed, or is in another network namespace.
    #[error("cannot open {0} for frames: there is no such interface here ('ip link' lists them)")]
    NoInterface(InterfaceName),
    /// The kernel cannot allocate the ring.
    #[error(
        "cannot open {name} for frames: the kernel has no memory for a receive ring of {bytes} bytes; use fewer blocks"
    )]
    Memory {
        /// The interface.
        name: InterfaceName,
        /// The requested size, in bytes.
        bytes: usize,
    },
    /// The kernel refused another operation.
    #[error("cannot open {name} for frames: the kernel refuses {what} ({error})")]
    Refused {
        /// The interface.
        name: InterfaceName,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        error: OsError,
    },
}

/// Memory of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRingConfig {
    /// Blocks of 256 KB for reception, at least 2. Also the ms that the worker may pause without loss.
    pub blocks: usize,
    /// The maximum number of held frames: each is copied into a buffer, allocated on first use.
    pub buffers: usize,
    /// Size of a buffer, in bytes. Longer frames are allocated individually.
    pub buffer_size: usize,
    /// Capacity of the transmit queue, in frames.
    pub transmit_frames: usize,
}

impl Default for PacketRingConfig {
    /// 16 MB of blocks, and up to 16 MB of buffers for frames of 1,518 bytes.
    fn default() -> Self {
        Self { blocks: 64, buffers: 8192, buffer_size: 2048, transmit_frames: 1024 }
    }
}

/// How the kernel distributes frames over a group of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By a symmetric hash of addresses and ports: both directions of a connection go to the same ring.
    Hash,
    /// By the CPU that received the frame.
    Cpu,
    /// By the card's receive queue.
    Queue,
}

impl Fanout {
    /// Returns the kernel's constant. Sent frames are not delivered to the group.
    const fn type_and_flags(self) -> u32 {
        let kind = match self {
            Self::Hash => libc::PACKET_FANOUT_HASH,
            Self::Cpu => libc::PACKET_FANOUT_CPU,
            Self::Queue => libc::PACKET_FANOUT_QM,
        };
        kind | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING
    }
}

/// A receive ring for all frames of an interface, and a transmit queue. Frames sent through it are not
/// received. The interface is in promiscuous mode while the ring is open.
#[derive(Debug)]
pub struct PacketRing {
    blocks: Blocks,
    socket: OwnedFd,
    pool: BufferPool,
    queue: TransmitQueue,
    stats: WireStats,
    is_starved: bool,
}

impl PacketRing {
    /// Opens a ring for all frames of `interface`, which must be in the network namespace of this thread.
    pub fn open(interface: &Interface, config: PacketRingConfig) -> Result<Self, PacketRingError> {
        let ring = Self::prepare(interface, config)?;
        bind_to_interface(&ring.socket, interface.index).map_err(refused(interface, "to bind the socket"))?;
        Ok(ring)
    }

    /// Opens `rings` rings, over which the kernel distributes the frames of `interface`, which must be up.
    pub fn open_group(
        interface: &Interface,
        rings: NonZeroUsize,
        fanout: Fanout,
        config: PacketRingConfig,
    ) -> Result<Vec<Self>, PacketRingError> {
        let rings: Result<Vec<Self>, _> =
            (0..rings.get()).map(|_| Self::prepare(interface, config)).collect();
        let rings = rings?;
        join(&rings, interface.index, fanout)
            .map_err(refused(interface, "to share it among several rings"))?;
        Ok(rings)
    }

    /// Opens a ring that receives nothing yet.
    fn prepare(interface: &Interface, config: PacketRingConfig) -> Result<Self, PacketRingError> {
        let socket = packet_socket().map_err(refused(interface, "a packet socket"))?;
        let set = |name, value: libc::c_int, what| {
            set_option(&socket, name, value).map_err(refused(interface, what))
        };
        set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int, "TPACKET_V3")?;
        set(libc::PACKET_VNET_HDR, 1, "PACKET_VNET_HDR")?;
        set(libc::PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING")?;
        let blocks = make_ring(&socket, config.blocks).map_err(|error| match error {
            Errno::NOMEM => {
                PacketRingError::Memory { name: interface.name, bytes: config.blocks * BLOCK_SIZE }
            }
            error => refused(interface, "a receive ring")(error),
        })?;
        make_promiscuous(&socket, interface.index).map_err(refused(interface, "promiscuous mode"))?;
        // The kernel allows one VLAN tag over the MTU.
        let max_len = interface.mtu as usize + LINK_OVERHEAD - VLAN_TAG;
        Ok(Self {
            blocks,
            socket,
            pool: BufferPool::growing(config.buffers, config.buffer_size),
            queue: TransmitQueue::new(config.transmit_frames, max_len),
            stats: WireStats::default(),
            is_starved: false,
        })
    }
}

/// Maps the kernel's error of operation `what`.
fn refused(interface: &Interface, what: &'static str) -> impl Fn(Errno) -> PacketRingError + use<> {
    let name = interface.name;
    move |error| match error {
        Errno::PERM => PacketRingError::NotPermitted(name),
        Errno::NODEV | Errno::NXIO => PacketRingError::NoInterface(name),
        error => PacketRingError::Refused { name, what, error: error.into() },
    }
}

fn make_ring(socket: &OwnedFd, blocks: usize) -> io::Result<Blocks> {
    // Not a limit: the kernel only checks that the block size is a multiple of it.
    let frame_size = 2048;
    let request = libc::tpacket_req3 {
        tp_block_size: BLOCK_SIZE as u32,
        tp_block_nr: blocks as u32,
        tp_frame_size: frame_size,
        tp_frame_nr: BLOCK_SIZE as u32 / frame_size * blocks as u32,
        tp_retire_blk_tov: BLOCK_TIMEOUT,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set_option(socket, libc::PACKET_RX_RING, request)?;
    Blocks::map(socket.as_fd(), BLOCK_SIZE, blocks)
}

/// Binds the rings and joins them to a group. A filter drops all frames until then, since each ring would
/// receive every frame.
fn join(rings: &[PacketRing], index: u32, fanout: Fanout) -> io::Result<()> {
    let mut group = fanout.type_and_flags() << 16;
    for (place, PacketRing { socket, .. }) in rings.iter().enumerate() {
        refuse_all(socket)?;
        bind_to_interface(socket, index)?;
        if place == 0 {
            // UNIQUEID: the kernel picks an unused group number.
            set_option(socket, libc::PACKET_FANOUT, group | libc::PACKET_FANOUT_FLAG_UNIQUEID << 16)?;
            group |= option::<u32>(socket, libc::PACKET_FANOUT)? & 0xFFFF;
        } else {
            set_option(socket, libc::PACKET_FANOUT, group)?;
        }
    }
    // Older kernels (6.1) heed neither the group's flag nor the sockets' option.
    rings.iter().try_for_each(|ring| refuse_outgoing(&ring.socket))
}

/// Copies a frame out of the ring and reinserts its VLAN tag.
#[inline]
fn copy(mut buffer: Buffer, frame: &RingFrame<'_>) -> WireFrame<Buffer> {
    let mut virtio = frame.virtio;
    buffer.fill(|bytes| match (frame.tag, frame.bytes.split_at_checked(ADDRESSES_LEN)) {
        (Some(tag), Some((addresses, rest))) => {
            bytes.reserve(frame.bytes.len() + TAG_LEN);
            bytes.extend_from_slice(addresses);
            bytes.extend(tag_bytes(tag));
            bytes.extend_from_slice(rest);
            virtio = behind_a_tag(virtio);
        }
        _ => bytes.extend_from_slice(frame.bytes),
    });
    WireFrame { buffer, virtio }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl WireQueue for PacketRing {
    type Buffer = Buffer;

    /// Frames stay in the ring while all buffers are held.
    #[inline]
    fn receive(&mut self, batch: &mut Vec<WireFrame<Buffer>>, max: usize) -> io::Result<()> {
        let before = batch.len();
        self.is_starved = false;
        while batch.len() - before < max && self.blocks.is_ready() {
            let Some(buffer) = self.pool.take() else {
                self.is_starved = true;
                return Ok(());
            };
            match self.blocks.next() {
                Some(frame) if !frame.is_cut => batch.push(copy(buffer, &frame)),
                _ => self.stats.receive_dropped += 1,
            }
        }
        if batch.len() == before { pending_error(&self.socket) } else { Ok(()) }
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    #[inline]
    fn transmit(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        self.queue.push(parts)
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        self.queue.send(self.socket.as_fd())
    }

    fn unsent(&self) -> usize {
        self.queue.len()
    }

    fn stats(&mut self) -> io::Result<WireStats> {
        // Reading resets the kernel's counters to zero.
        let new: libc::tpacket_stats_v3 = option(&self.socket, libc::PACKET_STATISTICS)?;
        self.stats.receive_ring_full += u64::from(new.tp_drops);
        self.stats.freezes += u64::from(new.tp_freeze_q_cnt);
        self.stats.transmit_invalid = self.queue.refused;
        self.stats.transmit_dropped = self.queue.dropped;
        Ok(self.stats)
    }
}
