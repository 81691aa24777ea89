//! The ways to receive from and send to an interface.

use std::fmt::Debug;

use nichrome_port::{
    ChunkSize, Interface, PacketRing, PacketRingConfig, WireQueue, XdpChoice, XdpConfig, XdpCopy, XdpError,
    XdpInterface, XdpMode, XdpQueue,
};

/// A way to receive from and send to an interface. `None` where this user may not use it.
pub(crate) trait BackEnd: Sized {
    type Queue: WireQueue<Buffer: Debug> + Debug;

    /// Opens it with room for about `frames` frames of 1,500 bytes.
    fn open(interface: &Interface, frames: u32) -> Option<Self>;

    fn queue(&mut self) -> &mut Self::Queue;
}

pub(crate) struct Xdp<const GENERIC: bool> {
    _interface: XdpInterface,
    queue: XdpQueue,
}

impl<const GENERIC: bool> BackEnd for Xdp<GENERIC> {
    type Queue = XdpQueue;

    fn open(interface: &Interface, frames: u32) -> Option<Self> {
        let mode = if GENERIC { XdpMode::Generic } else { XdpMode::Native };
        let interface = attach(interface, XdpChoice::Only(mode))?;
        assert_eq!(interface.mode(), mode);
        let chunk_size = if interface.interface().mtu > 1500 { ChunkSize::Large } else { ChunkSize::Small };
        let config = XdpConfig {
            receive_chunks: frames,
            transmit_chunks: 64,
            chunk_size,
            copy: if GENERIC { XdpCopy::Always } else { XdpCopy::WhereNeeded },
        };
        let queue = XdpQueue::open(&interface, 0, config).unwrap();
        Some(Self { _interface: interface, queue })
    }

    fn queue(&mut self) -> &mut XdpQueue {
        &mut self.queue
    }
}

/// Attaches, unless the tests run in a user namespace, where the kernel refuses it.
pub(crate) fn attach(interface: &Interface, choice: XdpChoice) -> Option<XdpInterface> {
    match XdpInterface::attach(interface, choice) {
        Ok(attached) => Some(attached),
        Err(error @ XdpError::NotPermitted { .. }) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) struct Ring(PacketRing);

impl BackEnd for Ring {
    type Queue = PacketRing;

    fn open(interface: &Interface, frames: u32) -> Option<Self> {
        // In each ms a block is begun, however little comes: a test thread may be kept waiting for many.
        let blocks = (frames as usize / 16).max(2);
        let config = PacketRingConfig {
            blocks,
            buffers: frames as usize,
            transmit_frames: 64,
            ..PacketRingConfig::default()
        };
        Some(Self(PacketRing::open(interface, config).unwrap()))
    }

    fn queue(&mut self) -> &mut PacketRing {
        &mut self.0
    }
}
