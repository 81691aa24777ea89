//! UDP sockets for user-space transports: batched sending and receiving with segmentation offload
//! (UDP_SEGMENT), coalescing (UDP_GRO), ECN bits, and IP identification 0 with DF.
//!
//! A [`UdpSocket`] sends a [`SendBatch`] and fills a [`ReceiveBatch`]. It has an address of its own;
//! [`UdpSocket::open_loopback`] finds a free one in 127.0.0.0/8. [`SharedPort`] lets several processes share
//! an address: the kernel delivers each datagram to the process whose slot number its first bytes contain.
//! Each process has its own socket for a multicast group. A [`PacketReceiver`] replaces a socket's receive
//! side where IPv4 identifications are needed. [`MemoryLinks`] carry datagrams between processes of one user
//! past the kernel's network.

mod control;
mod local_addresses;
mod loopback;
mod memory_links;
mod multicast;
mod packet_receiver;
mod raw_address;
mod receive;
mod record_lock;
mod ring_positions;
mod send;
mod service_ports;
mod shared_port;
mod shared_ring;
mod socket;
mod socket_options;
mod steering;

pub use local_addresses::{interface_address, local_addresses};
pub use memory_links::{LinkSend, MemoryLinks};
pub use packet_receiver::{PacketArrival, PacketReceiver, PacketReceiverError};
pub use receive::{Arrival, ReceiveBatch};
pub use send::{Envelope, SendBatch, SendReport, Staged};
pub use service_ports::{ServicePorts, ServiceUse};
pub use shared_port::SharedPort;
pub use socket::{UdpError, UdpSocket};
pub use steering::{ManagementSteering, OtherKinds, SPACES, ServicePort, Steering};
