//! The connection manager, as an engine: what programs call `rdma_cm`.
//!
//! A [`Manager`] holds channels of events and the identifiers of programs, binds them to ports, resolves addresses and routes,
//! connects, listens, accepts, rejects and disconnects, resolves datagram services, and joins multicast groups. It does no I/O
//! and has no clock and no threads: a driver passes it what arrives ([`Input`]) and the time, and does what it asks for
//! ([`Output`]), by the contract of [`nichrome_wire::engine`]. Commands of programs are methods; after each the driver drains
//! [`poll`](nichrome_wire::Engine::poll) too.
//!
//! Connections over RoCEv2 ([`Bearer::Roce`]) are set up by InfiniBand's messages on queue pair 1, here. Those over iWARP and
//! StaR have a set-up of their own, which the driver runs: the manager asks for connections and is told of them.
//!
//! The semantics are those of Linux's `rdma_ucm` (drivers/infiniband/core/ucma.c, cma.c and cm.c; the table in `ib/mod.rs` says
//! where the messages differ), so that [`ucma`], the commands of `/dev/infiniband/rdma_cm`, is a thin layer in front:
//!
//! - The identifier that a request makes has no name of the program's until it is accepted; its events are dropped until then.
//! - Destroying or migrating an identifier returns how many of its events were fetched: the program waits until it has
//!   acknowledged as many.
//! - A listener's backlog counts the requests that the program has not fetched.
//! - With RoCE the initiator's event is `ConnectResponse`; the program moves its queue pair and accepts without parameters.
//!   With streams it is `Established`.
//!
//! # Bounds
//!
//! Identifiers, memberships, channels, events of an identifier, requests in progress from one source and in total, and
//! connections whose program has let go are bounded by [`Config`]. A request beyond a bound is dropped and counted
//! ([`Counters`]); the peer repeats it.
//!
//! # Forged messages
//!
//! A message changes a connection only if it comes from the address that the connection began with, to the same own address,
//! and names the connection by its random 32-bit identifier (a REQ's receiver is not known yet, so the first answer names one;
//! all later messages both). A REQ from the address of an established connection's peer that names the peer's adapter and queue pair
//! ends that connection, as IBA 12.9.8.3.1 demands: the peer has forgotten it. The messages carry no authentication: nothing here
//! protects from senders on the path, or from those that send from the peer's address.
//!
//! # Modules
//!
//! | module | concept |
//! |---|---|
//! | `manager` | the API of programs and drivers |
//! | `ib` | connections by InfiniBand's messages |
//! | `identifier`, `channel`, `ports` | endpoints, events not fetched, ports in use |
//! | `exchange`, `event` | what passes between manager and driver, manager and program |
//! | [`ucma`] | the commands of the kernel's device file |
#![forbid(unsafe_code)]

mod channel;
mod config;
mod counters;
mod deadlines;
mod error;
mod event;
mod exchange;
mod host;
mod ib;
mod identifier;
mod manager;
mod name;
mod ports;
pub mod ucma;

pub use config::{Bearer, CommIdPrefix, Config, ConfigError};
pub use counters::Counters;
pub use error::{CommandError, Errno};
pub use event::{ConnectionParameters, DatagramParameters, Event, EventKind, Parameters};
pub use exchange::{Input, Output, Query, Reception, Route, StreamFailure, StreamName, StreamParameters};
pub use host::{Host, OwnAddresses};
pub use ib::Transmit;
pub use identifier::IdState;
pub use manager::{IdReport, Manager, Usage};
pub use name::{ChannelName, IdName, MembershipName};
