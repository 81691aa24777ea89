//! Capture points of the test bed, on both sides of the card.

use nichrome_lro::Packet;
use nichrome_wire::Instant;

use crate::host::Compact;
use crate::observe::{Capture, PointId};

/// The capture points.
pub(super) struct Points {
    capture: Capture,
    wire_in: PointId,
    wire_out: PointId,
    host_in: PointId,
    host_out: PointId,
}

impl Points {
    /// Adds the points to a capture.
    pub(super) fn new(mut capture: Capture) -> Self {
        let [wire_in, wire_out, host_in, host_out] =
            ["wire in", "wire out", "host in", "host out"].map(|name| capture.add_point(name));
        Self { capture, wire_in, wire_out, host_in, host_out }
    }

    /// Records a frame from the wire.
    pub(super) fn wire_in(&mut self, frame: &Compact, now: Instant) {
        if self.capture.is_on() {
            self.capture.record_frame(self.wire_in, now, &frame.clone().expand());
        }
    }

    /// Records a frame for the wire: the host's, or an ACK of the card.
    pub(super) fn wire_out(&mut self, frame: &[u8], now: Instant) {
        self.capture.record_frame(self.wire_out, now, frame);
    }

    /// Records a packet written to the host's memory.
    pub(super) fn host_in(&mut self, packet: &Packet<Vec<u8>>, now: Instant) {
        self.capture.record_received(self.host_in, now, packet);
    }

    /// Records a frame that the host passes to the card.
    pub(super) fn host_out(&mut self, frame: &[u8], now: Instant) {
        self.capture.record_frame(self.host_out, now, frame);
    }
}
