//! Peers within a cluster and between clusters: measures the path to a peer, and chooses the transport by it.
//!
//! [`probe`] sends datagrams to a UDP port of the peer, where [`answer_probe`] returns them, and measures
//! round-trip time and loss before there is a connection. [`Policy::transport`] chooses by [`PathQuality`].
//! Both transports have the same verbs and the same connection manager ([`cm`](crate::cm)); only the
//! [`AdapterConfig`](crate::AdapterConfig) differs.
//!
//! | path | transport | why |
//! |---|---|---|
//! | short, no probe lost | RoCE | no stream below it: a message is one datagram, and latency is the lowest |
//! | long | iWARP | TCP fills a long path, and shares it with others |
//! | lossy | iWARP | RoCE does not slow down where datagrams are lost; TCP does |
//!
//! ```no_run
//! use nichrome_hca::reach::{Policy, ProbeOptions, probe};
//! use nichrome_hca::{Adapter, AdapterConfig, Place};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let here = "10.0.0.2".parse()?;
//! let path = probe(here, "10.0.0.1:7300".parse()?, &ProbeOptions::default())?;
//! let transport = Policy::default().transport(&path);
//! let adapter = Adapter::open(&AdapterConfig { transport, place: Place::Address(here), ..AdapterConfig::default() })?;
//! # Ok(())
//! # }
//! ```
//!
//! Probes and answers have 24 bytes and no authentication: an attacker who can forge them can choose the
//! transport. An answer is as long as its probe and is not answered itself.

mod path;
mod probe;
mod probing;

pub use path::{PathQuality, Policy};
pub use probe::{ProbeError, ProbeOptions, answer_probe, probe};
