//! A queue of the wire, and who sees the packets that go through it.

use std::fmt;

/// Sees every frame before the engine and every packet after it: a capture, say.
pub trait Observer: Send {
    /// A frame from the wire, before the engine.
    fn received(&mut self, frame: &[u8]);
    /// A packet for the host in pieces, after the engine.
    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>);
    /// A packet for the wire, segmented.
    fn transmitted(&mut self, packet: &[u8]);
}

/// A queue of the wire, for one worker.
pub struct Queue<W> {
    /// The queue.
    pub wire: W,
    /// Who sees what goes through it.
    pub observer: Option<Box<dyn Observer>>,
}

impl<W> fmt::Debug for Queue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
