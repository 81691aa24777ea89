//! RoCEv2: reliable and unreliable connections and datagrams over UDP (IBA volume 1 chapter 9, annex A17).
//!
//! | file | concept |
//! |---|---|
//! | `endpoint.rs` | a queue pair on RoCE: packets in and out, error, timers |
//! | `requester/` | sends request packets, and completes them by the peer's answers; its `mod.rs` lists the files |
//! | `responder/` | executes the peer's requests, and answers them; its `mod.rs` lists the files |
//! | `packet.rs`, `context.rs` | received packets and packets to send; the context of requester and responder |
//! | `identifications.rs` | which IPv4 identifications the peer's ICRCs may be right for |
//! | `general_services.rs` | management datagrams of queue pair 1 |
//! | `held.rs`, `held_pool.rs` | requests that are kept until earlier ones arrive; the memory for them, which all queue pairs of a device share |
//! | `config.rs`, `shared.rs` | configuration and state that all queue pairs of a device share |

mod config;
mod context;
mod endpoint;
mod general_services;
mod held;
mod held_pool;
mod identifications;
mod packet;
mod requester;
mod responder;
mod shared;

pub use config::{RoceConfig, SelectiveRepeat};
pub(crate) use endpoint::{Connection, RoceQp};
pub use general_services::ManagementDatagram;
