//! Packet I/O: capture files, network interfaces, UDP sockets, and buffer pools.
//!
//! [`capture`] reads and writes capture files; a [`BufferPool`] holds receive buffers, an [`Arena`] frames to
//! send. A [`Device`] ([`Tap`], [`PacketSocket`]) exchanges single frames with their virtio_net_hdr. A
//! [`WireQueue`] is one queue of a card, which receives in batches and belongs to one worker: [`XdpQueue`]
//! where the kernel allows AF_XDP, [`PacketRing`] elsewhere. [`NetworkNamespace`]s give sandboxes without
//! root, [`Netlink`] configures the interfaces in them, and [`clock`] reads time and waits.
//!
//! `unsafe` is in `arena`, and in the files named for the kernel interface that they wrap:
//! `acknowledgements`, `namespace`, `process_namespace`, `tap`, `packet_socket`, `packet_options`,
//! `packet_ring/blocks`, `ethtool`, `channels`, `mapping`, `process`, `quiet_thread`, `scheduling`,
//! `close_in_child`, `descriptor`, `udp`, and in `xdp` `bpf`, `ring`, `umem` and `queue`.
#![deny(unsafe_code)]

mod acknowledgements;
mod arena;
mod call_on_drop;
pub mod capture;
mod channels;
pub mod clock;
mod close_in_child;
mod descriptor;
mod device;
mod epoll;
mod ethtool;
mod eventfd;
mod interface_name;
mod ipv6;
mod link_events;
mod mapping;
mod mount_namespace;
mod namespace;
mod netlink;
mod os_error;
mod packet_options;
mod packet_ring;
mod packet_socket;
mod pool;
mod process;
mod process_namespace;
mod processor;
mod quiet_thread;
mod real_time;
mod scheduling;
mod spare_descriptor;
mod stripped_tag;
mod sync;
mod tap;
mod tap_wire;
mod tcp_owner;
pub mod udp;
mod uninterrupted;
mod unix_names;
mod waker;
mod wire_queue;
mod xdp;

pub use acknowledgements::{Acknowledgements, acknowledgements};
pub use arena::{Arena, Piece};
pub use call_on_drop::CallOnDrop;
pub use close_in_child::close_in_child;
pub use device::{Device, MAX_RECEIVE, Received};
pub use epoll::{Epoll, Interest};
pub use ethtool::{Feature, FeatureError, strips_vlan_tags};
pub use eventfd::try_read_eventfd;
pub use interface_name::{InterfaceName, InvalidName};
pub use ipv6::NoIpv6;
pub use link_events::LinkEvents;
pub use mount_namespace::MountNamespace;
pub use namespace::{NamespaceError, NetworkNamespace, gain_network_admin};
pub use netlink::{Counters, Interface, Netlink, NetlinkError, Settings};
pub use nichrome_wire::Instant;
pub use os_error::OsError;
pub use packet_ring::{Fanout, PacketRing, PacketRingConfig, PacketRingError};
pub use packet_socket::{PacketSocket, PacketSocketError};
pub use pool::{Buffer, BufferPool};
pub use process::kill_with_parent;
pub use process_namespace::ProcessNamespace;
pub use processor::{current_processor, incoming_processor};
pub use quiet_thread::spawn_quiet;
pub use real_time::{Onset, RealTime};
pub use scheduling::waited_for_processor;
pub use tap::{Offloads, Tap, TapError};
pub use tap_wire::TapWire;
pub use tcp_owner::{TcpOwner, tcp_peer_owner};
pub use uninterrupted::uninterrupted;
pub use waker::Waker;
pub use wire_queue::{TransmitError, Unsent, WireFrame, WireQueue, WireStats};
pub use xdp::{
    ChunkSize, XdpBuffer, XdpChoice, XdpConfig, XdpCopy, XdpError, XdpInterface, XdpMode, XdpQueue,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
