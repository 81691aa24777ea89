//! Connections by address and port: the connection manager, with the semantics of rdma_cm.
//!
//! [`Adapter::listen`](crate::Adapter::listen) returns a [`Listener`], whose [`accept`](Listener::accept)
//! returns a [`Request`] with the peer's address and private data, to be accepted or rejected.
//! [`Adapter::connect`](crate::Adapter::connect) connects to a listener of Nichrome or of rdma_cm. Accepting
//! and connecting both return a [`Connected`] queue pair. Ports are those of port space `RDMA_PS_TCP`.
//!
//! ```text
//! connect   REQ ────►                       ◄──── REP   Request::accept, or REJ   Request::reject
//!           RTU ────►                                   Connected, at both ends
//!           ◄──── DREQ, DREP ────►                      Connected::disconnect, or drop, of either end
//! ```
//!
//! Private data has at most 56 bytes in a request, 196 in an answer and 148 in a rejection. The message has a
//! field of this size: the peer sees zeros behind shorter data.
//!
//! Over StaR the messages are RoCE's. The sides negotiate which of them is stateless as for every queue pair
//! in RTR, under the key of set-ups; work requests wait until then. The messages themselves, private data
//! included, are neither encrypted nor authenticated.
//!
//! Over iWARP ports are TCP's, and the messages are MPA's start-up, with up to 255 bytes of private data,
//! which has no zeros behind it. A connection is established when the listening program accepts it.
//!
//! The adapter's thread, or the program that polls, retransmits messages and answers the peers' messages; see
//! [`CmOptions`] for the times. A peer that stops answering is a [`ConnectError::TimedOut`].
//!
//! Processes that share an address share its ports: a port in use by another process is
//! [`CommandError::AddressInUse`]. They need reception from sockets
//! ([`Reception::Socket`](crate::Reception::Socket)).
//!
//! | file | concept |
//! |---|---|
//! | `connection.rs`, `listener.rs` | objects of programs |
//! | `endpoint.rs` | the progress of their connections |
//! | `commands.rs` | commands of programs, to the engine of `nichrome-cm` |
//! | `manager.rs` | drives the engine: datagrams of queue pair 1, timers, events |
//! | `deferred_disconnects.rs` | ends of connections that wait until completions are polled |
//! | `channel.rs`, `execute.rs`, `programs.rs` | channels for programs that speak the commands of `/dev/infiniband/rdma_cm` |
//! | `machine.rs`, `tcp_ports.rs` | addresses, routes and ports of the machine; TCP ports that are held |
//! | `streams`, `joining.rs` | iWARP: TCP and MPA's start-up, and giving streams to queue pairs |
//! | `host.rs` | programs that speak the commands of `/dev/infiniband/rdma_cm` before their adapter is open |
//! | `attributes.rs`, `options.rs`, `error.rs` | attributes of queue pairs, options, errors |

mod attributes;
mod channel;
mod commands;
mod connection;
mod deferred_disconnects;
mod endpoint;
mod error;
mod execute;
mod host;
mod joining;
mod listener;
mod machine;
mod manager;
mod options;
mod programs;
mod streams;
mod tcp_ports;

pub(crate) use channel::ChannelHost;
pub use channel::{ChannelError, CmChannel};
pub(crate) use commands::Modify;
pub use connection::Connected;
pub use error::{ConnectError, ListenError, Unavailable, WaitError};
pub use host::{CmHost, PausedHost};
pub(crate) use joining::Joining;
pub use listener::{Listener, Request};
pub(crate) use machine::{Machine, errno_of};
pub(crate) use manager::ConnectionManager;
pub use nichrome_cm::{CommandError, Usage};
pub use nichrome_wire::cm::{Guid, RejectReason, TimeExponent};
pub use options::CmOptions;
pub(crate) use programs::{DetachedManager, GroupRequest};
