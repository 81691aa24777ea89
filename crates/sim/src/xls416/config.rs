//! The configuration of the card.

use nichrome_lro::{Config, ProfileConfig};

use super::dma::DmaConfig;

/// The configuration of a receiving thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveConfig {
    /// The engine of each thread; `None`: no receive offload.
    pub(super) engine: Option<(Config, ProfileConfig)>,
    /// When the engine's ACKs leave.
    pub(super) acks: AckOrder,
    /// Capacity of the thread's packet ring.
    pub(super) packet_ring: usize,
    /// Packet descriptors of a thread (lro-npu V.A).
    pub(super) descriptors: u64,
    /// Maximum outstanding DMA requests per thread; the thread waits at the limit.
    pub(super) requests: u64,
}

/// When the card's ACKs leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckOrder {
    /// At once, as in lro-npu V.C.
    AtOnce,
    /// When the host has the packets that the engine passed on before the ACK.
    AfterTransfer,
}

/// The rings of packet descriptors (lro-npu V.A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rings {
    /// One ring: a thread holds its lock for the time of a descriptor, and its core while it waits for the
    /// lock.
    One,
    /// A ring per thread.
    Each,
}

/// The path of requests to the DMA engine (lro-npu V.B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DmaOrder {
    /// From each thread directly to the engine, which keeps them on a stack (Figure 9).
    Stack,
    /// Through the timeout checking thread, which has a queue per thread (Figure 10).
    RoundRobin,
}

/// The configuration of the card. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardConfig {
    /// Cores.
    pub(super) cores: usize,
    /// Hardware threads of each core.
    pub(super) threads_per_core: usize,
    /// Receiving threads.
    pub(super) receivers: usize,
    /// The receiving threads.
    pub(super) receive: ReceiveConfig,
    /// Core time per received packet.
    pub(super) packet_time: u64,
    /// Memory wait of a thread per packet; its core runs other threads meanwhile.
    pub(super) memory_wait: u64,
    /// Core time per ACK that the card generates.
    pub(super) ack_time: u64,
    /// The rings of packet descriptors.
    pub(super) rings: Rings,
    /// Core time to read a packet descriptor from the shared memory and to write it back.
    pub(super) descriptor_time: u64,
    /// Core time of a timeout job per connection whose packet it passes on.
    pub(super) timeout_time: u64,
    /// Core time per packet from the host.
    pub(super) send_time: u64,
    /// Latency of a message between threads and engines.
    pub(super) message: u64,
    /// Time of a thread to enqueue or dequeue a message.
    pub(super) queue_operation: u64,
    /// Time of the timeout checking thread per connection.
    pub(super) check: u64,
    /// Number of connections that the timeout checking thread checks.
    pub(super) connections: u64,
    /// Packet descriptors of the sending thread.
    pub(super) send_descriptors: u64,
    /// The path of requests to the DMA engine.
    pub(super) order: DmaOrder,
    /// The DMA engine.
    pub(super) dma: DmaConfig,
}
