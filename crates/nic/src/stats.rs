//! What a worker of a card has done.

use nichrome_lro::Statistics;
use nichrome_port::WireStats;

/// Counters of one queue, since it was opened, and how many flows its engine knows now.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// Frames received from this queue of the wire.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// What the kernel has counted for this queue of the wire.
    pub wire: WireStats,
    /// Frames handed to other workers, whose connections they belong to.
    pub distributed: u64,
    /// Frames that another worker had no room for.
    pub distribution_dropped: u64,
    /// Received frames that their virtio_net_hdr does not fit.
    pub receive_malformed: u64,
    /// Received frames that a sender on this machine had left to be cut, or their checksum to be completed.
    pub receive_unfinished: u64,
    /// The frames that those became.
    pub receive_finished: u64,
    /// What the engine has done; nothing where nothing is coalesced.
    pub engine: Statistics,
    /// Flows in the engine's table now.
    pub connections: u64,
    /// Packets handed to the host.
    pub to_host: u64,
    /// Their bytes.
    pub to_host_bytes: u64,
    /// Aggregates that the host refused, so that it got their segments.
    pub taken_apart: u64,
    /// Packets that the host refused.
    pub host_refused: u64,
    /// Packets that waited for room in the delivery queue, and got it.
    pub delivery_waited: u64,
    /// Packets for which the delivery queue had no room in time.
    pub delivery_dropped: u64,
    /// Frames from the host.
    pub from_host: u64,
    /// Their bytes.
    pub from_host_bytes: u64,
    /// Frames from the host that their virtio_net_hdr does not fit.
    pub transmit_malformed: u64,
    /// Packets sent to the wire, the engine's acknowledgements not counted.
    pub transmitted: u64,
    /// Their bytes.
    pub transmitted_bytes: u64,
    /// Packets that the wire does not take: too long for its MTU.
    pub transmit_refused: u64,
    /// Acknowledgements of the engine that were not sent, because the wire was busy or the host did not take the data.
    pub acks_dropped: u64,
}

impl QueueStats {
    /// The plain counters by name; names stay stable. The engine's and the wire's are not among them.
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
