//! A wide-area path in software: the delay generator *degen* of papers/rdma-over-ip (Jin, Narravula, Brown,
//! Vaidyanathan, Balaji, Panda: "Performance Evaluation of RDMA over IP: A Case Study with the Ammasso
//! Gigabit Ethernet NIC"), and further impairments.
//!
//! A [`Path`] is one direction. A packet is timestamped on arrival and passes the configured stages. Each
//! stage passes it on with the packet's own logical time, so that neither bursts nor late timers add to
//! delays. The stages in the default order ([`Order`] explains and changes it):
//!
//! | stage | fields of [`Impairments`] | notation |
//! |---|---|---|
//! | `mtu` | [`mtu`](Impairments::mtu): longer packets are fragmented (IPv4 without DF) or dropped | `1500` |
//! | `loss` | [`loss`](Impairments::loss) | `1%`, `gilbert:P,R[,LOSS_GOOD,LOSS_BAD]`, `packets:3,7,10-12` |
//! | `corrupt` | [`corrupt`](Impairments::corrupt): flips one bit behind the link header | `0.1%` |
//! | `duplicate` | [`duplicate`](Impairments::duplicate): sends a copy after the packet | `0.01` |
//! | `rate` | [`rate`](Impairments::rate), or [`trace`](Impairments::trace) in Mahimahi's format | `10mbit`, `1.5gbit` |
//! | | [`queue`](Impairments::queue), without the packet in transmission | `100p`, `1000B`, `64kB`, `64KiB` |
//! | | [`aqm`](Impairments::aqm) | `tail-drop`, `codel`, `codel:5ms,100ms` |
//! | | [`ecn`](Impairments::ecn) | `off`, `mark`, `mark:30p` |
//! | `delay` | [`delay`](Impairments::delay) | `40ms`, `1.5ms`, `50us`, `0` |
//! | | [`jitter`](Impairments::jitter) and [`jitter_order`](Impairments::jitter_order) | `5ms`, `normal:5ms`, `pareto:5ms`, `pareto-normal:5ms`; `keep`, `reorder` |
//! | `reorder` | [`reorder`](Impairments::reorder): holds a packet back while others overtake it | `1%`, `1%:5ms` |
//!
//! [`limit`](Impairments::limit) bounds the packets in flight, and so the memory; packets beyond it are
//! dropped before all stages. Every type parses its notation ([`std::str::FromStr`]) and formats as the same
//! notation; errors state what is expected.
//!
//! Random choices depend on the seed alone, and each stage has its own random stream. `normal`, `pareto` and
//! `pareto-normal` call the platform's logarithm and square root, whose last digit may differ between
//! platforms.
//!
//! ```
//! use std::time::Duration;
//!
//! use nichrome_wan::{Impairments, Output, Path};
//! use nichrome_wire::engine::{advance, deliver};
//! use nichrome_wire::{Instant, TcpFrame};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let impairments = Impairments {
//!     delay: "40ms".parse()?,
//!     loss: Some("1%".parse()?),
//!     rate: Some("10mbit".parse()?),
//!     ..Impairments::default()
//! };
//! let mut path = Path::new(&impairments, 7)?;
//! let mut outputs = Vec::new();
//! deliver(&mut path, TcpFrame::default().build(), Instant::ZERO, &mut |_, output| outputs.push(output));
//! advance(&mut path, Instant::ZERO + Duration::from_secs(1), &mut |_, output| outputs.push(output));
//! let [Output::Released(departure)] = &outputs[..] else { panic!("lost: {outputs:?}") };
//! // 54 bytes at 10 Mbit/s take 43.2 us.
//! assert_eq!(departure.due - departure.arrived, Duration::from_nanos(40_043_200));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod bandwidth;
mod calendar;
pub mod decimal;
pub mod duration;
mod error;
pub mod ethernet;
mod exits;
mod histogram;
mod impairments;
pub mod jitter;
mod loss;
mod output;
mod packet;
mod path;
mod probability;
mod queue;
mod random;
mod reason;
mod reorder;
mod sampler;
mod schedule;
mod stage;
mod stats;
mod too_big;
mod trace;

pub use bandwidth::Bandwidth;
pub use duration::Delay;
pub use error::ParseError;
pub use histogram::DelayHistogram;
pub use impairments::{ConfigError, Impairments, Limit, Mtu, Order, Stage};
pub use jitter::{Jitter, JitterOrder, Samples, SamplesError};
pub use loss::{GilbertElliott, Loss, PacketList};
pub use nichrome_wire::{Engine, Instant};
pub use output::{Departure, Output};
pub use packet::{Dummy, Packet};
pub use path::Path;
pub use probability::Probability;
pub use queue::{Aqm, CoDel, EcnMode, QueueLimit};
pub use reason::{DropReason, Drops};
pub use reorder::Reorder;
pub use stats::Stats;
pub use too_big::TooBig;
pub use trace::{Trace, TraceError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
