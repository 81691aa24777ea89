//! UDP for protocols that speak it in user space and check what the IP header says: batches in both directions, sent
//! with segmentation (UDP_SEGMENT) and received coalesced (UDP_GRO), with the ECN bits, and with identification 0 and DF.
//!
//! A [`UdpSocket`] sends what was staged in a [`SendBatch`] and fills a [`ReceiveBatch`]. It has an address to itself, on
//! the loopback interface one that no one else uses; [`SharedPort`] lets several processes use one address, and has the
//! kernel hand each datagram to the one whose slot its first bytes name. A multicast group has a socket of its own in each
//! process. A [`PacketReceiver`] receives in a socket's place
//! where the identifications of IPv4 must be seen.

mod control;
mod local_addresses;
mod loopback;
mod multicast;
mod packet_receiver;
mod raw_address;
mod receive;
mod record_lock;
mod send;
mod service_ports;
mod shared_port;
mod socket;
mod socket_options;
mod steering;

pub use local_addresses::{interface_address, local_addresses};
pub use packet_receiver::{PacketArrival, PacketReceiver, PacketReceiverError};
pub use receive::{Arrival, ReceiveBatch};
pub use send::{Envelope, SendBatch, SendReport, Staged};
pub use service_ports::{ServicePorts, ServiceUse};
pub use shared_port::SharedPort;
pub use socket::{UdpError, UdpSocket};
pub use steering::{ManagementSteering, OtherKinds, SPACES, ServicePort, Steering};
