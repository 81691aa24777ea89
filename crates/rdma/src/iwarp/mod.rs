//! iWARP: RDMAP over DDP over MPA over a byte stream (RFC 5040, RFC 5041, RFC 5044, RFC 6581, RFC 7306).
//!
//! | file | concept |
//! |---|---|
//! | [`setup`] | MPA's start-up of a stream |
//! | `terms.rs` | what the two ends agree on before the first FPDU |
//! | `connect.rs` | putting a queue pair on a stream |
//! | `endpoint.rs` | a queue pair as the device sees it |
//! | `stream.rs` | which segment leaves next, what the peer's segments do, errors |
//! | `link.rs` | the stream beneath: who may send, how it ends |
//! | `framing.rs` | FPDUs in the driver's buffers |
//! | `requester.rs` | the send queue: what leaves next, what responses do |
//! | `responder.rs`, `responses.rs`, `atomic.rs` | what the peer's messages do, and the responses to them |
//! | `segment.rs` | the segment that leaves next |
//! | `fault.rs` | errors that end a connection by a TERMINATE |
//! | `states.rs` | the state transitions of a queue pair |
//! | `config.rs`, `shared.rs`, `context.rs` | what the queue pairs of a device share, and what requester and responder work on |

mod atomic;
mod config;
mod connect;
mod context;
mod endpoint;
mod fault;
mod framing;
mod link;
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
