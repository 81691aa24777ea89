//! iWARP: RDMAP over DDP over MPA over a byte stream (RFC 5040, RFC 5041, RFC 5044, RFC 6581, RFC 7306).
//!
//! | file | concept |
//! |---|---|
//! | [`setup`] | MPA's start-up of a stream |
//! | `terms.rs` | the terms of a connection, agreed on before the first FPDU |
//! | `connect.rs` | putting a queue pair on a stream |
//! | `endpoint.rs` | a queue pair as the device sees it |
//! | `stream.rs` | chooses the next segment, dispatches the peer's segments, handles errors |
//! | `link.rs` | the stream beneath: who may send, how it ends |
//! | `opening.rs` | which end sends the first FPDU |
//! | `framing.rs` | FPDUs in the driver's buffers |
//! | `arrival.rs` | segments that are placed while they arrive |
//! | `requester.rs` | segments of the send queue, responses of the peer |
//! | `responder.rs`, `responses.rs`, `atomic.rs` | execute the peer's messages, and send the responses |
//! | `segment.rs` | the segment that leaves next |
//! | `fault.rs` | errors that end a connection by a TERMINATE |
//! | `states.rs` | the state transitions of a queue pair |
//! | `config.rs`, `shared.rs`, `context.rs` | configuration, state shared by queue pairs, context of requester and responder |

mod arrival;
mod atomic;
mod config;
mod connect;
mod context;
mod endpoint;
mod fault;
mod framing;
mod link;
mod opening;
mod requester;
mod responder;
mod responses;
mod segment;
pub mod setup;
mod shared;
mod states;
mod stream;
mod terms;

pub use config::{IwarpConfig, WithoutReceive};
pub(crate) use endpoint::IwarpQp;
pub(crate) use stream::Stream;
pub use terms::{Role, RtrMessage, Terms};
