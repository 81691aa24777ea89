//! What transports need of the network: routes, datagrams, and room for what leaves.

mod datagram;
mod room;
mod route;

pub use datagram::Datagram;
pub(crate) use room::Room;
pub use room::{DatagramBatch, StreamBytes, Transmit};
pub(crate) use route::LocalAddresses;
pub use route::Route;
