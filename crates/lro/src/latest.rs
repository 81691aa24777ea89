//! What the latest segment of an aggregate says, under the rule of equal streams.

use nichrome_wire::{SeqNumber, TcpFlags};

/// The fields of a segment of which the latest counts for the whole.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    pub(crate) timestamp: Option<u32>,
}

impl Latest {
    /// The ACK number becomes the latest, and the window the one that came with it.
    #[inline]
    pub(crate) fn follow(&mut self, next: Self) {
        if !next.ack.before(self.ack) {
            self.ack = next.ack;
            self.window = next.window;
        }
        self.flags = self.flags | next.flags;
        self.timestamp = next.timestamp;
    }
}
