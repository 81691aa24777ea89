//! A queue of the wire with an optional packet observer.

use std::fmt;

/// Observes every frame before the engine and every packet after it, for example for a capture.
pub trait Observer: Send {
    /// Called with each frame from the wire, before the engine.
    fn received(&mut self, frame: &[u8]);
    /// Called with each packet for the host, in pieces, after the engine.
    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>);
    /// Called with each packet of the host for the wire, after segmentation.
    fn transmitted(&mut self, packet: &[u8]);
    /// Called with each ACK of the engine that the wire has accepted.
    fn acknowledged(&mut self, ack: &[u8]) {
        let _ = ack;
    }
}

/// A queue of the wire, for one worker.
pub struct Queue<W> {
    /// The queue.
    pub wire: W,
    /// The observer of its packets.
    pub observer: Option<Box<dyn Observer>>,
}

impl<W> fmt::Debug for Queue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
