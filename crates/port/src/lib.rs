//! The input and output of Nichrome: where frames come from and go to, and the memory they lie in.
//!
//! [`capture`] reads and writes capture files; a [`BufferPool`] holds the memory that frames are received into. A
//! [`Device`] is an interface whose frames come and go with their virtio_net_hdr: [`Tap`] and [`PacketSocket`].
//! [`NetworkNamespace`]s give sandboxes without root, [`Netlink`] configures the interfaces in them, and [`clock`]
//! tells the time and waits. `unsafe` is in the files named for what they wrap: `namespace`, `tap`,
//! `packet_socket` and `process`.
#![deny(unsafe_code)]

pub mod capture;
pub mod clock;
mod device;
mod interface_name;
mod namespace;
mod netlink;
mod packet_socket;
mod pool;
mod process;
mod tap;
mod waker;

pub use device::{Device, MAX_RECEIVE, Received};
pub use interface_name::{InterfaceName, InvalidName};
pub use namespace::{NamespaceError, NetworkNamespace, become_able};
pub use netlink::{Counters, Interface, Netlink, NetlinkError, Settings};
pub use packet_socket::{PacketSocket, PacketSocketError};
pub use pool::{Buffer, BufferPool};
pub use process::die_with_parent;
pub use tap::{Offloads, Tap, TapError};
pub use waker::Waker;
