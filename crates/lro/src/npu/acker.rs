//! The part of the engine that acknowledges by itself.

use super::ack::{Acknowledgement, ActiveAck};
use super::host::{Handshakes, HostSide};
use crate::ack_frame::{AckBytes, AckFrame};
use crate::recycle::{Recycled, Recycler};
use crate::segment::Layout;
use crate::table::Index;

/// What active ACK keeps apart from the descriptors, so that these stay small where it is off.
pub(crate) struct Acker {
    /// The host's side of each connection in the table.
    hosts: Box<[HostSide]>,
    pub(crate) handshakes: Handshakes,
    frames: Recycler<AckBytes>,
}

impl Acker {
    /// Acknowledgements that may be in the driver's hands at once; more are not sent.
    const FRAMES: usize = 64;

    /// For a table of `connections`; `None` where active ACK is off.
    pub(crate) fn new(mode: ActiveAck, connections: usize) -> Option<Self> {
        (mode != ActiveAck::Off).then(|| Self {
            hosts: vec![HostSide::default(); connections].into(),
            handshakes: Handshakes::new(),
            frames: Recycler::new((0..Self::FRAMES).map(|_| AckBytes::new())),
        })
    }

    /// The host's side of a connection.
    pub(crate) fn host(&mut self, index: Index) -> Option<&mut HostSide> {
        self.hosts.get_mut(index.0 as usize)
    }

    /// Forgets the host's side of a connection that is gone.
    pub(crate) fn forget(&mut self, index: Index) {
        if let Some(host) = self.host(index) {
            *host = HostSide::default();
        }
    }

    /// The frame that says `acknowledgement` in answer to a received header; `None` where all frames are in use.
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
