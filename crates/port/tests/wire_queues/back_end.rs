//! The back ends that receive from and send to an interface.

use std::fmt::Debug;

use nichrome_port::{
    ChunkSize, Interface, PacketRing, PacketRingConfig, WireQueue, XdpChoice, XdpConfig, XdpCopy,
    XdpInterface, XdpMode, XdpQueue,
};

/// A back end for an interface.
pub(crate) trait BackEnd: Sized {
    type Queue: WireQueue<Buffer: Debug> + Debug;

    /// Number of VLAN tags by which a frame may exceed the MTU.
    const VLAN_TAGS: usize;

    /// Opens the back end with room for about `frames` frames of 1,500 bytes.
    fn open(interface: &Interface, frames: u32) -> Self;

    fn queue(&mut self) -> &mut Self::Queue;
}

pub(crate) struct Xdp<const GENERIC: bool> {
    _interface: XdpInterface,
    queue: XdpQueue,
}

impl<const GENERIC: bool> BackEnd for Xdp<GENERIC> {
    type Queue = XdpQueue;

    const VLAN_TAGS: usize = 2;

    fn open(interface: &Interface, frames: u32) -> Self {
        let mode = if GENERIC { XdpMode::Generic } else { XdpMode::Native };
        let interface = attach(interface, XdpChoice::Only(mode));
        assert_eq!(interface.mode(), mode);
        let chunk_size = if interface.interface().mtu > 1500 { ChunkSize::Large } else { ChunkSize::Small };
        let config = XdpConfig {
            receive_chunks: frames,
            transmit_chunks: 64,
            chunk_size,
            copy: if GENERIC { XdpCopy::Always } else { XdpCopy::WhereNeeded },
        };
        let queue = XdpQueue::open(&interface, 0, config).unwrap();
        Self { _interface: interface, queue }
    }

    fn queue(&mut self) -> &mut XdpQueue {
        &mut self.queue
    }
}

/// Attaches to an interface; panics without root, since the kernel refuses AF_XDP in user namespaces.
pub(crate) fn attach(interface: &Interface, choice: XdpChoice) -> XdpInterface {
    XdpInterface::attach(interface, choice).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) struct Ring(PacketRing);

impl BackEnd for Ring {
    type Queue = PacketRing;

    const VLAN_TAGS: usize = 1;

    fn open(interface: &Interface, frames: u32) -> Self {
        // Each millisecond can consume a block, even for a single frame, and a test thread may be delayed by
        // many milliseconds.
        let blocks = (frames as usize / 16).max(2);
        let config = PacketRingConfig {
            blocks,
            buffers: frames as usize,
            transmit_frames: 64,
            ..PacketRingConfig::default()
        };
        Self(PacketRing::open(interface, config).unwrap())
    }

    fn queue(&mut self) -> &mut PacketRing {
        &mut self.0
    }
}
