//! The live RDMA adapter: the engine of `nichrome-rdma` at an IP address of this machine, over UDP, without a kernel
//! module and without root.
#![forbid(unsafe_code)]

mod adapter;
mod arena;
mod config;
mod driver;
mod exchange;
mod parcel;
mod queue_pair;
mod recorder;
mod wire;

pub use adapter::{Adapter, CompletionQueue, CompletionQueueError, Region, RemoteRegion};
pub use arena::Arena;
pub use config::{AdapterConfig, Faults, OpenError, Place};
pub use driver::{Driver, EventSink};
pub use exchange::exchange;
pub use queue_pair::{Connection, Endpoint, EndpointError, QueuePair};
pub use wire::WireCounters;
