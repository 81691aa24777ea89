//! The sampled values of the test bed.

use super::testbed::Testbed;
use crate::observe::Probes;

/// Returns the sampled values.
pub(super) fn probes() -> Probes<Testbed> {
    let mut probes = Probes::new();
    probes.register_rate("throughput", "Gb/s", 8.0, |world: &Testbed, _| {
        world.server().connections().iter().map(|connection| connection.program_counters().received).sum()
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
