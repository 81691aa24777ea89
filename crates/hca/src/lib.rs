//! The live RDMA adapter: the engine of `nichrome-rdma` at an IP address of this machine, over UDP (RoCEv2,
//! StaR) or TCP (iWARP), without RDMA hardware, kernel module or root.
//!
//! | | |
//! |---|---|
//! | [`Adapter`], [`Region`], [`CompletionQueue`], [`QueuePair`] | verbs for Rust programs, without `unsafe`; objects are destroyed when dropped |
//! | [`Driver`] | a device with any [`Memory`](nichrome_rdma::Memory) at an address, for other implementations of verbs |
//! | [`AdapterConfig`] | address, path MTU, faults, capture |
//! | [`cm`] | connections by address and port, with the semantics of rdma_cm |
//! | [`reach`] | measures the path to a peer, and chooses the transport |
//! | [`exchange`], [`Endpoint`] | out-of-band exchange of connection parameters over TCP |
//!
//! The program that polls drives the adapter. While none polls, the adapter's thread does, and sleeps until a
//! datagram arrives or a timer is due. Memory belongs to the adapter and is accessed under its lock: a
//! program never sees part of a packet's payload, and needs completions to see a whole message.
//!
//! ```
//! use std::time::Duration;
//!
//! use nichrome_hca::{Adapter, AdapterConfig, Connection};
//! use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, SendRequest, Status};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let capacity = QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
//! let [here, there] = [Adapter::open(&AdapterConfig::default())?, Adapter::open(&AdapterConfig::default())?];
//! let (sends, receives) = (here.completion_queue(16)?, there.completion_queue(16)?);
//! let ours = here.queue_pair(capacity, &sends, &sends)?;
//! let theirs = there.queue_pair(capacity, &receives, &receives)?;
//! let connection = Connection::new(PathMtu::B4096);
//! ours.connect(&theirs.endpoint(), &connection)?;
//! theirs.connect(&ours.endpoint(), &connection)?;
//!
//! let source = here.region(5, Access::NONE)?;
//! let target = there.region(100, Access::REMOTE_WRITE)?;
//! source.with(|bytes| bytes.copy_from_slice(b"hello"));
//! let write = Operation::Write(target.remote().at(10));
//! ours.post_send(&SendRequest::new(1, write, &[source.slice(0, 5)]))?;
//! let done = sends.wait(Duration::from_secs(5)).ok_or("nothing completed")?;
//! assert_eq!((done.wr_id, done.status), (1, Status::Success));
//! assert_eq!(target.with(|bytes| bytes[10..15].to_vec()), b"hello");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod adapter;
mod arena;
pub mod cm;
mod config;
mod connect;
mod connected_stream;
mod descriptors;
mod driver;
mod exchange;
mod handover;
mod iwarp;
mod live_device;
mod management;
mod management_steering;
mod parcel;
mod poll_time;
mod ports;
mod queue_pair;
pub mod reach;
mod recorder;
mod region;
mod set_up;
mod shared_device;
mod spin;
mod star;
mod sync;
#[cfg(test)]
mod testing;
mod wire;

pub use adapter::{Adapter, CompletionQueue, CompletionQueueError};
pub use arena::Arena;
pub use config::{
    AdapterConfig, Faults, JoinError, LocalPath, LocalPathError, OpenError, Place, Reception,
    StreamFaultsError, Transport, TransportError,
};
pub use driver::{Driver, Paused};
pub use exchange::exchange;
pub use iwarp::{EstablishError, IWARP_PORT, Incoming, IwarpCounters, IwarpOptions, Listener, port_of};
pub use live_device::EventSink;
pub use poll_time::PollTime;
pub use queue_pair::{Connection, Endpoint, EndpointError, QueuePair};
pub use region::{ProtectionDomain, Region, RemoteRegion};
pub use star::{KeyFileError, StarAddressError, StarOptions, Stateless, StatelessError};
pub use wire::WireCounters;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
