//! AF_XDP: frames straight from the driver, in memory shared with the kernel (Linux
//! Documentation/networking/af_xdp.rst).
//!
//! | file | kernel concept |
//! |---|---|
//! | `interface.rs`, `mode.rs` | an interface with an XDP program, native (in the driver) or generic (after it) |
//! | `bpf.rs` | bpf(2): the program, the map from queues to sockets, the link that detaches by itself |
//! | `queue.rs` | a socket on one queue: receiving, sending, statistics |
//! | `config.rs`, `socket.rs` | the configuration of a socket; opens it |
//! | `umem.rs`, `return_list.rs` | the memory for frames, its chunks, and their return |
//! | `ring.rs` | the rings that pass chunks between kernel and process |
//!
//! Attaching a program in native mode turns off the segmentation offloads of a veth's peer; detaching turns
//! them on again. Unprivileged user namespaces may not call bpf(2), so AF_XDP is unavailable there.

mod bpf;
mod config;
mod error;
mod interface;
mod mode;
mod queue;
mod return_list;
mod ring;
mod socket;
mod umem;

pub use config::{ChunkSize, XdpConfig, XdpCopy};
pub use error::XdpError;
pub use interface::XdpInterface;
pub use mode::{XdpChoice, XdpMode};
pub use queue::{XdpBuffer, XdpQueue};
