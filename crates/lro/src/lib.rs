//! Receive coalescing (large receive offload): engines that merge the TCP segments of a flow into packets of
//! up to 64 KB before a network stack sees them.
//!
//! | | [`Gro`] (default) | [`Netfpga`] | [`Npu`] |
//! |---|---|---|---|
//! | promise | lossless: the original packets can be re-created | the stateless hardware module of lro-netfpga | the multi-core design of lro-npu |
//! | flows at once | a table, the oldest evicted | one, or up to 16 | a table, descriptors from a pre-allocated pool |
//! | order | in order only; anything else flushes the flow first | in order only | reorders by sequence number |
//! | ends an aggregate | PSH, FIN, 64 KB, an unequal field, the hold time or the end of the batch | maximum length, timer, another flow | 64 KB of consecutive payload, FIN, a timeout of ten average intervals |
//! | UDP | an option: datagrams of one flow and one size | passed | passed |
//! | ACKs | untouched | untouched | [active ACK](ActiveAck): off, as in the paper, or safe |
//!
//! lro-netfpga is Antichi, Callegari, Giordano: "Implementation of TCP Large Receive Offload on Open Hardware
//! Platform" (HPPN 2013); lro-npu is Li, Chen, Su: "Implementation of TCP Large Receive Offload on Multi-core
//! NPU Platform". Each module begins with a table of its rules and their differences from the paper's.
//!
//! The engines do no I/O ([`nichrome_wire::engine`] has the contract), never copy payload, allocate nothing
//! per packet, and reserve their memory at creation.
//!
//! ```
//! use nichrome_lro::{Config, Frame, Gro, Hold, Output, Packet};
//! use nichrome_wire::{Engine, Instant, SeqNumber, TcpFrame};
//!
//! # fn main() -> Result<(), nichrome_lro::ConfigError> {
//! // Any buffer that implements `AsRef<[u8]>` will do: vectors here, in a driver handles that return to a pool.
//! let segment = |nth: u32| TcpFrame { seq: SeqNumber(nth * 1448), payload: vec![0; 1448], ..TcpFrame::default() };
//! let burst = (0..3).map(|nth| segment(nth).build());
//! let now = Instant::ZERO;
//!
//! let mut gro = Gro::new(&Config::default(), Hold::Batch)?;
//! for buffer in burst {
//!     gro.receive(Frame::new(buffer), now);
//! }
//! gro.end_of_batch(now);
//! while let Some(output) = gro.poll() {
//!     match output {
//!         Output::ToHost(Packet::Frame(frame)) => println!("{} bytes as they came", frame.bytes().len()),
//!         Output::ToHost(Packet::Aggregate(aggregate)) => {
//!             let mut slices = Vec::new();
//!             // For writev: the header, behind aggregate.virtio_net_header() in the same slice, and the payloads.
//!             aggregate.io_slices(&mut slices);
//!             assert_eq!((aggregate.segments(), aggregate.mss(), slices.len()), (3, 1448, 4));
//!         }
//!         Output::ToWire(ack) => println!("send {} bytes", ack.bytes().len()),
//!         Output::Dropped(_, reason) => println!("dropped: {}", reason.name()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod ack_frame;
mod aggregate;
mod burst;
mod checksums;
mod coalescer;
mod common;
mod config;
mod datagram;
mod datagrams;
mod flow;
mod followers;
mod frame;
pub mod gro;
mod ident_and_checksum;
mod identification;
mod latest;
mod lossless;
mod mask;
pub mod netfpga;
mod network;
pub mod npu;
mod outbox;
mod parse;
mod reach;
mod reason;
mod recent;
mod recycle;
mod run;
mod run_pool;
mod segment;
mod stats;
mod sync;
mod table;
mod template;
mod tunnel;
pub mod verify;

pub use ack_frame::AckFrame;
pub use aggregate::{Aggregate, Packet};
pub use coalescer::{Coalescer, ProfileConfig};
pub use config::{BadChecksum, Config, ConfigError, Hold, Profile, UnknownProfile};
pub use flow::FlowKey;
pub use frame::{ChecksumStatus, Frame};
pub use gro::Gro;
pub use identification::Identification;
pub use netfpga::{Netfpga, NetfpgaConfig};
pub use nichrome_wire::{Engine, Instant};
pub use npu::{ActiveAck, Npu, NpuConfig, PshRule, Rules};
pub use outbox::Output;
pub use reason::{DropReason, FlushReason, PassReason, Reason};
pub use segment::Medium;
pub use stats::{Counts, Statistics};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
