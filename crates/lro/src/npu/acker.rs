//! The active-ACK part of the engine: per-connection host state and ACK frames.

use super::ack::{Acknowledgement, ActiveAck};
use super::host::{Handshakes, HostSide};
use crate::ack_frame::{AckBytes, AckFrame};
use crate::recycle::{Recycled, Recycler};
use crate::segment::Layout;
use crate::table::Index;

/// State of active ACK, kept apart from the descriptors: without active ACK these stay small.
pub(crate) struct Acker {
    /// The host state of each connection in the table.
    hosts: Box<[HostSide]>,
    pub(crate) handshakes: Handshakes,
    frames: Recycler<AckBytes>,
}

impl Acker {
    /// Maximum number of ACK frames that the driver may hold. While it holds all, the engine sends none.
    const FRAMES: usize = 64;

    /// Creates the state for a table of `connections`; `None` without active ACK.
    pub(crate) fn new(mode: ActiveAck, connections: usize) -> Option<Self> {
        (mode != ActiveAck::Off).then(|| Self {
            hosts: vec![HostSide::default(); connections].into(),
            handshakes: Handshakes::new(),
            frames: Recycler::new((0..Self::FRAMES).map(|_| AckBytes::new())),
        })
    }

    /// Returns the host state of a connection.
    pub(crate) fn host(&mut self, index: Index) -> Option<&mut HostSide> {
        self.hosts.get_mut(index.0 as usize)
    }

    /// Clears the host state of a removed connection.
    pub(crate) fn forget(&mut self, index: Index) {
        if let Some(host) = self.host(index) {
            *host = HostSide::default();
        }
    }

    /// Returns the ACK frame that answers a received header; `None` if all frames are in use.
    pub(crate) fn frame(
        &mut self,
        received: &[u8],
        layout: Layout,
        acknowledgement: &Acknowledgement,
    ) -> Option<AckFrame> {
        let mut bytes = self.frames.take()?;
        match acknowledgement.write(received, layout, &mut bytes) {
            Some(()) => Some(AckFrame::new(Recycled::lend(bytes))),
            None => {
                self.frames.give_back(bytes);
                None
            }
        }
    }
}
