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
mod config;
mod control;
mod cut;
pub mod delivery;
mod delivery_thread;
mod distribution;
mod error;
mod host;
mod memory_wire;
mod mesh;
mod outputs;
mod queue;
mod received;
mod stats;
mod worker;

pub use card::Card;
pub use carried::Carried;
pub use config::CardConfig;
pub use control::Remote;
pub use cut::{CutError, cut};
pub use distribution::Distribution;
pub use error::CardError;
pub use host::{HostError, send};
pub use memory_wire::{MemoryWire, WireError, memory_wire};
pub use queue::{Observer, Queue};
pub use stats::QueueStats;
