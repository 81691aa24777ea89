//! Counters of a worker.

use nichrome_lro::Statistics;
use nichrome_port::WireStats;

/// Counters of one queue since it was opened, and the engine's current number of flows.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// Frames received from this queue of the wire.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// The kernel's counters of this queue of the wire.
    pub wire: WireStats,
    /// Frames passed to other workers, which own their connections.
    pub distributed: u64,
    /// Frames dropped because another worker's ring was full.
    pub distribution_dropped: u64,
    /// Received frames that contradict their virtio_net_hdr.
    pub receive_malformed: u64,
    /// Received frames of local senders with pending segmentation, or with a pending checksum that is not a
    /// TCP segment's: the engine accepts TCP segments with a pending checksum.
    pub receive_unfinished: u64,
    /// Frames that segmenting or completing these produced.
    pub receive_finished: u64,
    /// The engine's counters; zeros without receive offload.
    pub engine: Statistics,
    /// Current flows in the engine's table.
    pub connections: u64,
    /// Packets passed to the host.
    pub to_host: u64,
    /// Bytes of these.
    pub to_host_bytes: u64,
    /// Aggregates that the host refused and then got as segments.
    pub taken_apart: u64,
    /// Packets refused by the host.
    pub host_refused: u64,
    /// Packets that waited for room in the delivery queue and were queued.
    pub delivery_waited: u64,
    /// Packets dropped because the delivery queue stayed full.
    pub delivery_dropped: u64,
    /// Frames from the host.
    pub from_host: u64,
    /// Bytes of these.
    pub from_host_bytes: u64,
    /// Frames from the host that contradict their virtio_net_hdr.
    pub transmit_malformed: u64,
    /// Packets sent to the wire, without the engine's ACKs.
    pub transmitted: u64,
    /// Bytes of these.
    pub transmitted_bytes: u64,
    /// Packets that exceed the wire's MTU.
    pub transmit_refused: u64,
    /// ACKs of the engine not sent, because the wire was busy or the host refused the data.
    pub acks_dropped: u64,
}

impl QueueStats {
    /// Returns the plain counters with their stable names, without the counters of the engine and the wire.
    pub fn named(&self) -> [(&'static str, u64); 20] {
        [
            ("received", self.received),
            ("received_bytes", self.received_bytes),
            ("distributed", self.distributed),
            ("distribution_dropped", self.distribution_dropped),
            ("receive_malformed", self.receive_malformed),
            ("receive_unfinished", self.receive_unfinished),
            ("receive_finished", self.receive_finished),
            ("to_host", self.to_host),
            ("to_host_bytes", self.to_host_bytes),
            ("taken_apart", self.taken_apart),
            ("host_refused", self.host_refused),
            ("delivery_waited", self.delivery_waited),
            ("delivery_dropped", self.delivery_dropped),
            ("from_host", self.from_host),
            ("from_host_bytes", self.from_host_bytes),
            ("transmit_malformed", self.transmit_malformed),
            ("transmitted", self.transmitted),
            ("transmitted_bytes", self.transmitted_bytes),
            ("transmit_refused", self.transmit_refused),
            ("acks_dropped", self.acks_dropped),
        ]
    }
}
