//! One end of a connection: an adapter with a region and a queue pair.

use std::time::Duration;

use nichrome_hca::{Adapter, AdapterConfig, CompletionQueue, Connection, QueuePair, Region};
use nichrome_rdma::{Access, QpCapacity};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of an end's region.
pub(crate) const LEN: usize = 1 << 20;

pub(crate) struct End {
    pub(crate) adapter: Adapter,
    pub(crate) region: Region,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
}

impl End {
    pub(crate) fn open(config: &AdapterConfig) -> Self {
        let adapter = Adapter::open(config).unwrap();
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = adapter.region(LEN, access).unwrap();
        let cq = adapter.completion_queue(512).unwrap();
        let capacity =
            QpCapacity { send_wrs: 128, receive_wrs: 128, send_sges: 1, receive_sges: 1, inline: 64 };
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        Self { adapter, region, cq, qp }
    }
}

/// Connects two ends by address and queue pair number.
pub(crate) fn connect_with(ends: &[End; 2], connection: &Connection) {
    let endpoints = ends.each_ref().map(|end| end.qp.endpoint());
    ends[0].qp.connect(&endpoints[1], connection).unwrap();
    ends[1].qp.connect(&endpoints[0], connection).unwrap();
}
