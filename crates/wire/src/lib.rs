//! Packet formats of Nichrome's engines, and their common types: [`Instant`], [`SeqNumber`], the Internet
//! [`checksum`], and the [`Engine`] contract.
//!
//! Each format has an unchecked view, a struct over bytes whose length was checked once, so that reading a
//! field cannot fail; and a validated representation, `Repr`, that cannot express an invalid header. Parsing
//! never panics and never reads out of bounds.
//!
//! The feature `rdma` (default) adds the formats of RoCEv2, iWARP, StaR and the connection manager.
#![forbid(unsafe_code)]

mod bytes;
pub mod checksum;
#[cfg(feature = "rdma")]
pub mod cm;
mod common_options;
pub mod engine;
mod ethernet;
mod ethertype;
mod frame_builder;
mod header_options;
pub mod instant;
mod ip;
mod ipv4;
mod ipv4_fragments;
mod ipv6;
mod ipv6_extensions;
#[cfg(feature = "rdma")]
pub mod iwarp;
mod number_map;
mod packet_too_big;
mod pppoe;
#[cfg(feature = "rdma")]
pub mod rdma;
mod seq;
#[cfg(feature = "rdma")]
pub mod star;
mod tcp;
mod tcp_flags;
mod tcp_options;
mod toeplitz;
mod udp;
mod virtio_net;
mod vlan;
mod wheel;

pub use common_options::CommonOptions;
pub use engine::Engine;
pub use ethernet::{EthernetError, EthernetHeader, EthernetRepr, LinkHeader, MacAddr};
pub use ethertype::EtherType;
pub use frame_builder::{Network, TcpFrame};
pub use header_options::HeaderOptions;
pub use instant::Instant;
pub use ip::{AddressPair, Ecn, Fragment, FragmentOffset, IpProtocol, TrafficClass};
pub use ipv4::{Ipv4Error, Ipv4Header, Ipv4HeaderMut, Ipv4Repr};
pub use ipv4_fragments::ipv4_fragments;
pub use ipv6::{FlowLabel, Ipv6Error, Ipv6Header, Ipv6HeaderMut, Ipv6Repr};
pub use ipv6_extensions::{ExtensionError, Ipv6Extension, Ipv6Extensions, Ipv6Fragment, UpperLayer};
pub use number_map::{NumberHasher, NumberMap};
pub use packet_too_big::packet_too_big;
pub use pppoe::PppoeHeader;
pub use seq::SeqNumber;
pub use tcp::{TcpError, TcpHeader, TcpHeaderMut, TcpRepr};
pub use tcp_flags::TcpFlags;
pub use tcp_options::{OptionError, SackBlock, SackBlocks, TcpOption, TcpOptions};
pub use toeplitz::{RssKey, Toeplitz};
pub use udp::{UdpChecksum, UdpError, UdpHeader, UdpHeaderMut, UdpRepr, transmitted_checksum};
pub use virtio_net::{
    ChecksumState, Gso, GsoType, TcpGsoEcn, VirtioNetError, VirtioNetHeader, VirtioNetRepr,
};
pub use vlan::{Tags, VlanTag};
pub use wheel::TimingWheel;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
