//! The connection manager as an engine: connections by address and port, known to programs as `rdma_cm`.
//!
//! A [`Manager`] holds channels of events and the identifiers of programs, binds them to ports, resolves
//! addresses and routes, connects, listens, accepts, rejects and disconnects, resolves datagram services, and
//! joins multicast groups. It does no I/O and has no clock and no threads: a driver passes it inputs
//! ([`Input`]) and the time, and executes its requests ([`Output`]), by the contract of
//! [`nichrome_wire::engine`]. Commands of programs are methods; after each the driver drains
//! [`poll`](nichrome_wire::Engine::poll) too.
//!
//! Connections over RoCEv2 and StaR ([`Bearer::Roce`]) are set up by InfiniBand's messages on queue pair 1,
//! here. Those over iWARP have a set-up of their own, which the driver runs: the manager requests
//! connections, and the driver reports the results.
//!
//! The semantics are those of Linux's `rdma_ucm` (drivers/infiniband/core/ucma.c, cma.c and cm.c; the table
//! in `ib/mod.rs` says where the messages differ), so that [`ucma`], the commands of
//! `/dev/infiniband/rdma_cm`, is a thin layer on top:
//!
//! - The identifier that a request creates has no name of the program's until it is accepted; its events are
//!   dropped until then.
//! - Destroying or migrating an identifier returns the number of its events that were fetched: the program
//!   waits until it has acknowledged as many.
//! - A listener's backlog counts the requests that the program has not fetched. If it is full, the newest
//!   request of the source that has most gives way to one of a source that has fewer. Linux drops the new
//!   request, whoever sends it.
//! - With RoCE the initiator's event is `ConnectResponse`; the program moves its queue pair and accepts
//!   without parameters. With streams it is `Established`.
//!
//! # Bounds
//!
//! Identifiers, memberships, channels, events of an identifier, requests in progress from one source and in
//! total, and connections that their program has destroyed are bounded by [`Config`]. A request beyond a
//! bound is dropped and counted ([`Counters`]); the peer retransmits it.
//!
//! # Forged messages
//!
//! A message changes a connection only if it comes from the address that the connection began with, to the
//! same own address, and names the connection by its random 32-bit identifiers: this end's in the first
//! answer to a REQ, and those of both ends in all later messages. A REQ from the address of an established
//! connection's peer that names the peer's adapter and queue pair ends that connection, as IBA 12.9.8.3.1
//! requires: the peer no longer has it. The messages have no authentication: nothing here protects against
//! senders on the path, or against senders with the peer's address.
//!
//! # Example
//!
//! Two managers in one program, connected by a loop that carries their datagrams and answers their questions:
//!
//! ```
//! use std::net::{IpAddr, SocketAddr};
//!
//! use nichrome_cm::*;
//! use nichrome_rdma::{QpState, QpType};
//! use nichrome_wire::cm::{Ece, Guid, PortSpace};
//! use nichrome_wire::rdma::{PathMtu, QpNumber};
//! use nichrome_wire::{Engine, Instant};
//! # use std::error::Error;
//!
//! fn drive(managers: &mut [Manager<OwnAddresses>; 2], addresses: [IpAddr; 2], now: Instant) {
//!     // Datagrams are answered until both are silent.
//!     for n in (0..2).cycle().take(8) {
//!         while let Some(output) = managers[n].poll() {
//!             let (to, input) = match output {
//!                 Output::Transmit(sent) => {
//!                     let Transmit { source, destination, payload } = *sent;
//!                     (1 - n, Input::Datagram { source, destination, payload: payload.to_vec() })
//!                 }
//!                 Output::ResolveAddress { query, .. } => (n, Input::AddressResolved(query, Ok(addresses[n]))),
//!                 Output::ResolveRoute { query, .. } => {
//!                     let route = Route { path_mtu: PathMtu::B1024, hop_limit: 64 };
//!                     (n, Input::RouteResolved(query, Ok(route)))
//!                 }
//!                 _ => continue,
//!             };
//!             managers[to].receive(input, now);
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn Error>> {
//! let now = Instant::ZERO;
//! let addresses: [IpAddr; 2] = ["10.0.0.1".parse()?, "10.0.0.2".parse()?];
//! let manager = |n: usize| {
//!     let config = Config::new(Bearer::Roce, Guid(n as u64 + 1), n as u128);
//!     Manager::new(config, OwnAddresses(vec![addresses[n]]))
//! };
//! let mut managers = [manager(0)?, manager(1)?];
//! let channels = [managers[0].create_channel()?, managers[1].create_channel()?];
//!
//! // The second program listens, the first resolves and connects.
//! let service = SocketAddr::new(addresses[1], 7174);
//! let listener = managers[1].create_id(channels[1], 1, PortSpace::Tcp, QpType::Rc)?;
//! managers[1].bind(listener, service)?;
//! managers[1].listen(listener, 0)?;
//! let client = managers[0].create_id(channels[0], 2, PortSpace::Tcp, QpType::Rc)?;
//! managers[0].resolve_address(client, None, service, 1000, now)?;
//! drive(&mut managers, addresses, now);
//! managers[0].resolve_route(client, 1000, now)?;
//! drive(&mut managers, addresses, now);
//! let parameters = |qp| ConnectionParameters { qp, ..ConnectionParameters::default() };
//! let queue_pairs = [QpNumber::new(0x11), QpNumber::new(0x12)].map(Option::unwrap_or_default);
//! managers[0].connect(client, &parameters(queue_pairs[0]), Ece::default(), now)?;
//! drive(&mut managers, addresses, now);
//!
//! // The second program accepts; the first moves its queue pair and says that it is ready.
//! let request = managers[1].get_event(channels[1])?.ok_or("no request")?;
//! assert_eq!(request.kind, EventKind::ConnectRequest);
//! let server = IdName(request.id);
//! managers[1].accept(server, 3, &parameters(queue_pairs[1]), Ece::default(), now)?;
//! drive(&mut managers, addresses, now);
//! let rtr = managers[0].qp_attributes(client, QpState::Rtr)?;
//! assert_eq!(rtr.destination, Some(queue_pairs[1]));
//! managers[0].establish(client, now)?;
//! drive(&mut managers, addresses, now);
//! let established = managers[1].get_event(channels[1])?.ok_or("not established")?;
//! assert_eq!((established.kind, established.uid), (EventKind::Established, 3));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | concept |
//! |---|---|
//! | `manager` | the API of programs and drivers |
//! | `ib` | connections by InfiniBand's messages |
//! | `identifier`, `channel`, `ports` | endpoints, events not fetched, ports in use |
//! | `backlog` | the places of requests not fetched, shared fairly between their sources |
//! | `held` | requests for ports at which a program may listen soon |
//! | `exchange`, `event` | inputs and requests between manager and driver, events for programs |
//! | [`ucma`] | the commands of the kernel's device file |
#![forbid(unsafe_code)]

mod backlog;
mod channel;
mod config;
mod counters;
mod deadlines;
mod error;
mod event;
mod exchange;
mod held;
mod host;
mod ib;
mod identifier;
mod manager;
mod name;
mod ports;
pub mod ucma;

pub use config::{Bearer, CommIdPrefix, Config, ConfigError, HoldLimits, RnrTimers};
pub use counters::Counters;
pub use error::{CommandError, Errno};
pub use event::{ConnectionParameters, DatagramParameters, Event, EventKind, Parameters};
pub use exchange::{Input, Output, Query, Reception, Route, StreamFailure, StreamName, StreamParameters};
pub use host::{Host, OwnAddresses, PortCondition, PortUse, ReserveError};
pub use ib::Transmit;
pub use identifier::IdState;
pub use manager::{IdReport, Manager, Usage};
pub use name::{ChannelName, IdName, MembershipName};
pub use nichrome_wire::{Engine, Instant};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
