//! Captures: packets as they pass points of a world. The simulator does no I/O; who runs it brings the sink, which writes
//! pcapng or keeps packets in memory.

use std::fmt;

use nichrome_lro::Packet as Received;
use nichrome_wire::Instant;

use crate::Packet;
use crate::packet::in_one_piece;

/// A point of a world that packets pass: a side of a link, a port of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointId(pub u32);

/// Where recorded packets go.
pub trait PacketSink {
    /// A new point; in a capture file, an interface.
    fn add_point(&mut self, name: &str) -> PointId;

    /// A packet that passes `point` at `time`: its bytes, if it has any, and its length. What goes wrong is kept by the
    /// sink, for who made it to ask.
    fn record(&mut self, point: PointId, time: Instant, bytes: &[u8], len: usize);
}

/// A sink or none, which costs nothing.
#[derive(Default)]
pub struct Capture(Option<Box<dyn PacketSink>>);

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Capture {
    /// Records to `sink`.
    pub fn to(sink: impl PacketSink + 'static) -> Self {
        Self(Some(Box::new(sink)))
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A new point, called `name`.
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

    /// Records what an engine hands to the host: a frame, or an aggregate as the one packet that it is.
    #[inline]
    pub fn record_received(&mut self, point: PointId, time: Instant, packet: &Received<Vec<u8>>) {
        if self.is_on() {
            self.record_frame(point, time, &in_one_piece(packet));
        }
    }
}
