//! Where packets of the test bed can be recorded: at the card's two sides.

use nichrome_lro::Packet;
use nichrome_wire::Instant;

use crate::observe::{Capture, PointId};

/// Where packets are recorded.
pub(super) struct Points {
    capture: Capture,
    wire_in: PointId,
    wire_out: PointId,
    host_in: PointId,
    host_out: PointId,
}

impl Points {
    /// The points of this capture.
    pub(super) fn new(mut capture: Capture) -> Self {
        let [wire_in, wire_out, host_in, host_out] =
            ["wire in", "wire out", "host in", "host out"].map(|name| capture.add_point(name));
        Self { capture, wire_in, wire_out, host_in, host_out }
    }

    /// A frame comes from the wire.
    pub(super) fn wire_in(&mut self, frame: &[u8], now: Instant) {
        self.capture.record_frame(self.wire_in, now, frame);
    }

    /// A frame leaves for the wire: of the host, or an acknowledgement that the card makes.
    pub(super) fn wire_out(&mut self, frame: &[u8], now: Instant) {
        self.capture.record_frame(self.wire_out, now, frame);
    }

    /// A packet is in the host's memory.
    pub(super) fn host_in(&mut self, packet: &Packet<Vec<u8>>, now: Instant) {
        self.capture.record_received(self.host_in, now, packet);
    }

    /// The host hands a frame to the card.
    pub(super) fn host_out(&mut self, frame: &[u8], now: Instant) {
        self.capture.record_frame(self.host_out, now, frame);
    }
}
