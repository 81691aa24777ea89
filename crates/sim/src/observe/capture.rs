//! Packet capture at points of a world. The simulator does no I/O; the caller provides a sink, which writes
//! pcapng or keeps packets in memory.

use std::fmt;

use nichrome_lro::Packet as Received;
use nichrome_wire::Instant;

use crate::Packet;
use crate::packet::in_one_piece;

/// A capture point: one side of a link, or a port of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointId(pub u32);

/// A receiver of captured packets.
pub trait PacketSink {
    /// Adds a point; in a capture file, an interface.
    fn add_point(&mut self, name: &str) -> PointId;

    /// Records a packet that passes `point` at `time`: its bytes, possibly none, and its length. The sink
    /// stores errors for its creator.
    fn record(&mut self, point: PointId, time: Instant, bytes: &[u8], len: usize);
}

/// An optional sink; costs nothing if off.
#[derive(Default)]
pub struct Capture(Option<Box<dyn PacketSink>>);

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Capture {
    /// Captures to `sink`.
    pub fn to(sink: impl PacketSink + 'static) -> Self {
        Self(Some(Box::new(sink)))
    }

    /// Returns true if capturing is on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a point called `name`.
    pub fn add_point(&mut self, name: &str) -> PointId {
        self.0.as_mut().map_or(PointId(0), |sink| sink.add_point(name))
    }

    /// Records a packet that passes `point` at `time`.
    #[inline]
    pub fn record(&mut self, point: PointId, time: Instant, packet: &Packet) {
        if let Some(sink) = &mut self.0 {
            sink.record(point, time, packet.bytes().unwrap_or_default(), packet.wire_len());
        }
    }

    /// Records a frame that passes `point` at `time`.
    #[inline]
    pub fn record_frame(&mut self, point: PointId, time: Instant, frame: &[u8]) {
        if let Some(sink) = &mut self.0 {
            sink.record(point, time, frame, frame.len());
        }
    }

    /// Records a packet for the host: a frame, or an aggregate as one packet.
    #[inline]
    pub fn record_received(&mut self, point: PointId, time: Instant, packet: &Received<Vec<u8>>) {
        if self.is_on() {
            self.record_frame(point, time, &in_one_piece(packet));
        }
    }
}
