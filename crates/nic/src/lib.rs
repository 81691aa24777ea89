//! The live card: coalesces frames from a wire and passes packets of up to 64 KB to the kernel; segments the
//! kernel's packets for the wire and completes their checksums.
//!
//! ```text
//! wire queue ──► distribution ──► engine ──► delivery ──► host queue (TAP) ──► kernel
//!     ▲                             │ ▲
//!     └── acknowledgements ◄────────┘ │ what the host acknowledges
//!     └── packets ◄── segmentation ◄──┴──────────────── host queue (TAP) ◄── kernel
//! ```
//!
//! A [`Card`] has workers, each a thread with a queue of the wire, a queue of the host, and its own engine,
//! without shared state or locks: the receive threads of lro-npu, section IV. A worker passes frames of other
//! workers' connections on to them ([`Distribution`]). If the host has one queue only, a separate thread
//! takes packets from the workers in turn ([`delivery`]): the load balancer of lro-npu, section V.B.
//!
//! A worker may also carry the packets of one host to another, in one direction ([`Card::between`]).
//!
//! A worker sleeps until its wire, its host, another worker or a timer wakes it.
#![forbid(unsafe_code)]

mod card;
mod config;
mod control;
pub mod delivery;
mod delivery_thread;
mod distribution;
mod error;
mod host;
mod memory_direction;
mod memory_path;
mod memory_wire;
mod mesh;
mod outputs;
mod partial_checksum;
mod path_frame;
mod queue;
mod received;
mod segment;
mod stats;
mod worker;

pub use card::Card;
pub use config::CardConfig;
pub use control::Remote;
pub use distribution::Distribution;
pub use error::CardError;
pub use host::{HostError, send};
pub use memory_direction::{MemoryDirection, memory_directions};
pub use memory_path::{MemoryPath, WireError};
pub use memory_wire::{MemoryWire, memory_wire};
pub use path_frame::PathFrame;
pub use queue::{Observer, Queue};
pub use segment::{SegmentationError, segment};
pub use stats::QueueStats;
