//! Header fields of an aggregate that follow its latest segment, for the profiles that keep byte streams.

use nichrome_wire::{SeqNumber, TcpFlags};

/// The fields that the latest segment determines.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    pub(crate) timestamp: Option<u32>,
}

impl Latest {
    /// Updates the fields with those of the next segment. ACK number and window are taken from the segment
    /// with the latest ACK number; flags accumulate.
    #[inline]
    pub(crate) fn follow(&mut self, next: Self) {
        if self.ack.later(next.ack) == next.ack {
            self.ack = next.ack;
            self.window = next.window;
        }
        self.flags = self.flags | next.flags;
        self.timestamp = next.timestamp;
    }
}
