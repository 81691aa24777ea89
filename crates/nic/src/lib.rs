//! The live card: frames from a wire are coalesced and handed to the kernel as packets of up to 64 KB; what the kernel
//! sends is cut to packets for the wire, its checksums completed.
//!
//! ```text
//! wire queue ──► distribution ──► engine ──► delivery ──► host queue (TAP) ──► kernel
//!     ▲                             │ ▲
//!     └── acknowledgements ◄────────┘ │ what the host acknowledges
//!     └── packets ◄── segmentation ◄──┴──────────────── host queue (TAP) ◄── kernel
//! ```
//!
//! A [`Card`] has workers, each a thread with a queue of the wire, a queue of the host, and an engine of its own, so
//! that nothing is shared and nothing is locked: the receive threads of lro-npu, section IV. Frames that arrive at
//! another worker's queue are handed to the worker that their connection belongs to ([`Distribution`]). Where the host
//! has one queue only, a thread of its own takes packets from the workers in turn ([`delivery`]), as the load balancer
//! of lro-npu, section V.B, does.
//!
//! A worker sleeps until its wire, its host, another worker or a timer wakes it.
#![forbid(unsafe_code)]

mod card;
mod carried;
mod cut;
pub mod delivery;
mod distribution;
mod host;
mod memory_wire;
mod stats;
mod worker;

pub use card::{Card, CardConfig, CardError, Observer, Queue, Remote};
pub use carried::Carried;
pub use cut::{CutError, cut};
pub use distribution::Distribution;
pub use host::{HostError, send};
pub use memory_wire::{MemoryWire, WireError, memory_wire};
pub use stats::QueueStats;
