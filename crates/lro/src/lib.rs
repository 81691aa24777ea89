//! Receive coalescing.
#![forbid(unsafe_code)]

mod aggregate;
mod coalescer;
mod config;
mod flow;
mod frame;
pub mod gro;
pub mod netfpga;
pub mod npu;
mod outbox;
mod parse;
mod reason;
mod recycle;
mod run;
mod segment;
mod stats;
mod table;
mod template;
pub mod verify;
mod wheel;

pub use aggregate::{Aggregate, Identification, Packet};
pub use coalescer::{Coalescer, ProfileConfig};
pub use config::{BadChecksum, Config, ConfigError, Hold, Profile, UnknownProfile};
pub use flow::FlowKey;
pub use frame::{ChecksumStatus, Frame};
pub use gro::Gro;
pub use netfpga::Netfpga;
pub use npu::{AckFrame, ActiveAck, Npu, NpuConfig, PshRule, Rules};
pub use outbox::Output;
pub use reason::{DropReason, FlushReason, PassReason, Reason};
pub use segment::Medium;
pub use stats::{Counts, Statistics};
