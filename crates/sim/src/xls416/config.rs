//! What the card is: the numbers that a model of it needs.

use nichrome_lro::{Config, ProfileConfig};

use super::dma::DmaConfig;

/// A receiving thread and what belongs to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveConfig {
    /// The engine in each thread; `None`: the card does not coalesce.
    pub(super) engine: Option<(Config, ProfileConfig)>,
    /// When acknowledgements of the engine leave.
    pub(super) acks: AckOrder,
    /// Packets that may wait for a thread.
    pub(super) packet_ring: usize,
    /// Packet descriptors of a thread (lro-npu V.A).
    pub(super) descriptors: u64,
    /// Requests to the DMA engine that a thread may have under way; with as many, it waits.
    pub(super) requests: u64,
}

/// When an acknowledgement of the card leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckOrder {
    /// At once, as lro-npu V.C has it.
    AtOnce,
    /// When the host has what the engine handed on before it.
    AfterTransfer,
}

/// How requests come to the DMA engine (lro-npu V.B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DmaOrder {
    /// From each thread to the engine, which keeps them on a stack (Figure 9).
    Stack,
    /// Through the timeout checking thread, which has a queue for each thread (Figure 10).
    RoundRobin,
}

/// The card. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardConfig {
    /// Cores.
    pub(super) cores: usize,
    /// Hardware threads of each core.
    pub(super) threads_per_core: usize,
    /// Receiving threads.
    pub(super) receivers: usize,
    /// What a receiving thread is.
    pub(super) receive: ReceiveConfig,
    /// How long a received packet takes a core.
    pub(super) packet_time: u64,
    /// How long a thread waits for memory for each packet; its core works for others meanwhile.
    pub(super) memory_wait: u64,
    /// How long a packet that the host sends takes a core.
    pub(super) send_time: u64,
    /// How long a message takes from one thread or engine to another.
    pub(super) message: u64,
    /// How long a thread takes to put a message into a queue or out of it.
    pub(super) queue_operation: u64,
    /// How long the timeout checking thread takes for each connection.
    pub(super) check: u64,
    /// Connections that it looks after.
    pub(super) connections: u64,
    /// Packet descriptors of the sending thread.
    pub(super) send_descriptors: u64,
    /// How requests come to the DMA engine.
    pub(super) order: DmaOrder,
    /// The DMA engine.
    pub(super) dma: DmaConfig,
}
