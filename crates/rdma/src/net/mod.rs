//! The network as transports see it: routes, received datagrams, the driver's send buffer.

mod datagram;
mod room;
mod route;

pub use datagram::Datagram;
pub(crate) use room::Room;
pub use room::{DatagramBatch, StreamBytes, StreamEnding, StreamShutdown, Transmit};
pub(crate) use route::LocalAddresses;
pub use route::Route;
