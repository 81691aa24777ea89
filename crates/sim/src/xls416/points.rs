//! What can be seen of the test bed while it runs: packets at the card's two sides, and numbers that change.

use nichrome_lro::Packet;
use nichrome_wire::Instant;

use super::testbed::Testbed;
use crate::observe::{Capture, PointId, Probes};

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

/// The numbers that are sampled.
pub(super) fn probes() -> Probes<Testbed> {
    let mut probes = Probes::new();
    probes.register_rate("throughput", "Gb/s", 8.0, |world: &Testbed, _| {
        world.server().connections().iter().map(|connection| connection.done().received).sum()
    });
    probes.register_rate("packets", "packets/ms", 1e6, |world, _| world.card().counters().packets);
    probes.register_rate("segments", "segments/ms", 1e6, |world, _| world.card().counters().segments);
    probes.register_rate("dma-load", "%", 100.0, |world, now| world.card().dma_busy_nanos(now));
    probes.register("dma-queue", "requests", |world, _| world.card().waiting_requests() as f64);
    probes.register("packet-rings", "frames", |world, _| world.card().waiting_frames() as f64);
    probes.register("descriptors", "in use", |world, _| world.card().descriptors_in_use() as f64);
    probes.register("cpu-queue", "packets", |world, now| world.cpu().waiting(now) as f64);
    probes
}
