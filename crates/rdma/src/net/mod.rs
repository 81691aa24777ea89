//! The network as transports see it: routes, received datagrams, the driver's send buffer, steering.

mod datagram;
mod room;
mod route;
mod steering;

pub use datagram::Datagram;
pub(crate) use room::Room;
pub use room::{DatagramBatch, StreamBytes, StreamEnding, StreamShutdown, Transmit};
pub(crate) use route::LocalAddresses;
pub use route::Route;
pub use steering::STEERING_BITS;
pub(crate) use steering::SteeringKey;
